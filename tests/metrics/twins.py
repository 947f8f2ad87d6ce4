"""Every torchmetrics class with the function that it must equal, and the worker of the DDP test.

Run as ``python twins.py RANK WORLD MEETING_FILE SPLIT``: process RANK takes its rows of the batch,
updates every class in two steps and prints what each computes, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from hierlearn import Hierarchy, metrics
from hierlearn.hierarchy import LabelSpace
from metrics.score_batches import random_batch

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "i"])
BATCH = random_batch(TREE, 23, seed=5, labels=2)
BATCH.scores[3] = BATCH.scores[4]  # ties between rows
BATCH.targets[7] = False  # a row that does not count
SPACE = LabelSpace(TREE, {*(c for row in TREE.decode(BATCH.targets) for c in row), "a/b"})
SETS = BATCH.scores > 0.6


def twins():
    """Return name -> (class instance, first input, function of (first input, targets))."""
    h, s = TREE, BATCH.scores
    found = {
        name: (
            metric.module(SPACE),
            s,
            lambda x, t, metric=metric: metric(x, t, SPACE),
        )
        for name, metric in metrics.METRICS.items()
    }
    for average in ("macro", "samples", "level"):
        found[f"precision {average}"] = (
            metrics.HierarchicalPrecision(h, average=average),
            SETS,
            lambda x, t, a=average: metrics.hierarchical_precision(x, t, h, average=a),
        )
        found[f"f2 {average}"] = (
            metrics.HierarchicalF1(h, average=average, beta=2.0),
            SETS,
            lambda x, t, a=average: metrics.hierarchical_f1(x, t, h, average=a, beta=2.0),
        )
    found["recall of decisions"] = (
        metrics.HierarchicalRecall(h),
        s.argmax(dim=1),
        lambda x, t: metrics.hierarchical_recall(x, t, h),
    )
    found["exact match of sets"] = (
        metrics.ExactMatch(h),
        SETS,
        lambda x, t: metrics.exact_match(x, t, h),
    )
    found["ap by class"] = (
        metrics.AveragePrecision(average="none"),
        s,
        lambda x, t: metrics.average_precision(x, t, average="none"),
    )
    found["clus of some"] = (
        metrics.ClusAUPRC(classes=[0, 2, 4]),
        s.float(),
        lambda x, t: metrics.clus_au_prc(x, t, classes=[0, 2, 4]),
    )
    found["severity of paths"] = (
        metrics.MistakeSeverity(h, candidates="leaves", distance="path", reference="terminal"),
        s,
        lambda x, t: metrics.mistake_severity(
            x, t, h, candidates="leaves", distance="path", reference="terminal"
        ),
    )
    found["calibration pooled"] = (
        metrics.CalibrationError(h, bins=4, pooled=True),
        s,
        lambda x, t: metrics.calibration_error(x, t, h, bins=4, pooled=True),
    )
    found["coherence with tolerance"] = (
        metrics.CoherenceViolations(h, tolerance=0.3),
        s,
        lambda x, _: metrics.coherence_violations(x, h, tolerance=0.3),
    )
    return found


def main(rank: int, world: int, meeting: str, split: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world
    )
    rows = slice(0, split) if rank == 0 else slice(split, None)
    values = {}
    for name, (module, inputs, _) in twins().items():
        mine, targets = inputs[rows], BATCH.targets[rows]
        half = len(mine) // 3
        for part in (slice(0, half), slice(half, None)):
            module.update(mine[part], targets[part])
        values[name] = module.compute().tolist()
    print(json.dumps(values))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
