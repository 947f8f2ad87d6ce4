"""MCLoss on a tree by Triton kernels, under autograd.

Forward: logits and targets are read once, backward: once more, and the gradient is written. What is
kept in between is of inner classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels.hcl import LOGITS, aligned, as_labels, key_of, with_contiguous_columns
from hierlearn.kernels.hcl_arrays import FLOAT, MemoryLayout
from hierlearn.kernels.hcl_spec import has_triton
from hierlearn.kernels.plan import Plan
from hierlearn.kernels.tree_plan import (
    SWEEP_COLUMNS,
    SWEEP_WARPS,
    TreeTile,
    divide,
    is_fast,
    options_of,
    vector_of,
)
from hierlearn.kernels.tree_windows import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.launch import Launch
    from hierlearn.kernels.tree_layout import TreeLayout

    Plain = Callable[[Tensor, Tensor], Tensor]

MAX_PLANS = 64
MAXIMA = TreeTile(WINDOW, 1)
GRADIENT = TreeTile(1024, 8)


def can_use(logits: Tensor) -> bool:
    """Whether the kernels take these logits."""
    return (
        not torch.compiler.is_compiling()
        and is_on_gpu(logits)
        and logits.dim() == 2
        and logits.dtype in LOGITS
        and logits.numel() > 0
        and not torch._C._are_functorch_transforms_active()
        and has_triton()
    )


def is_on_gpu(logits: Tensor) -> bool:
    """Whether a tensor is on a GPU."""
    return logits.is_cuda


def mcloss(logits: Tensor, targets: Tensor, layout: TreeLayout, mean: bool, plain: Plain) -> Tensor:
    """Return the mean or the sum of the losses of all entries.

    Args:
        logits: (N, C).
        targets: (N, C) of 0 and 1, closed under ancestors.
        layout: the tree.
        mean: whether to divide by the number of entries.
        plain: the same as a differentiable function of logits and targets; computes a gradient that
            is differentiated again.
    """
    y = with_contiguous_columns(as_labels(targets))
    scale = 1.0 / logits.numel() if mean else 1.0
    found: Tensor = _MCLoss.apply(logits, y, layout, scale, plain)  # type: ignore[no-untyped-call]
    return found


class _MCLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, layout: TreeLayout, scale: float, plain: Plain
    ) -> Tensor:
        ctx.plain = plain
        x = with_contiguous_columns(x)
        ctx.plan = plan = plan_of(layout, x, y, scale)
        block = plan.new_block()
        plan.run(("forward", "x", "y"), block, (x, y))
        ctx.save_for_backward(x, y, block)
        return plan.memory.array(block, "partials").sum() * scale

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, y, block = ctx.saved_tensors
        if torch.is_grad_enabled():
            loss = ctx.plain(x, y)
            (found,) = torch.autograd.grad(loss, x, upstream.to(loss.dtype), create_graph=True)
            return found, None, None, None, None
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        ctx.plan.run(
            ("backward", "x", "y", "upstream", "out"), block, (x, y, aligned(upstream), out)
        )
        return out, None, None, None, None


def plan_of(layout: TreeLayout, x: Tensor, y: Tensor, scale: float) -> MCPlan:
    """Return the plan of a batch, made at first use."""
    key = ("mcloss", scale, *key_of(x, y, None))
    plan: MCPlan | None = layout.plans.get(key)
    if plan is None:
        if len(layout.plans) >= MAX_PLANS:  # the batch size changes all the time
            layout.plans.clear()
        plan = layout.plans[key] = MCPlan(layout, x, y, scale)
    return plan


class MCPlan(Plan):
    """The launches of MCLoss for batches of one shape."""

    def __init__(self, layout: TreeLayout, x: Tensor, y: Tensor, scale: float) -> None:
        self.layout, self.device, self.rows = layout, x.device, len(x)
        self.strides, self.scale = (x.stride(0), y.stride(0)), scale
        self.vector, self.fast = vector_of(layout.classes, x, y), is_fast(x.device)
        self.parts = 0
        self.launches = {"forward": self.plan_maxima(), "backward": self.plan_gradient()}
        slots = (FLOAT, self.rows * layout.width)
        names = ("best", "ties", "given", "kept")
        arrays: dict[str, Any] = {"partials": (FLOAT, self.parts)}
        self.memory = MemoryLayout(**arrays, **dict.fromkeys(names, slots))
        self.finish(dict(layout.on(x.device)))

    def plan_maxima(self) -> list[Launch]:
        """Plan the maxima up the tree, which also add up the losses."""
        from hierlearn.kernels.launch import Launch
        from hierlearn.kernels.mcloss_triton import max_windows

        layout, found = self.layout, []
        for stage in layout.reductions.stages:
            if stage.pieces and stage.level == 0:
                continue
            group = "piece_group" if stage.pieces else "group"
            names = f"x y windows {group} slot parent owner best ties partials"
            height, parts = divide(self.rows, stage.number, self.device)
            size = (self.rows, layout.classes, layout.width, stage.first, self.parts, height)
            constants: dict[str, Any] = {"PIECES": stage.pieces, "INNER": stage.inner}
            constants |= {"TOP": stage.level == 0, "FAST": self.fast, "K": WINDOW}
            constants["VEC"] = 1 if stage.pieces else self.vector
            grid, options = (stage.number, parts), options_of(MAXIMA, self.device)
            numbers = (*size, *self.strides)
            found.append(Launch(max_windows, grid, names, numbers, constants, options))
            self.parts += stage.number * parts
        return found

    def plan_gradient(self) -> list[Launch]:
        """Plan the sweep down, and the gradient."""
        from hierlearn.kernels.launch import Launch
        from hierlearn.kernels.mcloss_triton import route_down, write_mcloss

        layout, rows = self.layout, (self.rows,)
        names = "x y owner parent slot_bounds best ties given kept upstream"
        numbers = (layout.width, layout.levels, self.scale, *self.strides)
        constants = {"FAST": self.fast, "B": SWEEP_COLUMNS}
        down = Launch(route_down, rows, names, numbers, constants, SWEEP_WARPS)
        names = "x y slot parent best given kept upstream out"
        numbers = (layout.classes, layout.width, self.scale, *self.strides)
        constants = {"FAST": self.fast, "B": GRADIENT.columns, "VEC": self.vector}
        options = options_of(GRADIENT, self.device)
        return [down, Launch(write_mcloss, rows, names, numbers, constants, options)]
