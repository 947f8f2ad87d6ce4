"""Which of equally near rows are found: the same ones, however the rows are divided.

The k nearest rows of a query are the first k by distance, then by ``priority``, a hash of the row
number: where rows are sorted by class, the first class does not fill all places. They are returned
by distance, then by row number. So the k nearest of all rows are the k nearest among the k nearest
of every shard.

A search by scores cannot tell rows apart whose distances differ by rounding. Where the rows that it
kept beyond the k-th are as near as that, ``settle`` looks at all rows that may be nearer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

from hierlearn.memory.distance import distances_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

ROUNDING = 2.0**-19  # of squared norms: what the scores of a search may be off
PAIRS = 1 << 21  # of queries and rows that are held before they are sorted out
FIRST, SECOND = -7046029254386353131, -4658895280553007687  # odd, as of SplitMix64


def priority(rows: Tensor) -> Tensor:
    """Return a hash of row numbers, by which equally near rows are chosen."""
    mixed = rows * FIRST
    mixed = (mixed ^ (mixed >> 32)) * SECOND
    return mixed ^ (mixed >> 29)


def best_of(values: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k nearest of some rows, by distance and then by row number.

    Args:
        values: (..., m) distances; infinite ones do not count while there are others.
        rows: (..., m) row numbers.
        k: how many, at most m.
    """
    ordered, order = values.sort(dim=-1, stable=True)
    found = rows.gather(-1, order)
    has_ties = (ordered[..., 1:] == ordered[..., :-1]).any(-1)
    if bool(has_ties.any()):
        tied, numbers = ordered[has_ties], found[has_ties]
        tied, numbers = _by(tied, numbers, priority(numbers), k)
        tied, numbers = _by(tied, numbers, numbers, k)
        ordered, found = ordered[..., :k].contiguous(), found[..., :k].contiguous()
        ordered[has_ties], found[has_ties] = tied, numbers
    return ordered[..., :k].contiguous(), found[..., :k].contiguous()


def _by(values: Tensor, rows: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the first k by distance and then by keys."""
    order = keys.argsort(dim=-1, stable=True)
    values, rows = values.gather(-1, order), rows.gather(-1, order)
    values, order = values.sort(dim=-1, stable=True)
    return values[..., :k], rows.gather(-1, order)[..., :k]


def merge(found: Sequence[tuple[Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """Return the k nearest of what several searches found.

    Args:
        found: the distances and row numbers of each, (..., n, k) or fewer columns.
        k: how many; all where there are fewer.
    """
    values, rows = (torch.cat([one[side] for one in found], dim=-1) for side in (0, 1))
    return best_of(values, rows, min(k, values.shape[-1]))


# ---------------------------------------- rows that scores confuse


def rounding_of(queries: Tensor, kth: Tensor, origin: Tensor, distance: str) -> Tensor:
    """Return (n,) by how much the scores of rows near the k-th may be off, as squared distances.

    Args:
        queries: (n, D).
        kth: (n,) the distance of the k-th row.
        origin: (D,) from which scores are computed.
        distance: a name of DISTANCES.
    """
    if distance == "cosine":
        return torch.full_like(kth, 2 * ROUNDING)
    reach = kth if distance == "euclidean" else kth.clamp_min(0).sqrt()
    length = torch.linalg.vector_norm(queries - origin, dim=1)
    rounding: Tensor = ROUNDING * (length.square() + (length + reach).square())
    return rounding


def is_unsure(kth: Tensor, last: Tensor, rounding: Tensor, distance: str) -> Tensor:
    """Return (n,) whether a row that was not kept may be nearer than the k-th.

    Args:
        kth: (n,) the distance of the k-th row.
        last: (n,) that of the farthest row that was kept.
        rounding: (n,) of ``rounding_of``.
        distance: a name of DISTANCES.
    """
    return as_squared(last, distance) - as_squared(kth, distance) <= rounding


def as_squared(values: Tensor, distance: str) -> Tensor:
    """Return distances as scores count them: Euclidean ones are squared."""
    return values.square() if distance == "euclidean" else values


def settle(
    queries: Tensor,
    embeddings: Tensor,
    k: int,
    most: Tensor,
    origin: Tensor,
    distance: str,
    first: int,
) -> tuple[Tensor, Tensor]:
    """Return the k nearest rows of queries whose scores left them open.

    Args:
        queries: (n, D).
        embeddings: (N, D).
        k: how many rows.
        most: (n,) the squared distance, or the cosine one, up to which scores are looked at.
        origin: (D,) from which scores are computed.
        distance: a name of DISTANCES.
        first: the number of the first row.
    """
    is_cosine = distance == "cosine"
    shifted = normalize(queries, dim=-1) if is_cosine else queries - origin
    lengths = shifted.square().sum(1)
    least = 1 - most if is_cosine else -most
    eligible = first_of_equal_rows(embeddings, k, first)
    held: list[tuple[Tensor, Tensor, Tensor]] = []
    count = 0
    for numbers in torch.split(eligible, max(64, PAIRS // len(queries))):
        rows = embeddings[numbers].to(queries.dtype)
        rows = normalize(rows, dim=-1) if is_cosine else rows - origin
        scores = shifted @ rows.t()
        if not is_cosine:
            scores = (lengths[:, None] + rows.square().sum(1) - 2 * scores).neg_()
        query, column = (scores >= least[:, None]).nonzero(as_tuple=True)
        found = numbers[column]
        values = distances_of(queries[query], embeddings, found[:, None], distance)[:, 0]
        held.append((query, found, values))
        count += len(query)
        if count > PAIRS:
            held = [_first_of_each(*_joined(held), k, first)]
            count = len(held[0][0])
    query, found, values = _first_of_each(*_joined(held), k, first)
    if len(query) < k * len(queries):  # scores were off by more than that
        more = 1.01 * most + 1e-6
        return settle(queries, embeddings, k, more, origin, distance, first)
    shape = (len(queries), k)
    return best_of(values.view(shape), found.view(shape) + first, k)


def _joined(held: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    query, rows, values = (torch.cat([one[side] for one in held]) for side in (0, 1, 2))
    return query, rows, values


def _first_of_each(
    query: Tensor, rows: Tensor, values: Tensor, k: int, first: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pairs of the k nearest rows of every query, by query."""
    order = priority(rows + first).argsort(stable=True)
    order = order[values[order].argsort(stable=True)]
    order = order[query[order].argsort(stable=True)]
    ordered = query[order]
    place = torch.arange(len(order), device=order.device)
    place = place - torch.searchsorted(ordered, ordered)  # within the pairs of the query
    order = order[place < k]
    return query[order], rows[order], values[order]


def first_of_equal_rows(embeddings: Tensor, k: int, first: int) -> Tensor:
    """Return the rows that may be among the k nearest: of equal rows, k of them by priority."""
    total, width = embeddings.shape
    draw = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (width,), generator=draw).to(embeddings.device) | 1
    step = max(1, (1 << 24) // max(1, width))
    keys = []
    for part in torch.split(embeddings, step):
        bits = part.double().view(torch.int64)
        keys.append((bits * factors).sum(1))
    _, group = torch.unique(torch.cat(keys), return_inverse=True)
    numbers = torch.arange(total, device=embeddings.device)
    _, kept, _ = _first_of_each(group, numbers, torch.zeros_like(group), k, first)
    return kept.sort().values
