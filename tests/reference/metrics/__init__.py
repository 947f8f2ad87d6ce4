"""Every metric in naive loops, straight from its definition.

Arguments are plain lists. ``scores``: N rows of C numbers, larger is more likely. ``targets``: N
rows of C booleans (bool or 0/1), closed under ancestors. ``parents[c]``: the parents of class c
as numbers in class order, () for a top class. ``classes``: N decisions, -1 for the implicit root.

``reduction="none"`` gives one float per row, NaN where the row does not count; ``"mean"`` the mean
over the rows that count, NaN if there is none. Ties: the class of the smaller number comes first.
Nothing is validated beyond what a definition needs; ValueError for an option that does not exist.
"""

from reference.metrics.accuracy import (
    answer_accuracy,
    leaf_accuracy,
    level_accuracy,
    mean_level,
    mean_predicted_level,
    terminal_accuracy,
)
from reference.metrics.average_precision import (
    au_prc,
    average_precision,
    clus_au_prc,
    clus_curve,
    evaluated_classes,
)
from reference.metrics.calibration import calibration_error
from reference.metrics.coherence import coherence_violations
from reference.metrics.common import ROOT, ranked_classes
from reference.metrics.hier_dist import (
    default_terminals,
    hier_dist,
    hierarchical_cost,
    lca_height,
    mistake_severity,
    path_length,
)
from reference.metrics.operating import greedy_chain, operating_curve, stop
from reference.metrics.ranking import coverage, hit_at_k, mean_reciprocal_rank
from reference.metrics.sets import (
    closed,
    exact_match,
    hierarchical_f1,
    hierarchical_precision,
    hierarchical_recall,
)

__all__ = [
    "ROOT",
    "answer_accuracy",
    "au_prc",
    "average_precision",
    "calibration_error",
    "closed",
    "clus_au_prc",
    "clus_curve",
    "coherence_violations",
    "coverage",
    "default_terminals",
    "evaluated_classes",
    "exact_match",
    "greedy_chain",
    "hier_dist",
    "hierarchical_cost",
    "hierarchical_f1",
    "hierarchical_precision",
    "hierarchical_recall",
    "hit_at_k",
    "lca_height",
    "leaf_accuracy",
    "level_accuracy",
    "mean_level",
    "mean_predicted_level",
    "mean_reciprocal_rank",
    "mistake_severity",
    "operating_curve",
    "path_length",
    "ranked_classes",
    "stop",
    "terminal_accuracy",
]
