"""The softmax link of a tree by CPU kernels, under autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels.rows import NO_GRADIENT, tree_of
from hierlearn.kernels.threads import on_threads
from hierlearn.kernels.tree_link import plain_gradient

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout

    Pair = tuple[Tensor, Tensor]


def softmax_pair(logits: Tensor, layout: TreeLayout, plain: Callable[[Tensor], Pair]) -> Pair:
    """Return log p and log(1 - p) of every class, of the shape of the logits.

    Args:
        logits: (N, C) or (M, N, C) float32.
        layout: the tree.
        plain: the same as a differentiable function: for gradients that are differentiated again,
            and for logits that are not finite.
    """
    flat = logits.flatten(0, -2)
    if not bool(torch.isfinite(flat.sum())):
        return plain(logits)
    found = _SoftmaxPair.apply(flat, layout, plain)  # type: ignore[no-untyped-call]
    return found[0].view(logits.shape), found[1].view(logits.shape)


class _SoftmaxPair(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, layout: TreeLayout, plain: Callable[[Tensor], Pair]
    ) -> Pair:
        from hierlearn.kernels.softmax_numba import link_forward

        x, tree = logits.detach().contiguous(), tree_of(layout)
        log_p, log_not_p = torch.empty_like(x), torch.empty_like(x)
        arrays = (x.numpy(), tree, log_p.numpy(), log_not_p.numpy())
        on_threads(lambda begin, end: link_forward(begin, end, *arrays), len(x), x.numel())
        ctx.save_for_backward(logits)
        ctx.tree, ctx.plain = tree, plain
        ctx.set_materialize_grads(False)
        return log_p, log_not_p

    @staticmethod
    def backward(
        ctx: Any, grad_p: Tensor | None, grad_not_p: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        from hierlearn.kernels.softmax_numba import link_backward

        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradient(ctx.plain, logits, grad_p, grad_not_p), None, None
        if grad_p is None and grad_not_p is None:
            return None, None, None
        x = logits.detach().contiguous()
        out = torch.empty_like(x)
        given = [
            NO_GRADIENT if grad is None else grad.detach().contiguous().numpy()
            for grad in (grad_p, grad_not_p)
        ]
        arrays = (x.numpy(), ctx.tree, *given, out.numpy())
        on_threads(lambda begin, end: link_backward(begin, end, *arrays), len(x), x.numel())
        return out, None, None
