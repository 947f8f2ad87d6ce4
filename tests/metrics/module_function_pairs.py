"""Every torchmetrics class paired with the function that it must equal, and the batch of both."""

from __future__ import annotations

from hierlearn import Hierarchy, metrics
from hierlearn.hierarchy import LabelSpace
from metrics.score_batches import random_batch

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "i"])
BATCH = random_batch(TREE, 23, seed=5, labels=2)
BATCH.scores[3] = BATCH.scores[4]  # ties between rows
BATCH.targets[7] = False  # a row that does not count
SPACE = LabelSpace(TREE, {*(c for row in TREE.decode(BATCH.targets) for c in row), "a/b"})
SETS = BATCH.scores > 0.6
SOME = [number in (0, 2, 4) for number in range(len(TREE))]


def module_function_pairs():
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
        metrics.ClusAUPRC(classes=SOME),
        s.float(),
        lambda x, t: metrics.clus_au_prc(x, t, classes=SOME),
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
