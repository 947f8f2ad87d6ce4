"""The softmax link of a tree by Triton kernels, under autograd.

Forward: logits are read twice, log p and log(1 - p) are written once. Backward: logits and both
gradients are read twice, the gradient of the logits is written once. What is kept in between is of
inner classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels.hcl_arrays import FLOAT, MemoryLayout
from hierlearn.kernels.hcl_spec import has_triton
from hierlearn.kernels.plan import Plan
from hierlearn.kernels.tree_plan import (
    GIVEN,
    PAIR,
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

    from hierlearn.kernels.launch import Launch
    from hierlearn.kernels.tree_layout import TreeLayout

    Pair = tuple[Tensor, Tensor]

MAX_PLANS = 64


def can_use(logits: Tensor) -> bool:
    """Whether the kernels take these logits, (N, C) or (M, N, C)."""
    return (
        not torch.compiler.is_compiling()
        and is_on_gpu(logits)
        and logits.dtype == FLOAT
        and logits.numel() > 0
        and not torch._C._are_functorch_transforms_active()
        and has_triton()
    )


def is_on_gpu(logits: Tensor) -> bool:
    """Whether a tensor is on a GPU."""
    return logits.is_cuda


def softmax_pair(logits: Tensor, layout: TreeLayout, plain: Callable[[Tensor], Pair]) -> Pair:
    """Return log p and log(1 - p) of every class, of the shape of the logits.

    Args:
        logits: (N, C) or (M, N, C) float32.
        layout: the tree.
        plain: the same as a differentiable function; computes a gradient that is differentiated
            again.
    """
    flat = logits.flatten(0, -2)
    found = _SoftmaxPair.apply(flat, layout, plain)  # type: ignore[no-untyped-call]
    return found[0].view(logits.shape), found[1].view(logits.shape)


class _SoftmaxPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: TreeLayout, plain: Callable[[Tensor], Pair]) -> Pair:
        if x.stride(1) != 1 or x.data_ptr() % 16:
            x = x.clone(memory_format=torch.contiguous_format)
        plan = plan_of(layout, x)
        block = plan.new_block()
        log_p = torch.empty_like(x, memory_format=torch.contiguous_format)
        log_not_p = torch.empty_like(log_p)
        plan.run(("pair", "x", "log_p", "log_not_p"), block, (x, log_p, log_not_p))
        ctx.save_for_backward(x, block)
        ctx.plan, ctx.plain = plan, plain
        ctx.set_materialize_grads(False)
        return log_p, log_not_p

    @staticmethod
    def backward(
        ctx: Any, grad_p: Tensor | None, grad_not_p: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        x, block = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradient(ctx.plain, x, grad_p, grad_not_p), None, None
        if grad_p is None and grad_not_p is None:
            return None, None, None
        name = "both" if grad_p is not None and grad_not_p is not None else "p"
        if grad_p is None:
            name = "not p"
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        given = [x if grad is None else ready(grad) for grad in (grad_p, grad_not_p)]
        ctx.plan.run((name, "x", "grad_p", "grad_not_p", "out"), block, (x, *given, out))
        return out, None, None


def plain_gradient(
    plain: Callable[[Tensor], Pair], x: Tensor, grad_p: Tensor | None, grad_not_p: Tensor | None
) -> Tensor:
    """Return the gradient of the logits by the plain path, which can be differentiated again."""
    pairs = zip(plain(x), (grad_p, grad_not_p), strict=True)
    used = [(one, grad) for one, grad in pairs if grad is not None]
    values, grads = [one for one, _ in used], [grad for _, grad in used]
    (found,) = torch.autograd.grad(values, x, grads, create_graph=True)
    return found


def ready(array: Tensor) -> Tensor:
    """Return an array contiguous and aligned to 16 bytes."""
    array = array.contiguous()
    return array.clone() if array.data_ptr() % 16 else array


def plan_of(layout: TreeLayout, x: Tensor) -> LinkPlan:
    """Return the plan of logits, made at first use."""
    key = (x.shape, x.stride(0), x.get_device())
    plan: LinkPlan | None = layout.plans.get(key)
    if plan is None:
        if len(layout.plans) >= MAX_PLANS:  # the batch size changes all the time
            layout.plans.clear()
        plan = layout.plans[key] = LinkPlan(layout, x)
    return plan


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
        from hierlearn.kernels.launch import Launch
        from hierlearn.kernels.tree_gradient_triton import sum_given

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
