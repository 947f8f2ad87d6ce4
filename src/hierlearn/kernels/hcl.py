"""HCL at the speed of the memory bus: the Triton kernels of ``hcl_triton`` under autograd.

Forward: the running maxima of all levels but the deepest, then the class sums, 5 bytes an entry
(float32 logits, bool targets), then the selection and the loss. Backward: one sweep up the levels,
9 bytes an entry. Beyond logits and targets there is one N x C tensor, the gradient; what is kept in
between is O(N * L + C).

The host never waits for the device, so a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from hierlearn.kernels.hcl_plan import BYTE, FLOAT, Plan
from hierlearn.kernels.hcl_task import Base, Selection, Task, has_triton, interpreted

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = [
    "LOGITS",
    "Base",
    "Found",
    "Kernels",
    "Selection",
    "Task",
    "has_triton",
    "one_on",
    "runs_on",
    "sweep_down",
    "sweep_up",
]

SMALL = 1 << 21  # entries up to which the gradient is made on the way forward
LOGITS = (torch.float32, torch.bfloat16, torch.float16)
LABELS = (torch.bool, torch.uint8, torch.float32, torch.bfloat16, torch.float16)


def runs_on(device: torch.device) -> bool:
    """Whether the kernels run on a device: a graphics processor, or any under the interpreter."""
    return has_triton() and (device.type == "cuda" or interpreted())


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
        tell: Callable[[Found], None] | None = None,
        weigh: Callable[[Tensor, Tensor], Tensor | None] | None = None,
    ) -> Tensor:
        """Return the loss of at least one row.

        Args:
            logits: (N, C) in level order, float32, bfloat16 or float16.
            targets: (N, C) of 0 and 1.
            mask: (N, C) bool, which entries are known.
            threshold: float64 scalar on the device, if the selection has a fixed one.
            tell: called with what was selected, if the kernels select.
            weigh: called with the class sums (C,) and e_h if they do not; returns the weights (C,),
                or None for weights of 1.
        """
        learns = torch.is_grad_enabled() and logits.requires_grad
        call = Call(self, threshold, tell, weigh, learns)
        loss: Tensor = _HCL.apply(call, logits, targets, mask)  # type: ignore[no-untyped-call]
        return loss

    def prepare(
        self, logits: Tensor, targets: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Plan]:
        """Return the tensors as the kernels read them, and the plan for them."""
        x, y = readable(logits), readable(as_labels(targets))
        m = None if mask is None else readable(mask)
        return x, y, m, self.plan(x, y, m)

    def plan(self, x: Tensor, y: Tensor, m: Tensor | None) -> Plan:
        """Return the plan for such tensors, made at first use."""
        # What the compiled kernels take for granted: steps and alignment of every array.
        known = (0, 0) if m is None else (m.stride(0), m.data_ptr() % 32)
        places = (x.stride(0), y.stride(0), x.data_ptr() % 32, y.data_ptr() % 32, *known)
        key = (x.shape, x.dtype, y.dtype, x.device, m is None, places)
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= PLANS:  # batches of ever new sizes
                self.plans.clear()
            plan = self.plans[key] = Plan(self.task, x, y, m)
        return plan


PLANS = 64


class Call(NamedTuple):
    """What a call brings beside its tensors; see ``Kernels``."""

    kernels: Kernels
    threshold: Tensor | None
    tell: Callable[[Found], None] | None
    weigh: Callable[[Tensor, Tensor], Tensor | None] | None
    learns: bool  # asked for outside: inside the function gradients are off


class _HCL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, call: Call, logits: Tensor, targets: Tensor, mask: Tensor | None
    ) -> Tensor:
        x, y, m, plan = call.kernels.prepare(logits, targets, mask)
        weights = gradient = None
        if call.weigh is None:
            # A launch costs less here than in autograd's own thread. What is left there is a
            # product, for which the range of float16 is too narrow.
            at_once = call.learns and x.dtype == FLOAT and x.numel() <= SMALL
            block, loss, gradient = select(plan, x, y, m, call.threshold, at_once=at_once)
        else:
            block = sweep_down(plan, x, y, m)
            loss, weights = weighted(plan, block, call.weigh)
        if call.tell is not None:
            call.tell(Found(plan, block))
        if call.learns:
            ctx.save_for_backward(x, y, m, block, weights)
            ctx.plan, ctx.gradient = plan, gradient
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody may want to differentiate the gradient
            return _gradient_once(ctx, upstream)
        return _gradient(ctx, upstream)


def _gradient(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    gradient, ctx.gradient = ctx.gradient, None
    if gradient is not None:  # a second pass through a retained graph makes it anew
        return None, gradient.mul_(upstream), None, None
    x, y, m, block, weights = ctx.saved_tensors
    return None, sweep_up(ctx.plan, x, y, m, block, upstream, weights), None, None


_gradient_once = once_differentiable(_gradient)


# ---------------------------------------------------------------------- steps


def sweep_down(plan: Plan, x: Tensor, y: Tensor, m: Tensor | None) -> Tensor:
    """Sweep the levels from the top and add the class sums up; return the block of memory."""
    block = torch.empty(plan.memory.size, dtype=BYTE, device=x.device)
    launches = [*plan.sweeps, plan.reduce]
    plan.run("down", launches, block, {"x": x, "y": y, "m": y if m is None else m})
    return block


def select(
    plan: Plan,
    x: Tensor,
    y: Tensor,
    m: Tensor | None,
    threshold: Tensor | None,
    *,
    at_once: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sweep the levels from the top, select and weigh.

    Returns:
        The block of memory, the loss and, if wanted ``at_once``, the gradient.
    """
    device = x.device
    block = torch.empty(plan.memory.size, dtype=BYTE, device=device)
    loss = torch.empty((), dtype=FLOAT, device=device)
    tensors = {"x": x, "y": y, "m": y if m is None else m, "loss": loss}
    if threshold is not None:
        tensors["threshold"] = aligned(threshold)
    if not at_once:
        plan.run("select", plan.forward, block, tensors)
        return block, loss, None
    gradient = torch.empty((plan.rows, plan.classes), dtype=x.dtype, device=device)
    tensors["upstream"], tensors["out"] = one_on(device), gradient
    plan.run("at once", plan.step, block, tensors)
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
        block = torch.empty(plan.memory.size, dtype=BYTE, device=x.device)
        kept["stats"] = torch.ones(2, dtype=FLOAT, device=x.device)
    if out is None:
        out = torch.empty((plan.rows, plan.classes), dtype=x.dtype, device=x.device)
    known = y if m is None else m
    tensors = {"x": x, "y": y, "m": known, "upstream": aligned(upstream), "out": out, **kept}
    if weights is not None:
        tensors["weights"] = aligned(weights)
    plan.run("up", [plan.gradient], block, tensors)
    return out


# ---------------------------------------------------------------------- tensors


def readable(array: Tensor) -> Tensor:
    """Return the array with neighbouring columns side by side."""
    return array if array.stride(1) == 1 or array.shape[1] == 1 else array.contiguous()


def as_labels(targets: Tensor) -> Tensor:
    """Return targets of a type that the kernels read."""
    return targets if targets.dtype in LABELS else targets > 0.5


def aligned(array: Tensor) -> Tensor:
    """Return the array at an address that the compiled kernels expect."""
    return array.clone() if array.data_ptr() % 16 else array


@lru_cache(maxsize=16)
def one_on(device: torch.device) -> Tensor:
    """Return 1 on a device."""
    with torch.inference_mode(False):
        return torch.ones((), dtype=FLOAT, device=device)
