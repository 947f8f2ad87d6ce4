"""What further ingredients add to the blend of effort best, on public sets.

    python benchmarks/bench_ingredients.py --data ../shared/data/hmc [--sets diatoms] [--new trees]

The training rows are divided into three parts. Every ingredient is trained on the first, once;
weights are chosen on the second, as effort best does, and the blend is evaluated on the third,
which nothing was chosen on. Test rows are not read. Sets may run in processes of their own, each
with its own --name; --merge joins the files.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bench_neighbors import load
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.measure import compute
from hierlearn.pipeline.blend import BlendRows, predict_answers
from hierlearn.pipeline.run import Reporting, run
from hierlearn.training.blending import Ingredient, answers_of, ingredients, scorer, select
from hierlearn.training.choose import Facts
from hierlearn.training.processes import Processes
from hierlearn.training.settings import Plan
from machine import RESULTS, write

if TYPE_CHECKING:
    from torch import Tensor

COMMAND = "python benchmarks/bench_ingredients.py --data ../shared/data/hmc"
SETS = ("eisen_fun", "cellcycle_fun", "diatoms", "cellcycle_go", "imclef07d")
SHARES = (0.6, 0.8)  # of the rows: for training, and then for weights
NEW = {
    "trees": Ingredient("trees", one_solution=True),
    "verma": Ingredient("verma"),
    "early-heads": Ingredient("early-heads"),
    "hmcn-f": Ingredient("hmcn-f"),
    "hmcn-r": Ingredient("hmcn-r"),
    "hmc-lmlp": Ingredient("hmc-lmlp"),
}


def run_set(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train all ingredients on one set, and compare blends with and without the new ones."""
    folder, new, seeds, cache = given.data, given.new, given.seeds, given.cache
    device = torch.device(given.device)
    whole = load(name, folder)
    dataset = whole.split("train")
    order = np.random.default_rng(0).permutation(len(dataset))
    cuts = [round(share * len(dataset)) for share in SHARES]
    fitted, left_out, held = (np.sort(part) for part in np.split(order, cuts))
    labels = Labels(dataset.labels, dataset.hierarchy)
    space = LabelSpace.from_labels(labels)
    taken = Labels([dataset.labels[row] for row in fitted], dataset.hierarchy)
    known = {
        key: one for key, one in ingredients(Facts.of(taken, "numbers")).items() if key not in new
    }
    left = sorted(set(known) - set(given.only or known))
    found = {key: one for key, one in known.items() if key not in left}
    found |= {one: NEW[one] for one in new}
    terminals = [dataset.hierarchy.names[number] for number in space.terminals.tolist()]
    shared = BlendRows(dataset, fitted, terminals)
    predictions: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    for key, ingredient in found.items():
        path = cache / f"{name}-{key}-{seeds}.pt"
        if not path.is_file():
            begun = time.perf_counter()
            plan = ingredient.plan(Plan(settings={"device": given.device}), seeds)
            prepared = shared.prepare(plan, np.arange(len(fitted)), device)
            run(prepared, Processes(0, 1, device), reporting=Reporting(bar=False))
            rows = dataset.take(np.concatenate([left_out, held]))
            given_by = answers_of(prepared)
            answers = predict_answers(prepared, rows, given_by)
            torch.save({"answers": answers, "seconds": time.perf_counter() - begun}, path)
        stored = torch.load(path)
        seconds[key] = stored["seconds"]
        predictions |= {f"{key}/{one}": p.float().cpu() for one, p in stored["answers"].items()}
        print(name, key, f"{seconds[key]:.1f} s", flush=True)
    targets = labels.targets(np.concatenate([left_out, held]))
    return {
        "rows": [len(fitted), len(left_out), len(held)],
        "classes": len(dataset.hierarchy),
        "seeds": seeds,
        "left_out_ingredients": left,
        "seconds": seconds,
        **compare(predictions, targets, len(left_out), space, new),
    }


def compare(
    predictions: dict[str, Tensor], targets: Tensor, first: int, space: LabelSpace, new: list[str]
) -> dict[str, Any]:
    """Return the figures of the blend without, with each and with all of the new ingredients."""
    score = scorer("au-prc", targets[:first], space)
    single = {
        key: {
            "left_out": round(float(score(p[:first])), 4),
            "held_out": round(float(compute("au-prc", p[first:], targets[first:], space)), 4),
        }
        for key, p in predictions.items()
    }
    choices = {"without": [], **{one: [one] for one in new}}
    if len(new) > 1:
        choices["all"] = new
    blends = {}
    for name, allowed in choices.items():
        some = {
            key: p
            for key, p in predictions.items()
            if key.partition("/")[0] not in new or key.partition("/")[0] in allowed
        }
        chosen = select({key: p[:first] for key, p in some.items()}, score, larger=True)
        total = sum(chosen.weights.values())
        p = sum((w / total) * some[key][first:] for key, w in chosen.weights.items())
        blends[name] = {
            "left_out": round(float(chosen.value or 0.0), 4),
            "held_out": round(float(compute("au-prc", p, targets[first:], space)), 4),
            "weights": {key: round(w, 4) for key, w in chosen.weights.items()},
        }
        print(name, blends[name], flush=True)
    return {"single": single, "blends": blends}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--new", nargs="+", default=list(NEW))
    parser.add_argument("--only", nargs="+", help="ingredients; by default all")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cache", type=Path, default=Path("ingredients-cache"))
    parser.add_argument("--name", default="ingredients")
    parser.add_argument("--merge", nargs="+", default=None)
    given = parser.parse_args()
    if given.merge:
        figures: dict[str, Any] = {}
        for one in given.merge:
            figures |= json.loads((RESULTS / f"{one}.json").read_text())["figures"]
        write(given.name, figures, COMMAND)
        return
    given.cache.mkdir(parents=True, exist_ok=True)
    figures = {}
    for name in given.sets:
        figures[name] = run_set(name, given)
        write(given.name, figures, COMMAND)


if __name__ == "__main__":
    main()
