"""Effort best and effort quick on the public Clus sets, beside the best figures in print.

    python benchmarks/bench_best.py --data ../shared/data/hmc [--sets diatoms] [--efforts best]

Trained on the training and validation rows with no option set but the effort; evaluated on the test
rows once. Weights are chosen on predictions of rows left out of training. As in print, the three
top classes of the Gene Ontology are left out of AU(PRC); the figure with them is there too. Sets
may run in processes of their own, each with its own --name; --merge joins the files.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench_neighbors import IN_PRINT, figures, load
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.measure import measure
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training.settings import Plan
from machine import RESULTS, write

if TYPE_CHECKING:
    from hierlearn.datasets.dataset import Dataset
    from hierlearn.pipeline import Pipeline

COMMAND = "python benchmarks/bench_best.py --data ../shared/data/hmc"
TARGETS = {
    "diatoms": 0.862,
    "imclef07d": 0.949,
    "cellcycle_fun": 0.278,
    "eisen_fun": 0.331,
    "seq_fun": 0.367,
    "cellcycle_go": 0.431,
    "eisen_go": 0.480,
    "seq_go": 0.504,
}
ALSO = ("mrr", "lca-height", "terminal-accuracy", "calibration-error")


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def run_set(name: str, folder: Path, effort: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Train on one set with no option but the effort, and evaluate."""
    dataset = load(name, folder)
    begun = time.perf_counter()
    pipeline = train(
        replace(dataset, splits={"train": dataset.splits["train"]}),
        Plan(effort=effort, settings=settings),
        reporting=Reporting(bar=False, on_message=lambda text: say(f"{name}: {text}")),
    )
    return evaluate(name, dataset, pipeline, effort, time.perf_counter() - begun)


def evaluate(
    name: str, dataset: Dataset, pipeline: Pipeline, effort: str, seconds: float
) -> dict[str, Any]:
    """Evaluate a trained pipeline on the test rows of a set."""
    test = dataset.split("test")
    targets = Labels(test.labels, dataset.hierarchy).targets()
    scaled = pipeline.probabilities(test.inputs)
    raw = replace(pipeline, scaling=None).probabilities(test.inputs)
    levels = torch.from_numpy(dataset.hierarchy.levels.copy())
    kept = levels > 1 if name.endswith("_go") else levels > 0
    also = [one for one in ALSO if one != "terminal-accuracy" or not name.endswith(("_fun", "_go"))]
    found: dict[str, Any] = {
        "rows": len(dataset.splits["train"]),
        "classes": len(dataset.hierarchy),
        "recipe": pipeline.config["recipe"]["name"],
        **figures(scaled, targets, kept),
        **measure(scaled, targets, pipeline.label_space, also),
        "unscaled": {
            **figures(raw, targets, kept),
            "calibration-error": measure(raw, targets, pipeline.label_space, ["calibration-error"])[
                "calibration-error"
            ],
        },
        "best_in_print": IN_PRINT[name],
        "target": TARGETS[name],
        "seconds": seconds,
    }
    if effort == "best":
        found |= {
            "parts": pipeline.config["recipe"]["parts"],
            "calibration": pipeline.config.get("calibration"),
            "left_out": pipeline.config["training"]["left_out"],
        }
    return found


def main() -> None:
    """Run the sets, or join the results of several runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", default=",".join(IN_PRINT))
    parser.add_argument("--efforts", default="best,quick")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, help="networks of each part, instead of the default")
    parser.add_argument("--name", default="best", help="of the file of results")
    parser.add_argument("--merge", type=Path, nargs="*", default=())
    given = parser.parse_args()
    if given.merge:
        parts = [json.loads(path.read_text()) for path in given.merge]
        joined: dict[str, Any] = {}
        for part in parts:
            for effort, sets in part["figures"].items():
                joined.setdefault(effort, {}).update(sets)
        content = {**parts[0], "figures": joined}
        (RESULTS / f"{given.name}.json").write_text(json.dumps(content, indent=2) + "\n")
        return
    settings: dict[str, Any] = {"device": given.device}
    if given.seeds:
        settings["ensemble_size"] = given.seeds
    results: dict[str, Any] = {}
    for effort in given.efforts.split(","):
        for name in given.sets.split(","):
            own = settings if effort == "best" else {"device": given.device}
            found = run_set(name, given.data, effort, own)
            results.setdefault(effort, {})[name] = found
            write(given.name, results, COMMAND)
            shown = {k: found[k] for k in ("au_prc", "hit@1", "mrr", "seconds")}
            say(f"{effort} {name}: {shown}")


if __name__ == "__main__":
    main()
