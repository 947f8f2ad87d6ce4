"""The recipe "neighbors" on the public Clus sets, and classes that are added without training.

    python benchmarks/bench_neighbors.py --data ../shared/data/hmc [--sets diatoms,seq_fun]

One fixed recipe, its settings by rule; trained on the training and validation rows, evaluated on
the test rows once. Of every set: AU(PRC) and Hit@1 of one network (mean and standard deviation
over the seeds) and of their average, beside the best figures in print. As in these, the three top
classes of the Gene Ontology are left out of AU(PRC); the figure with them is there too.

Losses: the same recipe with the constraint and the curriculum of HCL, one network, 4 seeds.

Growth: of Diatoms, 30 % of the terminal classes are kept out of training and then only remembered.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score

from hierlearn.datasets import DATASETS
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics import hit_at_k
from hierlearn.pipeline.remember import remember
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training.settings import Plan
from machine import write

if TYPE_CHECKING:
    from hierlearn.datasets.dataset import Dataset

# Micro-averaged AU(PRC) on the same test rows: DHN, C-HMCNN (their repositories) or Wehrmann 2018.
IN_PRINT = {
    "diatoms": 0.768,
    "imclef07d": 0.928,
    "cellcycle_fun": 0.256,
    "eisen_fun": 0.307,
    "seq_fun": 0.295,
    "cellcycle_go": 0.415,
    "eisen_go": 0.456,
    "seq_go": 0.447,
}
COMMAND = "python benchmarks/bench_neighbors.py --data ../shared/data/hmc"
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "bce": ("bce", {}),
    "constraint (ancestors)": ("hcl-hier", {"scope": "ancestors"}),
    "curriculum (floor 0.3)": ("hcl-cl", {"floor": 0.3}),
    "both": ("hcl", {"scope": "ancestors", "floor": 0.3, "normalize": "sum"}),
}
QUIET = Reporting(bar=False)


def load(name: str, folder: Path) -> Dataset:
    """Return a set whose training split holds the validation rows too."""
    dataset = DATASETS[name](data_dir=str(folder))
    rows = [dataset.splits[part] for part in ("train", "valid") if part in dataset.splits]
    return replace(dataset, splits={"train": np.concatenate(rows), "test": dataset.splits["test"]})


def member_scores(pipeline: Any, inputs: Any) -> torch.Tensor:
    """Return (M, N, C) the probabilities of every member."""
    parts = []
    with torch.no_grad():
        pipeline.network.eval()
        for begin in range(0, len(inputs), 1024):
            p = pipeline.output(inputs[begin : begin + 1024]).probabilities
            parts.append(p if p.dim() == 3 else p[None])
    return torch.cat(parts, dim=1)


def figures(p: torch.Tensor, targets: torch.Tensor, kept: torch.Tensor) -> dict[str, float]:
    """Return AU(PRC) over some classes and over all, and Hit@1."""
    scores, truth, some = (one.cpu().numpy() for one in (p.float(), targets, kept))
    return {
        "au_prc": average_precision_score(truth[:, some].ravel(), scores[:, some].ravel()),
        "au_prc_all_classes": average_precision_score(truth.ravel(), scores.ravel()),
        "hit@1": float(hit_at_k(p, targets)),
    }


def run_set(name: str, folder: Path, seeds: int, device: str) -> dict[str, Any]:
    """Train the recipe on one set, and evaluate it."""
    dataset = load(name, folder)
    plan = Plan(recipe="neighbors", settings={"ensemble_size": seeds, "device": device})
    begun = time.perf_counter()
    pipeline = train(
        replace(dataset, splits={"train": dataset.splits["train"]}), plan, reporting=QUIET
    )
    seconds = time.perf_counter() - begun
    test = dataset.split("test")
    targets = Labels(test.labels, dataset.hierarchy).targets().to(pipeline.device)
    scores = member_scores(pipeline, test.inputs)
    levels = torch.from_numpy(dataset.hierarchy.levels.copy()).to(targets.device)
    kept = levels > 1 if name.endswith("_go") else levels > 0
    single = [figures(p, targets, kept) for p in scores]
    mean = {key: statistics.mean(one[key] for one in single) for key in single[0]}
    spread = {key: statistics.stdev(one[key] for one in single) for key in single[0]}
    return {
        "rows": len(dataset.splits["train"]),
        "classes": len(dataset.hierarchy),
        "epochs": pipeline.config["settings"]["epochs"],
        "plan": {"head": pipeline.network_spec.to_dict()["heads"]["main"]["options"]},
        "one_model": mean,
        "standard_deviation": spread,
        "average": figures(scores.mean(dim=0), targets, kept),
        "by_seed": [one["au_prc"] for one in single],
        "best_in_print": IN_PRINT[name],
        "seconds": seconds,
    }


def run_losses(folder: Path, seeds: int, device: str) -> dict[str, dict[str, float]]:
    """Train the memory with parts of HCL instead of plain cross entropy."""
    found: dict[str, dict[str, float]] = {}
    for name in ("diatoms", "seq_fun"):
        dataset = load(name, folder)
        rows, test = dataset.split("train"), dataset.split("test")
        targets = Labels(test.labels, dataset.hierarchy).targets()
        kept = torch.ones(len(dataset.hierarchy), dtype=torch.bool)
        found[name] = {}
        for key, (loss, options) in LOSSES.items():
            settings = {"ensemble_size": seeds, "device": device}
            plan = Plan(recipe="neighbors", loss=loss, loss_options=options, settings=settings)
            scores = member_scores(train(rows, plan, reporting=QUIET), test.inputs).cpu()
            single = [figures(p, targets, kept)["au_prc"] for p in scores]
            found[name][key] = statistics.mean(single)
    return found


def run_growth(folder: Path, draws: int, seeds: int, device: str) -> list[dict[str, Any]]:
    """Keep 30 % of the terminal classes of Diatoms out of training, then remember their rows."""
    dataset = load("diatoms", folder)
    rows, test = dataset.split("train"), dataset.split("test")
    terminal = sorted({label for row in rows.labels for label in row})
    settings = {"ensemble_size": seeds, "device": device}
    plan = Plan(recipe="neighbors", settings=settings)
    targets = Labels(test.labels, dataset.hierarchy).targets()
    full = member_scores(train(rows, plan, reporting=QUIET), test.inputs).cpu()
    found = []
    for draw in range(draws):
        chosen = set(np.random.default_rng(draw).permutation(terminal)[: len(terminal) * 3 // 10])
        is_new = np.array([row[0] in chosen for row in rows.labels])
        asks_new = torch.tensor([row[0] in chosen for row in test.labels])
        pipeline = train(rows.take(~is_new), plan, reporting=QUIET)
        added = rows.take(is_new)
        begun = time.perf_counter()
        remember(pipeline, added.inputs, added.labels)
        seconds = time.perf_counter() - begun
        grown = member_scores(pipeline, test.inputs).cpu()
        entry: dict[str, Any] = {"classes": len(chosen), "rows": len(added), "seconds": seconds}
        for what, scores in (("remembered", grown), ("trained", full)):
            for which, asked in (("new", asks_new), ("old", ~asks_new)):
                hits = [float(hit_at_k(p[asked], targets[asked])) for p in scores]
                entry[f"{which}_{what}"] = statistics.mean(hits)
        found.append(entry)
    return found


def main() -> None:
    """Run what was asked for, and write results/neighbors.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the ARFF files")
    parser.add_argument("--sets", default=",".join(IN_PRINT))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--draws", type=int, default=3, help="of the growth study; 0 for none")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    found: dict[str, Any] = {"seeds": given.seeds, "sets": {}}
    for name in given.sets.split(","):
        one = found["sets"][name] = run_set(name, given.data, given.seeds, given.device)
        print(
            f"{name}: one {one['one_model']['au_prc']:.4f} +- "
            f"{one['standard_deviation']['au_prc']:.4f}, average {one['average']['au_prc']:.4f} "
            f"(in print {one['best_in_print']}), Hit@1 {one['average']['hit@1']:.4f}, "
            f"{one['seconds']:.1f} s",
            flush=True,
        )
        write("neighbors", found, COMMAND)
    if given.draws:
        found["losses"] = run_losses(given.data, min(given.seeds, 4), given.device)
        print(found["losses"], flush=True)
        found["growth"] = run_growth(given.data, given.draws, min(given.seeds, 4), given.device)
        for entry in found["growth"]:
            print(entry, flush=True)
        write("neighbors", found, COMMAND)


if __name__ == "__main__":
    main()
