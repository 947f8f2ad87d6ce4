"""Losses of rows by CPU kernels, compiled by numba, under autograd.

The kernels compute the loss of every row and its gradient in one pass, while the row is in cache;
rows are shared among the threads that torch may use. Where numba is missing, and for what the
kernels do not take, the caller's plain path computes the same.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.kernels.threads import on_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout

FEWEST = 4096  # entries for which kernels are worth loading
NOTHING = np.empty((1, 0), dtype=np.uint8)
NO_GRADIENT = np.empty((1, 0), dtype=np.float32)


@lru_cache(maxsize=1)
def has_numba() -> bool:
    """Whether numba can be imported, and is not forbidden by HIERLEARN_CPU_KERNELS=0."""
    if os.environ.get("HIERLEARN_CPU_KERNELS") == "0":
        return False
    try:
        import numba  # noqa: F401
    except ImportError:  # or it is installed beside a numpy that it does not know yet
        return False
    return True


def can_use(logits: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernels take these logits, (..., C), and what comes with them."""
    return (
        not torch.compiler.is_compiling()
        and logits.device.type == "cpu"
        and logits.dtype == torch.float32
        and logits.numel() >= FEWEST
        and not torch._C._are_functorch_transforms_active()
        and not any(one is not None and one.requires_grad for one in others)
        and type(logits) in (torch.Tensor, torch.nn.Parameter)
        and has_numba()
    )


def as_flags(targets: Tensor) -> NDArray[Any]:
    """Return targets of 0 and 1 as the kernels read them."""
    found = targets.detach()
    if found.dtype == torch.float32:  # numpy compares a small batch in half the time
        return (found.contiguous().numpy() > 0.5).view(np.uint8)
    found = found if found.dtype == torch.bool else found > 0.5
    return found.contiguous().view(torch.uint8).numpy()


def as_targets(targets: Tensor) -> NDArray[Any]:
    """Return targets, of which some may be fractions, as the kernels read them."""
    found = targets.detach()
    if found.dtype == torch.bool:
        return as_flags(found)
    return found.to(torch.float32).contiguous().numpy()


def as_numbers(values: Tensor) -> NDArray[Any]:
    """Return constants as the kernels read them."""
    return values.detach().to(torch.float32).cpu().numpy()


def as_number(value: float) -> Any:
    """Return a constant as the kernels read it."""
    return np.float32(value)


def as_mask(mask: Tensor | None) -> NDArray[Any]:
    """Return a mask as the kernels read it."""
    return NOTHING if mask is None else mask.contiguous().view(torch.uint8).numpy()


def tree_of(layout: TreeLayout) -> Any:
    """Return the arrays of a tree, made at first use."""
    found = layout.for_cpu.get("tree")
    if found is None:
        from hierlearn.kernels.tree_numba import Tree

        arrays = layout.on(torch.device("cpu"))
        found = Tree(*(arrays[name].numpy() for name in Tree._fields))
        found = layout.for_cpu["tree"] = found._replace(parent=found.parent.astype(np.uint32))
    return found


def groups_of(layout: TreeLayout, scope: str | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the group of each class, and the first class of each group, then C.

    The groups are the levels, or for no scope one of all classes; made at first use.
    """
    key = f"groups of {scope}"
    found = layout.for_cpu.get(key)
    if found is None:
        first = layout.level_offsets if scope == "levels" else np.array([0, layout.classes])
        group = np.repeat(np.arange(len(first) - 1, dtype=np.uint32), np.diff(first))
        found = layout.for_cpu[key] = (group, first.astype(np.int32))
    return found


def row_losses(
    kernel: Any,
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    constants: tuple[Any, ...],
    plain: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return (N,) losses.

    Args:
        kernel: takes begin, end, logits, targets, mask, gradient, losses and the constants.
        logits: (N, C) float32.
        targets: (N, C) bool or float.
        mask: (N, C) bool, which targets are known.
        constants: what the kernel takes last.
        plain: logits -> losses as a differentiable function: for gradients that are differentiated
            again, and for logits that are not finite.
    """
    learns = torch.is_grad_enabled() and logits.requires_grad
    y, known = as_targets(targets), as_mask(mask)

    def run() -> tuple[Tensor, Tensor | None]:
        x = logits.detach().contiguous()
        losses, gradient = torch.empty(len(x)), torch.empty_like(x) if learns else None
        values, out = x.numpy(), losses.numpy()
        dx = NO_GRADIENT if gradient is None else gradient.numpy()

        def work(begin: int, end: int) -> None:
            kernel(begin, end, values, y, known, dx, out, *constants)

        on_threads(work, len(x), x.numel())
        return losses, gradient

    losses, gradient = run()
    if not math.isfinite(losses.numpy().sum()):  # nor are logits
        return plain(logits)
    if not learns:
        return losses
    found: Tensor = _RowLosses.apply(logits, losses, gradient, run, plain)  # type: ignore[no-untyped-call]
    return found


class _RowLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        losses: Tensor,
        gradient: Tensor,
        run: Callable[[], tuple[Tensor, Tensor | None]],
        plain: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.gradient, ctx.run, ctx.plain = gradient, run, plain
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient must be differentiable
            losses = ctx.plain(logits)
            (found,) = torch.autograd.grad(losses, logits, upstream, create_graph=True)
            return found, *[None] * 4
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:  # a second pass through a retained graph makes it again
            gradient = ctx.run()[1]
        return gradient.mul_(upstream[:, None]), *[None] * 4
