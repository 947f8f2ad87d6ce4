"""What kernels compute, under autograd; what is differentiated twice takes plain operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # (saved tensors, gradients of the values, which inputs need theirs) -> those of the inputs
    Backward = Callable[[Any, Any, Any], Sequence[Tensor | None]]


def with_gradients(
    values: tuple[Tensor, ...],
    inputs: tuple[Tensor | None, ...],
    backward: Backward,
    plain: Callable[..., Any],
    saved: tuple[Tensor | None, ...] = (),
) -> tuple[Tensor, ...]:
    """Return the values that kernels computed of some inputs, with their gradients.

    Args:
        values: what was computed; nobody else holds them.
        inputs: what it was computed of.
        backward: (saved tensors, gradients of the values, which inputs need theirs) -> those of the
            inputs, by kernels.
        plain: the values as a differentiable function of the inputs, for gradients that are
            differentiated again.
        saved: what ``backward`` is given; it must not change until then.
    """
    given = (values, backward, plain, saved)
    found: tuple[Tensor, ...] = _Kernels.apply(given, *inputs)  # type: ignore[no-untyped-call]
    return found


class _Kernels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: tuple[Any, ...], *inputs: Tensor | None) -> tuple[Tensor, ...]:
        values: tuple[Tensor, ...]
        values, ctx.by_kernels, ctx.plain, saved = given
        ctx.save_for_backward(*inputs, *saved)
        ctx.set_materialize_grads(False)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        inputs, saved = ctx.saved_tensors[: len(needed)], ctx.saved_tensors[len(needed) :]
        if all(one is None for one in grads):
            return None, *[None] * len(needed)
        if not torch.is_grad_enabled():
            return None, *ctx.by_kernels(saved, grads, needed)
        values = ctx.plain(*inputs)
        values = (values,) if isinstance(values, Tensor) else values
        used = [(one, grad) for one, grad in zip(values, grads, strict=True) if grad is not None]
        wanted = [place for place, is_needed in enumerate(needed) if is_needed]
        found = torch.autograd.grad(
            [one for one, _ in used],
            [inputs[place] for place in wanted],
            [grad.to(one.dtype) for one, grad in used],
            create_graph=True,
            allow_unused=True,
        )
        results: list[Tensor | None] = [None] * len(needed)
        for place, one in zip(wanted, found, strict=True):
            results[place] = one
        return None, *results


def with_gradient(
    value: Tensor, logits: Tensor, gradient: Tensor, again: Callable[[], Tensor], plain: Any
) -> Tensor:
    """Return a value whose gradient was computed with it.

    Args:
        value: () or (N,), of these logits.
        logits: (N, C).
        gradient: (N, C), that of each row's value or of the one for all.
        again: makes the gradient again, for a second pass through a retained graph.
        plain: the value as a differentiable function of the logits.
    """
    ready = [gradient]

    def backward(_: Any, grads: Any, __: Any) -> tuple[Tensor]:
        found, (upstream,) = ready.pop() if ready else again(), grads
        return (found.mul_(upstream[:, None] if upstream.dim() else upstream),)

    (found,) = with_gradients((value,), (logits,), backward, plain)
    return found
