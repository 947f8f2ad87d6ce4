"""The class-based curriculum: which classes to learn from now.

    l_hc = min over s in {0, 1}^C of max(sum_j s_j L_j, C - sum_j s_j + e_h)   equation 12

with L_j the summed l_h of class j (equation 10) and e_h that of equation 3. Algorithm 1 of the
paper, with the ascending sort that its complexity implies and thresh = C + e_h, is the exact
minimizer: with S_K the sum of the K smallest losses, class K is selected while

    S_K <= thresh + 1 - K

since both terms at K are then at most the second term at K - 1; beyond the first K that fails, the
left side grows and the right side falls. Unselected classes keep the weight ``floor``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from torch import Tensor

Normalize = Literal["mean", "sum", "losses"]


def normalized(
    class_losses: Tensor, errors: Tensor, rows: int | Tensor, normalize: str
) -> tuple[Tensor, Tensor]:
    """Return what the selection compares, of class losses and errors summed over rows.

    Args:
        class_losses: (C,) or (M, C).
        errors: () or (M,), e_h.
        rows: how many rows were summed, or their weights.
        normalize: "sum" for both sums as they are (the paper), "mean" for both means over rows,
            "losses" for the means of class losses and the sum of errors.
    """
    if normalize == "sum":
        return class_losses, errors
    count = max(rows, 1) if isinstance(rows, int) else rows.clamp_min(1)
    of_members = isinstance(count, torch.Tensor) and count.dim() == 1
    means = class_losses / (count[:, None] if of_members else count)  # type: ignore[index]
    return means, errors / count if normalize == "mean" else errors


def select_classes(class_losses: Tensor, threshold: Tensor | float) -> Tensor:
    """Return (C,) bool: the classes that Algorithm 1 selects; (M, C) for M members at once.

    Args:
        class_losses: (C,) or (M, C) the summed loss of each class.
        threshold: C + e_h for the exact minimizer; a number, or a tensor () or (M,).
    """
    if class_losses.dim() not in (1, 2):
        raise HierlearnError(f"class losses {tuple(class_losses.shape)} must be (C,) or (M, C)")
    ordered, order = torch.sort(class_losses.detach(), stable=True)
    if isinstance(threshold, torch.Tensor) and threshold.dim() == 1:
        threshold = threshold[:, None]
    # Sums of thousands of losses are compared with integers: single precision is too coarse.
    positions = torch.arange(ordered.shape[-1], device=ordered.device)
    kept = ordered.cumsum(-1, dtype=torch.float64) + positions <= threshold
    return torch.zeros_like(kept).scatter(-1, order, kept)


def curriculum_value(class_losses: Tensor, errors: Tensor, weights: Tensor) -> Tensor:
    """Return max(sum_j s_j L_j, C - sum_j s_j + e_h) for the weights s, of one or M members."""
    # 0 times the infinite loss of an unselected class is nothing.
    used = torch.where(weights > 0, weights * class_losses, torch.zeros_like(class_losses))
    return torch.maximum(used.sum(dim=-1), weights.shape[-1] - weights.sum(dim=-1) + errors)
