"""HCL at the speed of the memory bus: the Triton kernels of ``hcl_triton`` under autograd.

Forward: the running maxima of all levels but the deepest, then the class sums, 5 bytes per entry
(float32 logits, bool targets), then the selection and the loss. Backward: one sweep up the levels,
9 bytes per entry. Besides logits and targets there is one N x C tensor, the gradient; what is kept
between the passes is O(N * L + C).

The host never waits for the device, so a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hierlearn.kernels.autograd import with_gradients
from hierlearn.kernels.hcl_plan import (
    KernelSpec,
    LaunchPlan,
)
from hierlearn.kernels.plan import FLOAT, cached
from hierlearn.kernels.tree_plan import TreePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    OnResult = Callable[[LaunchPlan, Tensor], None]
    Weigh = Callable[[Tensor, Tensor], Tensor | None]
    Differentiable = Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]

LABELS = (torch.bool, torch.uint8, torch.float32, torch.bfloat16, torch.float16)


class Workspace(NamedTuple):
    """The memory of one call, with the arrays that the kernels wrote there."""

    plan: LaunchPlan
    block: Tensor

    def array(self, name: str) -> Tensor:
        """Return "sums" (C,), "weights" (C,) or "selected" (C,)."""
        return self.plan.memory.array(self.block, name)

    @property
    def errors(self) -> Tensor:
        """e_h."""
        return self.array("stats")[0]


class Kernels:
    """The kernels of one spec, with a launch plan for each shape met so far.

    Args:
        spec: what is computed for every batch.
    """

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.plans: dict[tuple[Any, ...], LaunchPlan] = {}

    def __call__(
        self,
        logits: Tensor,
        targets: Tensor,
        mask: Tensor | None,
        *,
        threshold: Tensor | None = None,
        on_result: OnResult | None = None,
        weigh: Weigh | None = None,
        differentiable: Differentiable | None = None,
    ) -> Tensor:
        """Return the loss of a batch of at least one row.

        Args:
            logits: (N, C) in level order, float32, bfloat16 or float16.
            targets: (N, C) of 0 and 1.
            mask: (N, C) bool, which entries are known.
            threshold: float64 scalar on the device, if the selection has a fixed one.
            on_result: called with the parts of a ``Workspace``, if the kernels select.
            weigh: called with the class sums (C,) and e_h if they do not; returns the weights (C,),
                or None for weights of 1.
            differentiable: the same loss as a differentiable function of logits, targets, mask and
                weights (C,), reduction included; computes the gradient under ``create_graph=True``,
                so that it can be differentiated again.
        """
        x, y, m, plan = self.prepare(logits, targets, mask)
        learns, data = torch.is_grad_enabled() and x.requires_grad, x.detach()
        block, batch = plan.new_block(), (data, y, y if m is None else m)
        weights, ready = None, []
        if weigh is not None:
            plan.run(DOWN, block, batch)
            found = Workspace(plan, block)
            sums = found.array("sums")
            weights = weigh(sums, found.errors)
            weights = torch.ones_like(sums) if weights is None else weights
            # Not a matmul, which autocast would compute in half precision.
            loss = (sums * weights).sum() * found.array("stats")[1]
        else:
            loss = torch.empty_like(plan.one)
            tensors = (*batch, plan.one if threshold is None else aligned(threshold), loss)
            if learns and plan.is_small:  # a launch costs less here than in autograd's own thread
                ready.append(torch.empty_like(data, memory_format=torch.contiguous_format))
                plan.run(FULL_STEP, block, (*tensors, plan.one, ready[0]))
            else:
                plan.run(SELECT, block, tensors)
        if on_result is not None:
            on_result(plan, block)
        if not learns:
            return loss

        def backward(saved: Any, grads: Any, _: Any) -> tuple[Tensor]:
            if ready:  # a second pass through a retained graph makes it again
                return (ready.pop().mul_(grads[0]),)
            x, y, m, block, weights = saved
            arrays = {} if weights is None else {"weights": weights}
            return (sweep_up(plan, x, y, m, block, grads[0], **arrays),)

        def plain(x: Tensor) -> Tensor:
            assert differentiable is not None
            # A view of the workspace, whose memory lives as long as the graph of the gradient.
            used = Workspace(plan, block).array("weights") if weights is None else weights
            return differentiable(x, y, m, used)

        saved = (data, y, m, block, weights)
        (loss,) = with_gradients((loss,), (x,), backward, plain, saved)
        return loss

    def prepare(
        self, x: Tensor, y: Tensor, m: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, LaunchPlan]:
        """Return logits, targets and mask as the kernels read them, and the plan for them."""
        plan = self.plans.get(key_of(x, y, m))
        if plan is None:  # the first such tensors, or tensors that the kernels do not read
            x, y = with_contiguous_columns(x), with_contiguous_columns(as_labels(y))
            m = None if m is None else with_contiguous_columns(m)
            kind = LaunchPlan if self.spec.tree is None else TreePlan
            plan = cached(self.plans, key_of(x, y, m), lambda: kind(self.spec, x, y, m))
        return x, y, m, plan


def key_of(x: Tensor, y: Tensor, m: Tensor | None) -> tuple[Any, ...]:
    """Return what a plan depends on: shape, strides, dtype, alignment and device of each array."""
    key = (
        *(x.shape, x.stride(), x.dtype, x.data_ptr() % 32, x.get_device()),
        *(y.shape, y.stride(), y.dtype, y.data_ptr() % 32, y.get_device()),
    )
    if m is None:
        return key
    return *key, m.shape, m.stride(), m.dtype, m.data_ptr() % 32, m.get_device()


# ---------------------------------------- steps

# The name of a part of a plan, then its tensors.
DOWN = ("down", "x", "y", "m")
SELECT = ("forward", "x", "y", "m", "threshold", "loss")
FULL_STEP = ("step", "x", "y", "m", "threshold", "loss", "upstream", "out")
UP = ("up", "x", "y", "m", "upstream", "out")


def sweep_down(plan: LaunchPlan, x: Tensor, y: Tensor, m: Tensor | None) -> Tensor:
    """Sweep the levels from the top and compute the class sums; return the block of memory."""
    block = plan.new_block()
    plan.run(DOWN, block, (x, y, y if m is None else m))
    return block


def sweep_up(
    plan: LaunchPlan,
    x: Tensor,
    y: Tensor,
    m: Tensor | None,
    block: Tensor | None,
    upstream: Tensor,
    out: Tensor | None = None,
    **arrays: Tensor,
) -> Tensor:
    """Sweep the levels from the deepest; return the gradient (N, C).

    Args:
        plan: the plan of this batch.
        x: (N, C) logits, whose memory may be that of ``out``.
        y: (N, C) targets.
        m: (N, C) mask, or None.
        block: what ``sweep_down`` returned; None where ``arrays`` holds all that is needed.
        upstream: float32 scalar, the upstream gradient.
        out: (N, C) contiguous, of the dtype of x.
        arrays: "weights" (C,) float32, by default those that the kernels selected; "peaks" and
            "places" of a sweep down whose block is gone.
    """
    if block is None:
        block = plan.new_block()
        arrays["stats"] = torch.ones(2, dtype=FLOAT, device=x.device)
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    more = [aligned(array) for array in arrays.values()]
    tensors = (x, y, y if m is None else m, aligned(upstream), out, *more)
    plan.run((*UP, *arrays), block, tensors)
    return out


# ---------------------------------------- tensors


def with_contiguous_columns(array: Tensor) -> Tensor:
    """Return the array with a column stride of 1."""
    return array if array.stride(1) == 1 or array.shape[1] == 1 else array.contiguous()


def as_labels(targets: Tensor) -> Tensor:
    """Return targets of a dtype that the kernels read."""
    return targets if targets.dtype in LABELS else targets > 0.5


def aligned(array: Tensor) -> Tensor:
    """Return the array aligned to 16 bytes, as the compiled kernels expect."""
    return array.clone() if array.data_ptr() % 16 else array
