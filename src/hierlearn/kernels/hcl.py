"""HCL at the speed of the memory bus: the Triton kernels of ``hcl_triton`` under autograd.

Forward: the running maxima of all levels but the deepest, then the class sums, 5 bytes an entry
(float32 logits, bool targets), then the selection and the loss. Backward: one sweep up the levels,
9 bytes an entry. Beyond logits and targets there is one N x C tensor, the gradient; what is kept in
between is O(N * L + C).

The host never waits for the device, so a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from hierlearn.kernels.hcl_arrays import FLOAT, one_on
from hierlearn.kernels.hcl_plan import Plan
from hierlearn.kernels.hcl_task import Base, Selection, Task, has_triton, interpreted

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = [
    "LOGITS",
    "Base",
    "Found",
    "Kernels",
    "Plan",
    "Selection",
    "Task",
    "has_triton",
    "interpreted",
    "key_of",
    "one_on",
    "step",
    "sweep_down",
    "sweep_up",
]

LOGITS = (torch.float32, torch.bfloat16, torch.float16)
LABELS = (torch.bool, torch.uint8, torch.float32, torch.bfloat16, torch.float16)


class Found(NamedTuple):
    """What the kernels selected, to be looked at when somebody asks."""

    plan: Plan
    block: Tensor

    def array(self, name: str) -> Tensor:
        """Return "sums" (C,), "weights" (C,) or "selected" (C,)."""
        return self.plan.memory.array(self.block, name)

    @property
    def errors(self) -> Tensor:
        """e_h."""
        return self.array("stats")[0]


class Kernels:
    """The kernels of one task, with the plans of the shapes that they have met.

    Args:
        task: what is computed of every batch.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.plans: dict[tuple[Any, ...], Plan] = {}

    def __call__(
        self,
        logits: Tensor,
        targets: Tensor,
        mask: Tensor | None,
        *,
        threshold: Tensor | None = None,
        tell: Callable[[Plan, Tensor], None] | None = None,
        weigh: Callable[[Tensor, Tensor], Tensor | None] | None = None,
    ) -> Tensor:
        """Return the loss of at least one row.

        Args:
            logits: (N, C) in level order, float32, bfloat16 or float16.
            targets: (N, C) of 0 and 1.
            mask: (N, C) bool, which entries are known.
            threshold: float64 scalar on the device, if the selection has a fixed one.
            tell: called with the parts of a ``Found``, if the kernels select.
            weigh: called with the class sums (C,) and e_h if they do not; returns the weights (C,),
                or None for weights of 1.
        """
        x, y, m, plan = self.prepare(logits, targets, mask)
        return step(plan, x, y, m, threshold, tell, weigh)

    def prepare(
        self, x: Tensor, y: Tensor, m: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Plan]:
        """Return logits, targets and mask as the kernels read them, and the plan for them."""
        plan = self.plans.get(key_of(x, y, m))
        if plan is None:  # the first such tensors, or tensors that the kernels do not read
            x, y = readable(x), readable(as_labels(y))
            m = None if m is None else readable(m)
            key = key_of(x, y, m)
            plan = self.plans.get(key)
            if plan is None:
                if len(self.plans) >= PLANS:  # batches of ever new sizes
                    self.plans.clear()
                plan = self.plans[key] = Plan(self.task, x, y, m)
        return x, y, m, plan


PLANS = 64


def key_of(x: Tensor, y: Tensor, m: Tensor | None) -> tuple[Any, ...]:
    """Return what a plan takes for granted: sizes, types, steps and alignment of every array."""
    key = (
        *(x.shape, x.stride(), x.dtype, x.data_ptr() % 32, x.get_device()),
        *(y.shape, y.stride(), y.dtype, y.data_ptr() % 32, y.get_device()),
    )
    if m is None:
        return key
    return *key, m.shape, m.stride(), m.dtype, m.data_ptr() % 32, m.get_device()


def step(
    plan: Plan,
    x: Tensor,
    y: Tensor,
    m: Tensor | None,
    threshold: Tensor | None = None,
    tell: Callable[[Plan, Tensor], None] | None = None,
    weigh: Callable[[Tensor, Tensor], Tensor | None] | None = None,
) -> Tensor:
    """Return the loss of tensors that a plan is for; see ``Kernels``."""
    learns = torch.is_grad_enabled() and x.requires_grad  # inside the function gradients are off
    loss: Tensor = _apply((plan, threshold, tell, weigh, learns), x, y, m)
    return loss


class _HCL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: tuple[Any, ...], x: Tensor, y: Tensor, m: Tensor | None) -> Tensor:
        plan, threshold, tell, weigh, learns = call
        weights = None
        if weigh is None and learns and plan.is_small:
            # A launch costs less here than in autograd's own thread.
            block, loss, ctx.gradient = at_once(plan, x, y, m, threshold)
            # Only a second pass needs these, and autograd's way to keep them takes as long as a
            # launch.
            versions = x._version, y._version, None if m is None else m._version
            ctx.kept = (plan, x, y, m, block, versions)
        else:
            if weigh is None:
                block, loss = select(plan, x, y, m, threshold)
            else:
                block = sweep_down(plan, x, y, m)
                loss, weights = weighted(plan, block, weigh)
            if learns:
                ctx.save_for_backward(x, y, m, block, weights)
                ctx.plan, ctx.gradient, ctx.kept = plan, None, None
        if tell is not None:
            tell(plan, block)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody may want to differentiate the gradient
            return _gradient_once(ctx, upstream)
        return _gradient(ctx, upstream)


