"""Decoders in naive loops: node probabilities to decisions, by enumeration from the definitions.

``rows`` is N lists of C node probabilities p; ``parents[c]`` holds the numbers of the parents of
class c, () for a top class. The implicit root has p = 1 and the number -1. ``targets`` is N closed
rows of C booleans. A decoder called ``name(rows, parents, ...)`` answers for all rows: N class
numbers (-1: the root, no class) or N lists of C booleans. Functions of one ``row`` give the values
that are compared, for tests that must allow for rounding in a tie.

    q(c) = p(c) - sum of q over what lies below c       the mass that ends at c

Every decoder takes ``keep``: it may answer these classes only; None means all of them.

Only + - * / and comparisons touch the values, so rows of ``fractions.Fraction`` (with ``beta`` and
``spread`` integers or fractions) give exact values and exact ties.
"""

from reference.decoding.argmax import argmax
from reference.decoding.coherent import coherent
from reference.decoding.common import ROOT, ancestor_sets, is_tree
from reference.decoding.conformal import (
    conformal,
    conformal_score,
    conformal_subtrees,
    conformal_threshold,
    conformal_values,
    leaf_conformal,
    memberships,
)
from reference.decoding.cost import COSTS, cost, expected_costs, lca_height_cost, path_cost
from reference.decoding.expected_f import closed_sets, expected_f, expected_fs, f_beta
from reference.decoding.leaf import leaf
from reference.decoding.mass import first_excess, raw_mass, terminal_mass
from reference.decoding.risk import (
    check_calibration,
    first_wrong,
    risk_threshold,
    rows_needed,
    stop_errors,
)
from reference.decoding.stop import deepest_above, stop
from reference.decoding.subset import (
    CLASS_DECODERS,
    SET_DECODERS,
    allowed_classes,
    kept_classes,
    renormalized,
    subset,
)
from reference.decoding.top_down import greedy_chain, greedy_chains, top_down

__all__ = [
    "CLASS_DECODERS",
    "COSTS",
    "ROOT",
    "SET_DECODERS",
    "allowed_classes",
    "ancestor_sets",
    "argmax",
    "check_calibration",
    "closed_sets",
    "coherent",
    "conformal",
    "conformal_score",
    "conformal_subtrees",
    "conformal_threshold",
    "conformal_values",
    "cost",
    "deepest_above",
    "expected_costs",
    "expected_f",
    "expected_fs",
    "f_beta",
    "first_excess",
    "first_wrong",
    "greedy_chain",
    "greedy_chains",
    "is_tree",
    "kept_classes",
    "lca_height_cost",
    "leaf",
    "leaf_conformal",
    "memberships",
    "path_cost",
    "raw_mass",
    "renormalized",
    "risk_threshold",
    "rows_needed",
    "stop",
    "stop_errors",
    "subset",
    "terminal_mass",
    "top_down",
]
