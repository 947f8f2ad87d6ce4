"""Leave one out: the scale of a memory under which its own rows are most probable.

    L(scale) = mean over rows i of -[y_i log p'(x_i) + (1 - y_i) log(1 - p'(x_i))], over the classes

with p' the smoothed answer of the other rows (see head.py). Nothing is trained: distances are
searched once, and a few dozen scales are tried. Rows with the id of row i are left out with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.hierarchy.propagate import log_zero
from hierlearn.hierarchy.structure import row_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from hierlearn.memory.head import NeighborHead

MOST = 4096  # rows that are left out, one after another
REACH = 10  # the neighbor whose usual distance the scales are multiples of
COARSE = [2.0**power for power in range(-9, 4)]  # of that distance
FINE = [2.0 ** (power / 8) for power in range(-7, 8)]  # of the best of these


@dataclass(frozen=True)
class Others:
    """The nearest other rows of some rows of a memory.

    Attributes:
        rows: (n,) the numbers of the rows.
        distances: (n, k) ascending, infinite where the row itself would be.
        index: (n, k) the numbers of the other rows.
    """

    rows: Tensor
    distances: Tensor
    index: Tensor


@torch.no_grad()
def best_scale(head: NeighborHead, seed: int = 0) -> tuple[float, float | None]:
    """Return the best scale of a head with a filled memory, and its loss.

    The scale stays as it is, without a loss, where there are no other rows, or all are equal.

    Args:
        head: of a network alone, no ensemble.
        seed: of the choice of rows, where there are many.
    """
    now = float(head.scale())
    others = nearest_others(head, seed)
    finite = others.distances.isfinite()
    known = finite.any(dim=1)
    if not bool(known.any()):
        return now, None
    others = Others(others.rows[known], others.distances[known], others.index[known])
    place = (finite[known].cumsum(dim=1) >= REACH).int().argmax(dim=1)  # 0 where there are fewer
    last = finite[known].int().cumsum(dim=1).argmax(dim=1)
    reach = others.distances.gather(1, torch.where(place > 0, place, last)[:, None])
    usual = float(reach.median())
    if not usual > 0:
        return now, None
    found: dict[float, float] = {}
    for steps in (COARSE, FINE):
        center = min(found, key=found.__getitem__) if found else usual
        wanted = [center * step for step in steps]
        found |= dict(zip(wanted, losses(head, others, wanted), strict=True))
    best = min(found, key=found.__getitem__)
    return best, found[best]


def nearest_others(head: NeighborHead, seed: int = 0) -> Others:
    """Return the nearest rows of rows of a memory, without those of the same id."""
    embeddings, remembered = head.memory.held()
    total = len(remembered)
    _, keys = np.unique(np.asarray(remembered.ids).astype(str), return_inverse=True)
    most = int(np.bincount(keys).max())
    rows = torch.arange(total)
    if total > MOST:
        draw = torch.Generator().manual_seed(seed)
        rows = torch.randperm(total, generator=draw)[:MOST].sort().values
    rows = rows.to(embeddings.device)
    same = torch.from_numpy(keys).to(embeddings.device)
    distances, index = head.search(embeddings[rows].float(), min(head.neighbors + most, total))
    own = same[index] == same[rows][:, None]
    beyond = (~own).cumsum(dim=1) > head.neighbors
    return Others(rows, distances.masked_fill(own | beyond, torch.inf), index)


def losses(head: NeighborHead, others: Others, scales: Sequence[float]) -> list[float]:
    """Return the mean loss of rows that are answered by the others, for every scale."""
    sums = [0.0] * len(scales)
    count = 0.0
    for part, targets, mask, weight in batches(head, others):
        count += float(weight.sum())
        log_weights = head.memory.log_weights(part.index)
        for place, scale in enumerate(scales):
            logits = (-part.distances / scale).clamp_min(log_zero(part.distances.dtype))
            if log_weights is not None:
                logits = logits + log_weights
            weights = logits.softmax(-1).masked_fill(part.distances.isinf(), 0.0)
            p, q = head.memory.mix(weights, part.index)
            p, q = head.normalized(p, q, partial=head.memory.is_partial)
            e = head.smoothing
            terms = -torch.where(targets, (1 - 2 * e) * p + e, (1 - 2 * e) * q + e).log()
            if mask is not None:
                terms = terms * mask
            sums[place] += float((terms.mean(dim=1).double() * weight).sum())
    return [one / count for one in sums]


def batches(
    head: NeighborHead, others: Others
) -> Iterator[tuple[Others, Tensor, Tensor | None, Tensor]]:
    """Yield rows in batches with their targets, which of these are known, and their weights."""
    _, remembered = head.memory.held()
    labels, device = remembered.labels, others.distances.device
    width = max(len(remembered.hierarchy), others.index.shape[1])
    for rows in row_chunks(len(others.rows), width):
        numbers = others.rows[rows].cpu().numpy()
        sets = labels.of_row[numbers]
        targets = labels.sets.targets(sets).to(device)
        mask = labels.sets.mask(sets).to(device) if labels.is_partial else None
        weight = (
            np.ones(len(numbers)) if remembered.weights is None else remembered.weights[numbers]
        )
        part = Others(others.rows[rows], others.distances[rows], others.index[rows])
        yield part, targets, mask, torch.from_numpy(np.asarray(weight, dtype=np.float64)).to(device)
