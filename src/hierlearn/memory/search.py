"""Exact search of the nearest rows of a memory.

Only the order matters until the end, so a block of queries a and rows b needs one matmul:

    squared, euclidean   |b|^2 - 2 a b      (|a|^2 is the same for every row)
    cosine               -a b / |b|

Most scores are worse than the k-th best so far. They are dropped in groups: a group of
``GROUP`` rows is looked at only if its smallest score is below that threshold. A block
holds runs of ``RUN`` rows from all over the memory, so rows that are sorted by class do not
fool the threshold.
At the end the distances of the rows that were found are computed again from differences, since
|a|^2 + |b|^2 - 2 a b cancels where rows nearly coincide.

``SPARE`` more rows than asked for are kept until then; where these are so near that rounding may
have confused them with others, the query is settled by a second look (see ``ties``).

Memory is bounded: no n x N matrix exists, whatever the sizes. Of rows that tie at rank k, such as
more than k identical ones, a random choice is found: the same each time, and the same where the
rows are divided into shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn.functional import normalize

from hierlearn.errors import HierlearnError
from hierlearn.memory.distance import distances_of, find_distance
from hierlearn.memory.ties import as_squared, best_of, is_unsure, rounding_of, settle

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 16  # rows that are dropped together
RUN = 64  # consecutive rows, a multiple of GROUP; single rows would be slow to read
SPARE = 8  # rows beyond k that are kept until the distances are computed again


class Blocks(NamedTuple):
    """How much is computed at once."""

    queries: int  # of one matmul
    rows: int  # of one matmul, a multiple of GROUP
    kept: int  # scores that are kept for queries that pass over the memory together
    gathered: int  # numbers of the rows whose distances are computed again
    halves: bool = False  # whether float32 queries meet float16 rows as two float16 parts


CPU = Blocks(queries=512, rows=4096, kept=1 << 22, gathered=1 << 20)
GPU = Blocks(queries=1024, rows=131072, kept=1 << 24, gathered=1 << 24, halves=True)


def dense_distances(
    queries: Tensor, embeddings: Tensor, k: int, distance: str = "squared"
) -> Tensor:
    """Return (..., n, N) the distances to all rows, infinite beyond the k-th nearest.

    A few operators that torch.onnx.export and torch.compile can trace, for small memories. Rows
    that tie at rank k all stay.
    """
    if distance != "cosine":  # distances do not change with the origin; a near one is accurate
        origin = embeddings.mean(-2, keepdim=True)
        queries, embeddings = queries - origin, embeddings - origin
    found = find_distance(distance)(queries, embeddings)
    nearest_ones = found.topk(min(k, embeddings.shape[-2]), dim=-1, largest=False).values
    return found.masked_fill(found > nearest_ones.amax(-1, keepdim=True), torch.inf)


@torch.no_grad()
def nearest(
    queries: Tensor,
    embeddings: Tensor,
    k: int,
    distance: str = "squared",
    *,
    first: int = 0,
    blocks: Blocks | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k nearest rows of a memory, exactly and without gradient.

    Args:
        queries: (n, D), or (M, n, D) for the members of an ensemble.
        embeddings: (N, D) or (M, N, D), on the device of the queries; may be of half precision,
            and is then converted block by block. Finite, as are the queries; a query that is not
            gets distances that are NaN.
        k: How many rows; all N, sorted, if there are no more.
        distance: A name of ``DISTANCES``.
        first: The number of the first row, where the embeddings are a part of a memory.
        blocks: How much is computed at once; chosen by device by default.

    Returns:
        (..., n, k) distances, ascending, in float32 (float64 if the queries are), and (..., n, k)
        int64 row numbers; rows that are equally near come by their numbers.
    """
    find_distance(distance)
    _check(queries, embeddings, k)
    blocks = blocks or (CPU if queries.device.type == "cpu" else GPU)
    dtype = torch.float64 if queries.dtype == torch.float64 else torch.float32
    k = min(k, embeddings.shape[-2])
    if embeddings.dim() == 2:
        flat = queries.flatten(0, -2).to(dtype)
        values, rows = _search(flat, embeddings, k, distance, blocks, first)
        shape = (*queries.shape[:-1], k)
        return values.view(shape), rows.view(shape)
    members = queries if queries.dim() == 3 else queries.expand(len(embeddings), -1, -1)
    found = [
        _search(one.to(dtype), memory, k, distance, blocks, first)
        for one, memory in zip(members, embeddings, strict=True)
    ]
    return torch.stack([one for one, _ in found]), torch.stack([one for _, one in found])


