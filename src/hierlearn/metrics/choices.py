"""Choices: which candidates score best, and which labels of a row are terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.hierarchy.structure import row_chunks
from hierlearn.metrics.inputs import positives

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints


def terminal_labels(targets: Tensor, hierarchy: Hierarchy) -> tuple[Ints, Ints]:
    """Return rows and class numbers of the most specific labels of closed targets, by row."""
    rows, numbers = positives(targets)
    keep = hierarchy.most_specific(rows, numbers)
    return rows[keep], numbers[keep]


def best_classes(scores: Tensor, numbers: Tensor | None = None, k: int = 1) -> Tensor:
    """Return (N, k) the best-scored of some classes, best first; the earlier class where they tie.

    Args:
        scores: (N, C) floats.
        numbers: (M,) the class numbers to choose from, ascending; by default all.
        k: how many, at most M.
    """
    if numbers is not None:
        numbers = numbers.to(scores.device)
    parts = []
    for rows in row_chunks(*scores.shape):
        part = scores[rows]
        if numbers is not None and len(numbers) < scores.shape[1]:
            part = part[:, numbers]
        if k == 1:
            best = part.argmax(dim=1, keepdim=True)  # the first of equal values
        else:
            best = part.sort(dim=1, descending=True, stable=True).indices[:, :k]
        parts.append(best if numbers is None else numbers[best])
    return torch.cat(parts)
