"""Checks of what a loss is given: shapes at every call, values of targets at the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import HeadOutput
    from hierlearn.losses.loss import Loss, RowLoss

PerClass = Mapping[str, float] | Sequence[float] | Tensor  # a number for every class
ENTRIES = 1 << 22  # of the first batch whose values are checked
ROUNDING = 1e-2  # of the summed parts of a mixture, also in half precision


def check_targets(
    output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
) -> None:
    """Raise on shapes that do not match."""
    what = "logits" if output.logits is not None else "log-probabilities"
    shape = tuple(output.shape)
    if targets.shape != output.shape:
        raise HierlearnError(wrong_targets(targets, what, shape))
    if mask is not None:
        if mask.shape != output.shape:
            raise HierlearnError(f"mask {tuple(mask.shape)} must match {what} {shape}")
        if mask.dtype != torch.bool:
            raise HierlearnError(f"mask must be bool, not {mask.dtype}")
    if weight is not None and weight.shape != output.shape[:-1]:
        raise HierlearnError(
            f"weight {tuple(weight.shape)} must be {shape[:-1]}, one number per row of the "
            f"{what} {shape}"
        )


def wrong_targets(targets: Tensor, what: str, shape: tuple[int, ...]) -> str:
    """Return what is wrong with the shape of targets; class indices get their remedy."""
    indices = not (targets.is_floating_point() or targets.dtype == torch.bool)
    if indices and targets.shape == shape[:-1]:
        return (
            f"targets {tuple(targets.shape)} are class indices, but a loss takes {shape} multi-hot "
            f"targets, closed under ancestors; pass targets_from_indices(targets, label_space, "
            f"class_names), with the name of the class that each index stands for"
        )
    return f"targets {tuple(targets.shape)} must match {what} {shape}"


def can_check_values(targets: Tensor) -> bool:
    """Whether values can be looked at: not while a graph is traced, transformed or captured."""
    if torch.compiler.is_compiling() or in_transform() or targets.is_meta:
        return False
    return not (targets.is_cuda and torch.cuda.is_current_stream_capturing())


def in_transform() -> bool:
    """Whether a torch.func transform (grad, vmap, ...) is active, which needs plain operations."""
    return bool(torch._C._are_functorch_transforms_active())


def check_values(
    hierarchy: Hierarchy, targets: Tensor, mask: Tensor | None, entries: int | None = None
) -> None:
    """Raise on targets outside [0, 1], and on known targets that exceed a known parent's.

    Args:
        hierarchy: the taxonomy.
        targets: (N, C), or (M, N, C) of an ensemble.
        mask: of the same shape, which targets are known.
        entries: look at the first rows only, about this many entries.
    """
    targets, mask = first_rows(targets, mask, entries)
    values = targets if targets.dtype == torch.bool else targets.to(torch.float32)
    known = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    if targets.dtype != torch.bool:
        outside = known & ~((values >= 0) & (values <= 1))
        if outside.any():
            row, number = (int(i) for i in outside.nonzero()[0])
            raise HierlearnError(
                f"row {row}: the target of {hierarchy.names[number]!r} is "
                f"{targets[row, number].item()}, outside [0, 1]"
            )
    child = torch.tensor(hierarchy.structure.edge_children, device=targets.device)
    parent = torch.tensor(hierarchy.structure.parent_ids, device=targets.device)
    open_ = (values[:, child] > values[:, parent]) & known[:, child] & known[:, parent]
    if open_.any():
        row, edge = (int(i) for i in open_.nonzero()[0])
        below, above = (hierarchy.names[int(end[edge])] for end in (child, parent))
        raise HierlearnError(
            f"row {row}: targets are not closed: {below!r} is positive but its parent {above!r} "
            f"is not; make targets with Hierarchy.encode, or close these with "
            f"hierarchy.max_up(targets)"
        )


def first_rows(
    targets: Tensor, mask: Tensor | None, entries: int | None
) -> tuple[Tensor, Tensor | None]:
    """Return the rows of all members, or the first of them that have about so many entries."""
    targets = targets.detach().flatten(0, -2)
    mask = None if mask is None else mask.flatten(0, -2)
    if entries is None:
        return targets, mask
    rows = max(1, entries // max(targets.shape[1], 1))
    return targets[:rows], None if mask is None else mask[:rows]


def find_fractions(targets: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return (N, C) which known targets are neither 0 nor 1; None where there is none."""
    if not targets.is_floating_point():
        return None
    found = (targets != 0) & (targets != 1)
    found = found if mask is None else found & mask
    return found if bool(found.any()) else None


