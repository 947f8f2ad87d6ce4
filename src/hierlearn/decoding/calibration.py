"""Calibration sets: checks, and the rank of the score that a guarantee for a risk allows.

Of n + 1 exchangeable scores each is equally likely to be the new one, so it is among the k most
extreme with probability at most k / (n + 1). A risk allows

    k = floor(risk (n + 1)),

which must be at least 1: fewer than 1 / risk - 1 rows give no guarantee.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.decoding.probabilities import check_probabilities
from hierlearn.errors import HierlearnError, arg, shown
from hierlearn.hierarchy.structure import row_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


MANY_ROWS = 1e15  # below, floats hold every integer


def check_risk(risk: float) -> None:
    """Raise unless a risk is a fraction."""
    level: object = risk  # which may come from anywhere
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise HierlearnError(f"{arg('risk')} must lie between 0 and 1, not {shown(level)}")


def rank_of(risk: float, count: int) -> int:
    """Return k, the largest integer with k / (n + 1) <= risk.

    Args:
        risk: the level, between 0 and 1.
        count: n, the rows of the calibration set.
    """
    check_risk(risk)
    rows: object = count
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 0:
        raise HierlearnError(f"{arg('count')} must be the number of rows, not {shown(rows)}")
    if 1 / (count + 1) > risk:
        needed = f"{1 / risk:.3g}" if risk * MANY_ROWS < 1 else f"{least_rows(risk):,}"
        raise HierlearnError(
            f"a risk of {risk} needs at least {needed} calibration rows, but there are {count}"
        )
    return largest(lambda k: k / (count + 1) <= risk, int(risk * (count + 1)))


def least_rows(risk: float) -> int:
    """Return the smallest n with 1 / (n + 1) <= risk."""
    return largest(lambda n: 1 / (n + 1) > risk, int(1 / risk)) + 1


def largest(holds: Callable[[int], bool], guess: int) -> int:
    """Return the largest integer for which it holds, near a guess that rounding may have shifted.

    The product 0.29 * 100 is less than 29, but 29 / 100 is 0.29.
    """
    while holds(guess + 1):
        guess += 1
    while not holds(guess):
        guess -= 1
    return guess


def check_calibration(
    probabilities: Tensor, targets: Tensor, hierarchy: Hierarchy, risk: float
) -> int:
    """Raise for an unsuitable calibration set; return the rank that the risk allows."""
    check_probabilities(probabilities, hierarchy)
    check_targets(targets, probabilities, hierarchy)
    return rank_of(risk, len(probabilities))


def check_targets(targets: Tensor, probabilities: Tensor, hierarchy: Hierarchy) -> None:
    """Raise unless targets are bool, match the probabilities and are closed."""
    if targets.shape != probabilities.shape:
        raise HierlearnError(
            f"targets {tuple(targets.shape)} must match probabilities {tuple(probabilities.shape)}"
        )
    if targets.dtype != torch.bool:
        raise HierlearnError(f"targets must be bool, not {targets.dtype}")
    structure = hierarchy.structure
    ends = (structure.edge_children, structure.parent_ids)
    child, parent = (torch.tensor(ids, device=targets.device) for ids in ends)
    for rows in row_chunks(len(targets), max(1, len(child))):
        part = targets[rows]
        broken = part.index_select(1, child) & ~part.index_select(1, parent)  # (n, E)
        if broken.any():
            row, edge = (int(i) for i in broken.nonzero()[0])
            below, above = (hierarchy.names[int(end[edge])] for end in (child, parent))
            raise HierlearnError(
                f"row {rows.start + row}: targets are not closed: {below!r} is positive but its "
                f"parent {above!r} is not; make targets with Hierarchy.encode"
            )