@torch.library.custom_op("hierlearn::nearest", mutates_args=())
def nearest_operator(
    queries: torch.Tensor, embeddings: torch.Tensor, k: int, distance: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``nearest`` does, as one operator of a compiled graph."""
    return nearest(queries, embeddings, k, distance)


@nearest_operator.register_fake
def _(
    queries: torch.Tensor, embeddings: torch.Tensor, k: int, distance: str
) -> tuple[torch.Tensor, torch.Tensor]:
    del distance
    dtype = torch.float64 if queries.dtype == torch.float64 else torch.float32
    members = embeddings.shape[:1] if embeddings.dim() == 3 else queries.shape[:-2]
    shape = (*members, queries.shape[-2], min(k, embeddings.shape[-2]))
    return queries.new_empty(shape, dtype=dtype), queries.new_empty(shape, dtype=torch.int64)


def _check(queries: Tensor, embeddings: Tensor, k: int) -> None:
    both = f"queries {tuple(queries.shape)} and embeddings {tuple(embeddings.shape)}"
    if {queries.dim(), embeddings.dim()} - {2, 3}:
        raise HierlearnError(f"{both} must be (n, D) or (M, n, D), and (N, D) or (M, N, D)")
    if queries.shape[-1] != embeddings.shape[-1]:
        raise HierlearnError(f"{both} must have equally many columns")
    if queries.dim() == embeddings.dim() == 3 and len(queries) != len(embeddings):
        raise HierlearnError(f"{both} must have equally many members")
    if queries.device != embeddings.device:
        raise HierlearnError(
            f"queries on {queries.device} and embeddings on {embeddings.device} must be on one "
            "device; move one of them with .to()"
        )
    if k < 1:
        raise HierlearnError(f"k is {k}, but must be at least 1")


def _search(
    queries: Tensor, embeddings: Tensor, k: int, distance: str, blocks: Blocks, first: int
) -> tuple[Tensor, Tensor]:
    """Search one memory (N, D) for queries (n, D)."""
    if not k or not len(queries):  # an empty memory, or nobody asks
        return queries.new_empty(len(queries), k), queries.new_empty(
            len(queries), k, dtype=torch.int64
        )
    size = max(1, blocks.kept // _room(k + SPARE))
    parts = [
        _pass_over(part, embeddings, k, distance, blocks, first)
        for part in torch.split(queries, size)
    ]
    return torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])


def _pass_over(
    queries: Tensor, embeddings: Tensor, k: int, distance: str, blocks: Blocks, number: int
) -> tuple[Tensor, Tensor]:
    """Pass over the memory once, for queries that fit one state; rows count from a number."""
    is_cosine = distance == "cosine"
    total, width = embeddings.shape
    runs = -(-total // RUN)
    step = -(-runs // max(1, blocks.rows // RUN))
    padded = -(-runs // step) * RUN
    rows = queries.new_zeros(padded, width)
    bias = queries.new_full((padded,), torch.inf)  # so that the rows that pad are never chosen
    if is_cosine:
        origin = queries.new_zeros(width)
        factors = -normalize(queries, dim=-1)
    else:  # distances do not change with the origin; a near one keeps the scores accurate
        origin = embeddings[:: -(-total // 1024)].to(queries.dtype).mean(0)
        factors = -2 * (queries - origin)
    keep = min(k + SPARE, total)
    states = [_Best(len(part), keep, queries) for part in torch.split(queries, blocks.queries)]
    halved = None
    if blocks.halves and not is_cosine:
        halved, factors = _halves(factors, embeddings, padded)
    size = min(blocks.queries, len(queries)) * padded
    scores = queries.new_empty(size if halved is None else 0)
    for first in range(step):
        count = _read(embeddings, first, step, rows)
        if halved is not None:  # as stored: bias takes the shift of the origin
            for side in torch.split(halved, width, dim=1):
                side[:count].copy_(rows[:count])
        rows[:count].sub_(origin)
        bias[count:] = torch.inf
        if is_cosine:
            normalize(rows[:count], dim=-1, out=rows[:count])
            bias[:count] = 0.0
        else:
            torch.linalg.vector_norm(rows[:count], dim=1, out=bias[:count]).square_()
        for part, state in zip(torch.split(factors, blocks.queries), states, strict=True):
            if halved is None:
                score = scores[: len(part) * padded].view(len(part), padded)
                torch.mm(part, rows.t(), out=score)
            else:
                score = _product_of_halves(part, halved)
            state.add(score.add_(bias), first, step)
    found = torch.cat([state.rows() for state in states])
    found = found.clamp_max(total - 1)  # where rows are not finite, some that pad were found
    kept = distances_of(queries, embeddings, found, distance, blocks.gathered)
    values, found = best_of(kept, found + number, k)
    if keep > k:
        far = origin if halved is None else torch.zeros_like(origin)  # scores of rows as stored
        rounding = rounding_of(queries, values[:, -1], far, distance)
        some = is_unsure(values[:, -1], kept.amax(1), rounding, distance).nonzero()[:, 0]
        if len(some):
            most = as_squared(values[some, -1], distance) + 2 * rounding[some]
            values[some], found[some] = settle(
                queries[some], embeddings, k, most, origin, distance, number
            )
    return values, found


def _halves(factors: Tensor, embeddings: Tensor, padded: int) -> tuple[Tensor | None, Tensor]:
    """Return room for rows twice, and factors as two float16 parts; None where that is not exact.

    A float32 number is the sum of two float16 numbers up to 2^-22 of it, and a product of float16
    numbers is exact in float32. So one matmul of tensor cores over both parts gives what a float32
    matmul does, several times faster.
    """
    high = factors.half()
    stored = embeddings.dtype == torch.float16 and factors.dtype == torch.float32
    if not stored or not bool(high.isfinite().all()):
        return None, factors
    low = (factors - high).half()
    rows = embeddings.new_zeros(padded, 2 * embeddings.shape[1])
    return rows, torch.cat([high, low], dim=1)


def _product_of_halves(factors: Tensor, rows: Tensor) -> Tensor:
    """Return the float32 product of float16 matrices (n, 2 D) and (B, 2 D)."""
    if factors.device.type == "cuda":
        return torch.mm(factors, rows.t(), out_dtype=torch.float32)
    return factors.float() @ rows.float().t()


def _room(keep: int) -> int:
    """Return how many scores a query holds before they are sorted out."""
    return 4 * keep + 256


def _read(embeddings: Tensor, first: int, step: int, out: Tensor) -> int:
    """Copy every step-th run of rows, from the first, and return how many rows they are."""
    whole = len(embeddings) // RUN
    runs = torch.unflatten(embeddings[: whole * RUN], 0, (whole, RUN))[first::step]
    count = len(runs) * RUN
    torch.unflatten(out[:count], 0, (len(runs), RUN)).copy_(runs)
    rest = embeddings[whole * RUN :]
    if len(rest) and whole % step == first:
        out[count : count + len(rest)].copy_(rest)
        count += len(rest)
    return count


def _numbers(columns: Tensor, first: int, step: int) -> Tensor:
    """Return the numbers of the rows that are these columns of a block."""
    return (columns // RUN * step + first) * RUN + columns % RUN


class _Best:
    """The best scores so far of some queries, and room for more before they are sorted out."""

    def __init__(self, queries: int, keep: int, like: Tensor) -> None:
        self.keep = keep
        self.room = _room(keep)
        self.scores = like.new_full((queries, self.room), torch.inf)  # (n, room)
        self.numbers = like.new_zeros((queries, self.room), dtype=torch.int64)  # (n, room)
        self.used = like.new_zeros(queries, dtype=torch.int64)  # (n,) of the room
        self.threshold = like.new_full((queries,), torch.inf)  # (n,) the keep-th best score so far
        self.is_empty = True
        self.is_sorted_out = True  # whether nothing but the best is held

    def add(self, scores: Tensor, first: int, step: int) -> None:
        """Take up the scores (n, B) of every step-th run of rows, from the first."""
        if self.is_empty or not self._add_few(scores, first, step):
            self._add_all(scores, first, step)

    def rows(self) -> Tensor:
        """Return (n, keep) the numbers of the best rows."""
        if not self.is_sorted_out:
            self._sort_out()
        return self.numbers[:, : self.keep]

    def _add_few(self, scores: Tensor, first: int, step: int) -> bool:
        """Take up the scores below the threshold, unless they are too many."""
        queries, columns = scores.shape
        stride = columns // GROUP  # a group is every stride-th column: the minimum vectorizes
        groups = scores.view(queries, GROUP, stride)
        least = groups.amin(1)
        query, group = (least < self.threshold[:, None]).nonzero(as_tuple=True)
        if 4 * len(query) > 3 * least.numel():
            return False
        values = groups.transpose(1, 2)[query, group]  # (groups, GROUP)
        below = (values < self.threshold[query][:, None]).view(-1).nonzero()[:, 0]
        hit = below // GROUP
        query = query[hit]  # ascending
        counts = torch.bincount(query, minlength=queries)
        if int((self.used + counts).amax()) > self.room:
            if int(counts.amax()) > self.room - self.keep:
                return False
            self._sort_out()
        starts = self.used + counts - counts.cumsum(0)
        place = query * self.room + starts[query]
        place += torch.arange(len(place), device=place.device)
        column = group[hit] + (below % GROUP) * stride
        self.scores.view(-1)[place] = values.view(-1)[below]
        self.numbers.view(-1)[place] = _numbers(column, first, step)
        self.used += counts
        self.is_sorted_out = False
        return True

    def _add_all(self, scores: Tensor, first: int, step: int) -> None:
        """Take up the best of a whole block."""
        values, columns = scores.topk(min(self.keep, scores.shape[1]), largest=False, sorted=False)
        if not self.is_sorted_out:
            self._sort_out()
        begin = 0 if self.is_empty else self.keep
        end = begin + values.shape[1]
        self.scores[:, begin:end] = values
        self.numbers[:, begin:end] = _numbers(columns, first, step)
        self.used.fill_(end)
        self.is_empty, self.is_sorted_out = False, end == self.keep
        if self.is_sorted_out:
            self.threshold = values.amax(1)
        else:
            self._sort_out(max(end, self.keep))

    def _sort_out(self, used: int | None = None) -> None:
        """Keep the best only, and lower the threshold.

        Args:
            used: how much of the room is used by every query; by default all of it may be.
        """
        held = self.scores[:, :used]
        values, places = held.topk(self.keep, largest=False, sorted=False)
        numbers = self.numbers.gather(1, places)
        held.fill_(torch.inf)
        self.scores[:, : self.keep] = values
        self.numbers[:, : self.keep] = numbers
        self.threshold = values.amax(1)
        self.used.fill_(self.keep)
        self.is_sorted_out = True