# Function.apply without what it does for functorch, whose tensors have no addresses anyway.
_apply: Any = super(torch.autograd.Function, _HCL).apply


def _gradient(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    gradient = ctx.gradient
    if gradient is not None:
        ctx.gradient = None
        if not _keeps_graph():
            ctx.kept = ()
        return None, gradient.mul_(upstream), None, None
    if ctx.kept is None:
        x, y, m, block, weights = ctx.saved_tensors
        return None, sweep_up(ctx.plan, x, y, m, block, upstream, weights), None, None
    if not ctx.kept:
        raise RuntimeError("a second backward pass needs retain_graph=True in the first")
    plan, x, y, m, block, versions = ctx.kept
    if versions != (x._version, y._version, None if m is None else m._version):
        raise RuntimeError("logits, targets or mask were changed in place between backward passes")
    return None, sweep_up(plan, x, y, m, block, upstream), None, None


_gradient_once = once_differentiable(_gradient)


def _unsure() -> bool:
    return True


# Whether the pass that is under way retains its graph.
_keeps_graph: Callable[[], bool] = getattr(
    torch._C._autograd, "_get_current_graph_task_keep_graph", _unsure
)


# ---------------------------------------------------------------------- steps

# The tensors of each part of a plan, which is named first.
DOWN = ("down", "x", "y", "m")
SELECT = ("forward", "x", "y", "m", "threshold", "loss")
AT_ONCE = ("step", "x", "y", "m", "threshold", "loss", "upstream", "out")
UP = ("up", "x", "y", "m", "upstream", "out")


def sweep_down(plan: Plan, x: Tensor, y: Tensor, m: Tensor | None) -> Tensor:
    """Sweep the levels from the top and add the class sums up; return the block of memory."""
    block = plan.new_block()
    plan.run(DOWN, block, (x, y, y if m is None else m))
    return block


def select(
    plan: Plan, x: Tensor, y: Tensor, m: Tensor | None, threshold: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Sweep the levels from the top, select and weigh; return the block of memory and the loss."""
    block, loss = plan.new_block(), torch.empty_like(plan.one)
    limit = plan.one if threshold is None else aligned(threshold)
    plan.run(SELECT, block, (x, y, y if m is None else m, limit, loss))
    return block, loss


def at_once(
    plan: Plan, x: Tensor, y: Tensor, m: Tensor | None, threshold: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Do all of a step; return the block of memory, the loss and its gradient."""
    one = plan.one
    block, loss = plan.new_block(), torch.empty_like(one)
    gradient = torch.empty_like(x, memory_format=torch.contiguous_format)
    limit = one if threshold is None else aligned(threshold)
    plan.run(AT_ONCE, block, (x, y, y if m is None else m, limit, loss, one, gradient))
    return block, loss, gradient


def weighted(
    plan: Plan, block: Tensor, weigh: Callable[[Tensor, Tensor], Tensor | None]
) -> tuple[Tensor, Tensor]:
    """Let the caller weigh the classes; return the loss and the weights."""
    found = Found(plan, block)
    sums = found.array("sums")
    weights = weigh(sums, found.errors)
    if weights is None:
        weights = torch.ones_like(sums)
    # Not a product of matrices, which would be of autocast's precision.
    return (sums * weights).sum() * found.array("stats")[1], weights


def sweep_up(
    plan: Plan,
    x: Tensor,
    y: Tensor,
    m: Tensor | None,
    block: Tensor | None,
    upstream: Tensor,
    weights: Tensor | None = None,
    out: Tensor | None = None,
    **kept: Tensor,
) -> Tensor:
    """Sweep the levels from the deepest; return the gradient (N, C).

    Args:
        plan: of such a batch.
        x: (N, C) logits, whose memory may be that of ``out``.
        y: (N, C) targets.
        m: (N, C) what is known, or None.
        block: what the way down left; None where ``kept`` and ``weights`` say it all.
        upstream: float32 scalar, multiplied in.
        weights: (C,) float32; by default those that the kernels chose.
        out: (N, C) contiguous, of the type of x.
        kept: the arrays "peaks" and "places" of a way down whose block is gone.
    """
    if block is None:
        block = plan.new_block()
        kept["stats"] = torch.ones(2, dtype=FLOAT, device=x.device)
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if weights is not None:
        kept["weights"] = weights
    more = [aligned(one) for one in kept.values()]
    tensors = (x, y, y if m is None else m, aligned(upstream), out, *more)
    plan.run((*UP, *kept), block, tensors)
    return out


# ---------------------------------------------------------------------- tensors


def readable(array: Tensor) -> Tensor:
    """Return the array with neighboring columns side by side."""
    return array if array.stride(1) == 1 or array.shape[1] == 1 else array.contiguous()


def as_labels(targets: Tensor) -> Tensor:
    """Return targets of a type that the kernels read."""
    return targets if targets.dtype in LABELS else targets > 0.5


def aligned(array: Tensor) -> Tensor:
    """Return the array at an address that the compiled kernels expect."""
    return array.clone() if array.data_ptr() % 16 else array
