"""What a network gives for prepared rows: the one loop over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from hierlearn.links import HeadOutput
    from hierlearn.training.rows import Rows

FEW = 8  # rows at a time, so that many classes need little memory


@torch.no_grad()
def network_outputs(
    network: nn.Module, rows: Rows, batch: int, most: int | None = None
) -> Iterator[Any]:
    """Yield what a network gives in evaluation mode for rows in their order, batch by batch.

    Args:
        network: a network or an ensemble.
        rows: the rows.
        batch: how many rows at a time.
        most: only the first so many rows.
    """
    was_training = network.training
    network.eval()
    try:
        index = torch.arange(min(len(rows), most or len(rows)), device=rows.device)
        for part in torch.split(index, batch) if len(index) else ():
            yield network(rows.take(part))
    finally:
        network.train(was_training)


@torch.no_grad()
def member_probabilities(
    network: nn.Module, rows: Rows, read: Callable[[Any], HeadOutput], batch: int = 4096
) -> list[Tensor]:
    """Return (N, C) probabilities of every member on some rows.

    Args:
        network: a network or an ensemble.
        rows: the rows.
        read: turns what the network returns into one output.
        batch: how many rows at a time.
    """
    found = (read(one).probabilities for one in network_outputs(network, rows, batch))
    parts = [p if p.dim() == 3 else p[None] for p in found]  # each (M, n, C)
    return list(torch.cat(parts, dim=1)) if parts else []


@torch.no_grad()
def non_finite_member(
    network: nn.Module, rows: Rows, read: Callable[[Any], HeadOutput], most: int = 64
) -> int | None:
    """Return the first member whose probabilities on the first rows are not finite, if any.

    The arguments are those of ``member_probabilities``; ``most`` is the number of rows.
    """
    wrong: set[int] = set()
    for found in network_outputs(network, rows, FEW, most):
        p = read(found).probabilities
        for member, one in enumerate(p if p.dim() == 3 else p[None]):
            if not bool(one.isfinite().all()):
                wrong.add(member)
    return min(wrong, default=None)
