"""Stage 9: decisions and scores become numbers, as functions and as torchmetrics classes.

The classes are loaded when first used: the functions need no torchmetrics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hierlearn.metrics.accuracy import (
    answer_accuracy,
    coverage,
    hit_at_k,
    leaf_accuracy,
    level_accuracy,
    mean_level,
    mean_predicted_level,
    mean_reciprocal_rank,
    terminal_accuracy,
)
from hierlearn.metrics.average_precision import (
    au_prc,
    average_precision,
    clus_au_prc,
    evaluated_classes,
)
from hierlearn.metrics.calibration import (
    OperatingCurve,
    calibration_error,
    coherence_violations,
    operating_curve,
)
from hierlearn.metrics.hier_dist import hier_dist, hierarchical_cost, mistake_severity
from hierlearn.metrics.measure import (
    METRICS,
    Evaluation,
    Metric,
    find_metric,
    measure,
    measure_rows,
)
from hierlearn.metrics.sets import (
    exact_match,
    hierarchical_f1,
    hierarchical_precision,
    hierarchical_recall,
)

if TYPE_CHECKING:
    from hierlearn.metrics.modules import (
        AveragePrecision,
        CalibrationError,
        ClusAUPRC,
        CoherenceViolations,
        Coverage,
        ExactMatch,
        HierarchicalF1,
        HierarchicalPrecision,
        HierarchicalRecall,
        HierDist,
        HitAtK,
        LeafAccuracy,
        LevelAccuracy,
        MeanPredictedLevel,
        MeanReciprocalRank,
        MistakeSeverity,
        TerminalAccuracy,
    )

__all__ = [
    "METRICS",
    "AveragePrecision",
    "CalibrationError",
    "ClusAUPRC",
    "CoherenceViolations",
    "Coverage",
    "Evaluation",
    "ExactMatch",
    "HierDist",
    "HierarchicalF1",
    "HierarchicalPrecision",
    "HierarchicalRecall",
    "HitAtK",
    "LeafAccuracy",
    "LevelAccuracy",
    "MeanPredictedLevel",
    "MeanReciprocalRank",
    "Metric",
    "MistakeSeverity",
    "OperatingCurve",
    "TerminalAccuracy",
    "answer_accuracy",
    "au_prc",
    "average_precision",
    "calibration_error",
    "clus_au_prc",
    "coherence_violations",
    "coverage",
    "evaluated_classes",
    "exact_match",
    "find_metric",
    "hier_dist",
    "hierarchical_cost",
    "hierarchical_f1",
    "hierarchical_precision",
    "hierarchical_recall",
    "hit_at_k",
    "leaf_accuracy",
    "level_accuracy",
    "mean_level",
    "mean_predicted_level",
    "mean_reciprocal_rank",
    "measure",
    "measure_rows",
    "mistake_severity",
    "operating_curve",
    "terminal_accuracy",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hierlearn.metrics' has no attribute {name!r}")
    from hierlearn.backbones.torchvision import broken_torchvision

    broken = broken_torchvision()
    if broken:
        raise ImportError(
            f"metrics as classes need torchmetrics, which needs torchvision: {broken}"
        )
    return getattr(import_module("hierlearn.metrics.modules"), name)
