"""The systems of the literature beside ``flat``, ``max`` and ``quick``, on validation rows.

Every recipe with no option set, and the variants that their pages tell about. Rows for validation
are the split "valid" of a set, or a fifth of the training rows where it has none; nothing here sees
a test row. Settings of some recipes were chosen on such rows, see their pages.
Run with ``python benchmarks/bench_recipes.py FOLDER [set ...]``, the folder of the sets of Clus;
the figures go to results/recipes.json as they come, and what is there is not measured again.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets import load_dataset
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.measure import measure
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.settings import Plan
from machine import RESULTS, write

if TYPE_CHECKING:
    from hierlearn.datasets import Dataset

SETS = ("cellcycle_fun", "eisen_fun", "diatoms")
SEEDS = 2
METRICS = ("au-prc", "terminal-accuracy", "hier-f1", "hier-dist")
RECIPES = (
    *("flat", "max", "quick", "awx", "hmc-lmlp", "early-heads", "teacher-student", "verma"),
    *("clems", "cnn-hl-li", "devise", "tsle", "trees", "hmcn-f", "hmcn-r"),
)
VARIANTS: dict[str, dict[str, Any]] = {
    "hmc-lmlp, without inputs": {
        "recipe": "hmc-lmlp",
        "network_options": {"use_inputs": False},
    },
    "hmc-lmlp, link max": {"recipe": "hmc-lmlp", "link": "max"},
    "early-heads, weight 0": {"recipe": "early-heads", "network_options": {"weight": 0.0}},
    "teacher-student, subtrees": {
        "recipe": "teacher-student",
        "loss": "teacher",
        "loss_options": {"tasks": "subtrees"},
    },
    "teacher-student, floor 0": {
        "recipe": "teacher-student",
        "loss": "teacher",
        "loss_options": {"floor": 0.0},
    },
    "tsle, weight 0": {"recipe": "tsle", "loss": "tsle", "loss_options": {"weight": 0.0}},
    "cnn-hl-li, no walk": {"recipe": "cnn-hl-li", "link": "from-loss"},
    "hmcn-f, 20 epochs": {"recipe": "hmcn-f", "settings": {"epochs": 20}},
    "hmcn-f, 100 epochs": {"recipe": "hmcn-f", "settings": {"epochs": 100}},
    "hmcn-r, 100 epochs": {"recipe": "hmcn-r", "settings": {"epochs": 100}},
}


def rows_of(name: str, folder: str) -> tuple[Dataset, Dataset]:
    """Return the training rows of a set and, apart, rows for validation."""
    whole = load_dataset(name, data_dir=folder)
    rows, valid = whole.splits["train"], whole.splits.get("valid")
    if valid is None or not len(valid):
        order = np.random.default_rng(0).permutation(rows)
        cut = len(rows) // 5
        rows, valid = np.sort(order[cut:]), np.sort(order[:cut])
    training = replace(whole.take(rows), splits={"train": np.arange(len(rows))})
    return training, whole.take(valid)


def stored() -> dict[str, Any]:
    """Return the figures that were measured before, by set and recipe."""
    path = RESULTS / "recipes.json"
    found: dict[str, Any] = json.loads(path.read_text())["figures"] if path.is_file() else {}
    return found


def run_set(name: str, folder: str) -> None:
    """Measure metrics by seed, CPU seconds and sizes of every recipe that lacks them."""
    training, valid = rows_of(name, folder)
    targets = Labels(valid.labels, valid.hierarchy).targets()
    plans: dict[str, dict[str, Any]] = {**{one: {"recipe": one} for one in RECIPES}, **VARIANTS}
    for label, changes in plans.items():
        if label in stored().get(name, {}):
            continue
        by_seed: list[dict[str, Any]] = []
        begun = time.process_time()
        for seed in range(SEEDS):
            settings = {**changes.get("settings", {}), "seed": seed, "device": "cpu"}
            plan = Plan(**{**changes, "settings": settings})
            model = train(training, plan, reporting=Reporting(bar=False))
            p = model.probabilities(valid.inputs)
            by_seed.append(measure(p, targets, model.label_space, METRICS))
        found = {
            **{metric: [one[metric] for one in by_seed] for metric in METRICS},
            "cpu_seconds": round((time.process_time() - begun) / SEEDS, 1),
            "parameters": sum(one.numel() for one in model.network.parameters()),
        }
        before = stored()  # another set may be measured at the same time
        figures = {**before, name: {**before.get(name, {}), label: found}}
        write("recipes", figures, "python benchmarks/bench_recipes.py FOLDER")
        mean = statistics.mean(one["au-prc"] for one in by_seed)
        print(f"{name}: {label} {mean:.4f}, {found['cpu_seconds']} s", flush=True)


def main() -> None:
    """Measure the sets, one after another."""
    folder, *names = sys.argv[1:]
    for name in names or SETS:
        run_set(name, folder)


if __name__ == "__main__":
    main()
