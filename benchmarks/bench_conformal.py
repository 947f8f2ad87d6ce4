"""Conformal sets: coverage and leaves per set, beside plain conformal prediction over the leaves.

    OMP_NUM_THREADS=2 python benchmarks/bench_conformal.py [NAME ...]

6,000 rows at most of a dataset of texts (icd10cm and naics), drawn from its training split: half of
them train the default recipe, the other half is cut into calibration and test rows, again and
again. Means over the draws:

    conformal           ConformalSets(h)
    conformal, subtrees ConformalSets(h, spread=1), which answers whole subtrees
    plain leaves        every leaf whose p reaches the threshold, written out here
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn import HierarchicalClassifier
from hierlearn.datasets import DATASETS
from hierlearn.decoding import ConformalSets
from machine import write

if TYPE_CHECKING:
    from torch import Tensor

ROWS, DRAWS = 6000, 50
ALPHAS = (0.05, 0.1, 0.2)


def main() -> None:
    """Run all sets, and write results/conformal.json."""
    names = sys.argv[1:] or ["icd10cm", "naics"]
    write("conformal", {name: run(name) for name in names}, "python benchmarks/bench_conformal.py")


def descriptions(name: str) -> tuple[list[str], list[str]]:
    """Return texts and labels of a dataset."""
    data: Any = DATASETS[name]()
    rows = np.random.default_rng(0).permutation(data.splits.get("train", len(data)))[:ROWS]
    return [data.inputs[row] for row in rows], [data.labels[row][0] for row in rows]


def run(name: str) -> dict[str, Any]:
    """Train on half of the rows, and return the figures of the other half."""
    texts, labels = descriptions(name)
    order = np.random.default_rng(0).permutation(len(texts))
    train, rest = np.array_split(order, 2)
    model = HierarchicalClassifier(random_state=0)
    model.fit([texts[row] for row in train], [labels[row] for row in train])
    hierarchy = model.hierarchy_
    known = set(hierarchy.names)
    rest = [row for row in rest if labels[row] in known]  # no training row has the others' label
    p = torch.from_numpy(model.predict_node_proba([texts[row] for row in rest]))
    targets = hierarchy.encode([[labels[row]] for row in rest])
    levels = {}
    for alpha in ALPHAS:
        levels[str(alpha)] = figures(p, targets, hierarchy, alpha)
        print(name, alpha, levels[str(alpha)], flush=True)
    return {
        "training_rows": len(train),
        "held_out_rows": len(rest),
        "leaves": len(hierarchy.leaves),
        "draws": DRAWS,
        "alpha": levels,
    }


def figures(p: Tensor, targets: Tensor, hierarchy: Any, alpha: float) -> dict[str, Any]:
    """Return coverage and mean leaves per set of every method, over random halves."""
    leaves = torch.tensor(hierarchy.leaves)
    truth = targets[:, leaves]
    found: dict[str, list[tuple[float, float]]] = {}
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        order = torch.randperm(len(p), generator=generator)
        calibration, test = order[: len(p) // 2], order[len(p) // 2 :]
        answers = {"plain leaves": plain(p[:, leaves], truth, calibration, test, alpha)}
        for method, spread in (("conformal", None), ("conformal, subtrees", 1.0)):
            decoder = ConformalSets(hierarchy, spread=spread)
            decoder = decoder.calibrate(p[calibration], targets[calibration], alpha)
            answers[method] = decoder(p[test])[:, leaves]
        for method, sets in answers.items():
            covered = (sets | ~truth[test]).all(dim=1).double().mean()
            size = sets.sum(dim=1).double().mean()
            found.setdefault(method, []).append((float(covered), float(size)))
    return {
        method: dict(zip(("coverage", "leaves"), np.mean(pairs, axis=0).tolist(), strict=True))
        for method, pairs in found.items()
    }


def plain(p: Tensor, truth: Tensor, calibration: Tensor, test: Tensor, alpha: float) -> Tensor:
    """Return the leaves whose p reaches the floor(alpha (n + 1))-th smallest p of a true leaf."""
    scores = p[calibration][truth[calibration]].sort().values
    return p[test] >= scores[int(alpha * (len(calibration) + 1)) - 1]


if __name__ == "__main__":
    main()
