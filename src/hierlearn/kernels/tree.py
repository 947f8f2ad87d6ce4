"""The softmax link and MCLoss on a tree by Triton kernels, under autograd.

Forward of the link: logits are read twice, log p and log(1 - p) are written once. Backward: logits
and both gradients are read twice, the gradient of the logits is written once. MCLoss reads logits
and targets once in each pass. What is kept in between is of inner classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels.autograd import with_gradients
from hierlearn.kernels.hcl import aligned, as_labels, key_of, with_contiguous_columns
from hierlearn.kernels.plan import FLOAT, Launch, MemoryLayout, Plan, cached
from hierlearn.kernels.tree_layout import WINDOW
from hierlearn.kernels.tree_plan import (
    GIVEN,
    PAIR,
    SWEEP_COLUMNS,
    SWEEP_WARPS,
    TreeTile,
    divide,
    fold_launches,
    is_fast,
    options_of,
    slot_arrays,
    softmax_gradient,
    sweep_launch,
    tiled_launches,
    vector_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout

    Pair = tuple[Tensor, Tensor]
    Plain = Callable[[Tensor, Tensor], Tensor]

MCLOSS_MAXIMA = TreeTile(WINDOW, 1)
MCLOSS_GRADIENT = TreeTile(1024, 8)


def softmax_pair(logits: Tensor, layout: TreeLayout, plain: Callable[[Tensor], Pair]) -> Pair:
    """Return log p and log(1 - p) of every class, of the shape of the logits.

    Args:
        logits: (N, C) or (M, N, C) float32.
        layout: the tree.
        plain: the same as a differentiable function; computes a gradient that is differentiated
            again.
    """
    flat = logits.flatten(0, -2)
    x = flat.detach()
    if x.stride(1) != 1 or x.data_ptr() % 16:
        x = x.clone(memory_format=torch.contiguous_format)
    plan = link_plan(layout, x)
    block = plan.new_block()
    pair = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))
    plan.run(("pair", "x", "log_p", "log_not_p"), block, (x, *pair))

    def backward(saved: Any, grads: Any, _: Any) -> tuple[Tensor]:
        x, block = saved
        name = "both"
        if None in grads:
            name = "not p" if grads[0] is None else "p"
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        given = [x if grad is None else aligned(grad.contiguous()) for grad in grads]
        plan.run((name, "x", "grad_p", "grad_not_p", "out"), block, (x, *given, out))
        return (out,)

    log_p, log_not_p = with_gradients(pair, (flat,), backward, plain, (x, block))
    return log_p.view(logits.shape), log_not_p.view(logits.shape)


def link_plan(layout: TreeLayout, x: Tensor) -> LinkPlan:
    """Return the plan of logits, made at first use."""
    key = (x.shape, x.stride(0), x.get_device())
    return cached(layout.plans, key, lambda: LinkPlan(layout, x))


class LinkPlan(Plan):
    """The launches of the softmax link for logits of one shape."""

    def __init__(self, layout: TreeLayout, x: Tensor) -> None:
        self.layout, self.device = layout, x.device
        self.rows, self.x_row = len(x), x.stride(0)
        self.vector, self.fast = vector_of(layout.classes, x), is_fast(x.device)
        arrays = slot_arrays(layout, self.rows, softmax=True)
        arrays["row_sums"] = (FLOAT, self.rows)
        for name in ("peak", "owed", "least"):
            arrays[name] = (FLOAT, 0)
        self.memory = MemoryLayout(**arrays)
        self.launches = {
            "pair": self.plan_pair(x),
            "both": self.plan_gradient(p=True, not_p=True),
            "p": self.plan_gradient(p=True, not_p=False),
            "not p": self.plan_gradient(p=False, not_p=True),
        }
        self.finish(dict(layout.on(x.device)))

    def plan_pair(self, x: Tensor) -> list[Launch]:
        """Plan the sums up the tree, the sweep down, and the pair."""
        from hierlearn.kernels.tree_triton import write_pair

        layout, rows, x_row = self.layout, self.rows, self.x_row
        launches = fold_launches(layout, rows, x, self.vector)
        kind = {"SOFTMAX": True, "BOUND": False, "MASKED": False, "FAST": self.fast}
        launches.append(sweep_launch(layout, rows, (x_row, 0, 0), kind))
        names = "x tiles slot level logp norms beyond log_p log_not_p"
        size = (rows, layout.classes, layout.width, layout.levels, x_row)
        more = tiled_launches(
            write_pair,
            layout,
            PAIR,
            (rows, self.device),
            names,
            lambda height: (*size, height),
            {"FAST": self.fast, "VEC": self.vector},
        )
        return [*launches, *more]

    def plan_gradient(self, *, p: bool, not_p: bool) -> list[Launch]:
        """Plan the gradient of the logits, given those of log p, of log(1 - p), or of both."""
        from hierlearn.kernels.tree_hcl_triton import sum_given

        layout = self.layout
        given = {"HAS_P": p, "HAS_NOT_P": not_p}
        names = "x slot level logp norms beyond grad_p grad_not_p row_sums drops"
        numbers = (layout.classes, layout.width, layout.levels, self.x_row)
        shape = {"B": GIVEN.columns, "VEC": self.vector}
        constants = {**given, "FAST": self.fast, **shape}
        options = options_of(GIVEN, self.device)
        first = Launch(sum_given, (self.rows,), names, numbers, constants, options)
        kind = {"GIVEN": True, **given, "BOUND": False, "MASKED": False, "FAST": self.fast}
        batch = (self.rows, (self.x_row, 0, 0), self.vector)
        return [first, *softmax_gradient(layout, batch, self.device, kind, 1.0)]


# ---------------------------------------- MCLoss


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
    x, y = with_contiguous_columns(logits.detach()), with_contiguous_columns(as_labels(targets))
    scale = 1.0 / logits.numel() if mean else 1.0
    plan = mcloss_plan(layout, x, y, scale)
    block = plan.new_block()
    plan.run(("forward", "x", "y"), block, (x, y))
    value = plan.memory.array(block, "partials").sum() * scale

    def backward(saved: Any, grads: Any, _: Any) -> tuple[Tensor]:
        x, y, block = saved
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        plan.run(("backward", "x", "y", "upstream", "out"), block, (x, y, aligned(grads[0]), out))
        return (out,)

    saved = (x, y, block)
    (value,) = with_gradients((value,), (logits,), backward, lambda x: plain(x, targets), saved)
    return value


def mcloss_plan(layout: TreeLayout, x: Tensor, y: Tensor, scale: float) -> MCPlan:
    """Return the plan of a batch, made at first use."""
    key = ("mcloss", scale, *key_of(x, y, None))
    return cached(layout.plans, key, lambda: MCPlan(layout, x, y, scale))


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
        from hierlearn.kernels.tree_triton import max_windows

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
            grid, options = (stage.number, parts), options_of(MCLOSS_MAXIMA, self.device)
            numbers = (*size, *self.strides)
            found.append(Launch(max_windows, grid, names, numbers, constants, options))
            self.parts += stage.number * parts
        return found

    def plan_gradient(self) -> list[Launch]:
        """Plan the sweep down, and the gradient."""
        from hierlearn.kernels.tree_triton import route_down, write_mcloss

        layout, rows = self.layout, (self.rows,)
        names = "x y owner parent slot_bounds best ties given kept upstream"
        numbers = (layout.width, layout.levels, self.scale, *self.strides)
        constants = {"FAST": self.fast, "B": SWEEP_COLUMNS}
        down = Launch(route_down, rows, names, numbers, constants, SWEEP_WARPS)
        names = "x y slot parent best given kept upstream out"
        numbers = (layout.classes, layout.width, self.scale, *self.strides)
        constants = {"FAST": self.fast, "B": MCLOSS_GRADIENT.columns, "VEC": self.vector}
        options = options_of(MCLOSS_GRADIENT, self.device)
        return [down, Launch(write_mcloss, rows, names, numbers, constants, options)]
