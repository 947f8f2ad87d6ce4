"""The probabilities of every member of an ensemble on prepared rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor, nn

    from hierlearn.links import HeadOutput
    from hierlearn.training.rows import Rows

FEW = 8  # rows at a time, so that many classes need little memory


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
    was_training = network.training
    network.eval()
    parts: list[Tensor] = []  # each (M, n, C)
    for begin in range(0, len(rows), batch):
        index = torch.arange(begin, min(begin + batch, len(rows)), device=rows.device)
        p = read(network(rows.batch(index)[0])).probabilities
        parts.append(p if p.dim() == 3 else p[None])
    network.train(was_training)
    return list(torch.cat(parts, dim=1)) if parts else []


@torch.no_grad()
def non_finite_member(
    network: nn.Module, rows: Rows, read: Callable[[Any], HeadOutput], most: int = 64
) -> int | None:
    """Return the first member whose probabilities on the first rows are not finite, if any.

    The arguments are those of ``member_probabilities``; ``most`` is the number of rows.
    """
    index = torch.arange(min(most, len(rows)), device=rows.device)
    was_training = network.training
    network.eval()
    wrong: set[int] = set()
    for part in torch.split(index, FEW):
        p = read(network(rows.take(part))).probabilities
        for member, one in enumerate(p if p.dim() == 3 else p[None]):
            if not bool(one.isfinite().all()):
                wrong.add(member)
    network.train(was_training)
    return min(wrong, default=None)
