"""Choices: what may be answered, which of it scores best, and which labels are terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from hierlearn.decoding.chunks import row_chunks
from hierlearn.links.softmax import terminal_numbers
from hierlearn.metrics.inputs import check_option, positives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.hierarchy.structure import Ints

Candidates = Literal["all", "terminal", "leaves"]


def terminal_labels(targets: Tensor, hierarchy: Hierarchy) -> tuple[Ints, Ints]:
    """Return rows and class numbers of the terminal labels of closed targets, by row."""
    rows, numbers = positives(targets)
    keep = hierarchy.most_specific(rows, numbers)
    return rows[keep], numbers[keep]


def terminal_mask(targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (N, C) bool: the terminal labels of closed targets."""
    mask = torch.zeros_like(targets)
    rows, numbers = (torch.from_numpy(x) for x in terminal_labels(targets, hierarchy))
    mask[rows.to(mask.device), numbers.to(mask.device)] = True
    return mask


def terminal_classes(
    hierarchy: Hierarchy, terminals: Iterable[Label] | None, targets: Tensor | None = None
) -> Tensor:
    """Return the terminal classes as numbers, ascending: the leaves, and those given.

    Args:
        hierarchy: the taxonomy.
        terminals: inner classes that occur as a most specific label; by default those of
            ``targets``.
        targets: (N, C) closed bool.
    """
    if terminals is None and targets is not None:
        terminals = np.unique(terminal_labels(targets, hierarchy)[1]).tolist()
    named: Any = () if terminals is None else terminals
    return terminal_numbers(hierarchy, named.tolist() if isinstance(named, Tensor) else named)


def candidate_classes(
    candidates: Candidates,
    hierarchy: Hierarchy,
    terminals: Iterable[Label] | None,
    targets: Tensor | None = None,
) -> Tensor:
    """Return the numbers of the classes that may be answered, ascending."""
    check_option("candidates", candidates, Candidates)
    if candidates == "all":
        return torch.arange(len(hierarchy))
    if candidates == "leaves":
        return torch.tensor(hierarchy.leaves)
    return terminal_classes(hierarchy, terminals, targets)


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