def check_no_fractions(
    loss: Loss, targets: Tensor, mask: Tensor | None, entries: int | None
) -> None:
    """Raise on known targets between 0 and 1."""
    targets, mask = first_rows(targets, mask, entries)
    found = find_fractions(targets, mask)
    if found is None:
        return
    from hierlearn.losses.loss import losses_of_fractions

    row, number = (int(i) for i in found.nonzero()[0])
    raise HierlearnError(
        f"row {row}: the target of {loss.hierarchy.names[number]!r} is "
        f"{targets[row, number].item():g}, but {type(loss).__name__} takes 0 or 1, since it is not "
        f"linear in the targets; pass every part of a mixture as a row with its weight, as "
        f"TimmLoss does, or use {', '.join(losses_of_fractions())}"
    )


def check_mixtures(
    loss: RowLoss, targets: Tensor, mask: Tensor | None, entries: int | None
) -> None:
    """Raise on a row with fractions that is no mixture of rows with one label each.

    Several labels share the weight of a row, and from a mixture of such rows it does not follow
    what was mixed. The parts of one label each must give the targets again, which in a DAG they do
    not for an inner class mixed with one that lies below it by two ways.
    """
    targets, mask = first_rows(targets, mask, entries)
    found = find_fractions(targets, mask)
    if found is None:
        return
    known = targets.to(torch.float32)
    if mask is not None:
        known = torch.where(mask, known, 0.0)
    shares = (known - loss.sum_of_children(known)).clamp_min(0.0)
    misses = (loss.hierarchy.sum_up(shares) - known).abs() > ROUNDING
    misses = (misses if mask is None else misses & mask).any(dim=1)
    wrong = found.any(dim=1) & (misses | ((shares.sum(dim=1) - 1).abs() > ROUNDING))
    if not bool(wrong.any()):
        return
    raise HierlearnError(
        f"row {int(wrong.nonzero()[0])}: the targets are fractions, but no mixture of rows with "
        f"one label each, so {type(loss).__name__} cannot tell what was mixed; pass every part of "
        f"the mixture as a row with its weight, or use bce"
    )


def per_class(what: str, value: PerClass | None, hierarchy: Hierarchy) -> Tensor | None:
    """Return (C,) numbers from those of all classes, or from some by name, where the others are 1.

    Args:
        what: the argument, for errors.
        value: the numbers.
        hierarchy: the taxonomy.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        found = torch.ones(len(hierarchy), dtype=torch.float64)
        for name, number in value.items():
            found[hierarchy.index(name)] = float(number)
    else:
        found = torch.as_tensor(value, dtype=torch.float64).detach().clone()
    if found.shape != (len(hierarchy),):
        raise HierlearnError(
            f"{what} {tuple(found.shape)} must have one number for each of the {len(hierarchy)} "
            f"classes, in the hierarchy's order, or be numbers by name"
        )
    if not bool(((found >= 0) & found.isfinite()).all()):
        wrong = int((~((found >= 0) & found.isfinite())).nonzero()[0])
        raise HierlearnError(
            f"{what} of {hierarchy.names[wrong]!r} must be a number of at least 0, not "
            f"{float(found[wrong])}"
        )
    return found
