"""Exact search of the nearest rows of a memory.

    squared     |a - b|^2
    euclidean   |a - b|
    cosine      1 - a b / (|a| |b|)

Only the order matters until the end, so a block of queries a and rows b needs one matmul:

    squared, euclidean   |b|^2 - 2 a b      (|a|^2 is the same for every row)
    cosine               -a b / |b|

Most scores are worse than the k-th best so far. They are dropped in groups: a group of
``GROUP`` rows is looked at only if its smallest score is below that threshold. A block
holds runs of ``RUN`` rows from all over the memory, so rows that are sorted by class do not
fool the threshold.
At the end the distances of the rows that were found are computed again from differences, since
|a|^2 + |b|^2 - 2 a b cancels where rows nearly coincide. Memory is bounded: no n x N matrix exists,
whatever the sizes.

**Ties.** The k nearest rows of a query are the first k by distance, then by ``priority``, a hash of
the row number: where rows are sorted by class, the first class does not fill all places. They are
returned by distance, then by row number. Scores cannot tell rows apart whose distances differ by
rounding. So ``SPARE`` more rows than asked for are kept; where these are
as near as that, ``settle`` looks at all rows that may be nearer.

"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        values, rows = _search(flat, embeddings, k, distance, blocks)
        shape = (*queries.shape[:-1], k)
        return values.view(shape), rows.view(shape)
    members = queries if queries.dim() == 3 else queries.expand(len(embeddings), -1, -1)
    found = [
        _search(one.to(dtype), memory, k, distance, blocks)
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
    queries: Tensor, embeddings: Tensor, k: int, distance: str, blocks: Blocks
) -> tuple[Tensor, Tensor]:
    """Search one memory (N, D) for queries (n, D)."""
    if not k or not len(queries):  # an empty memory, or nobody asks
        return queries.new_empty(len(queries), k), queries.new_empty(
            len(queries), k, dtype=torch.int64
        )
    size = max(1, blocks.kept // _room(k + SPARE))
    parts = [
        _pass_over(part, embeddings, k, distance, blocks) for part in torch.split(queries, size)
    ]
    return torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])


def _pass_over(
    queries: Tensor, embeddings: Tensor, k: int, distance: str, blocks: Blocks
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
            elif part.device.type == "cuda":
                score = torch.mm(part, halved.t(), out_dtype=torch.float32)
            else:
                score = part.float() @ halved.float().t()
            state.add(score.add_(bias), first, step)
    found = torch.cat([state.rows() for state in states])
    found = found.clamp_max(total - 1)  # where rows are not finite, some that pad were found
    kept = distances_of(queries, embeddings, found, distance, blocks.gathered)
    values, found = best_of(kept, found, k)
    if keep > k:
        far = origin if halved is None else torch.zeros_like(origin)  # scores of rows as stored
        rounding = rounding_of(queries, values[:, -1], far, distance)
        # Where a row that was not kept may be nearer than the k-th.
        apart = as_squared(kept.amax(1), distance) - as_squared(values[:, -1], distance)
        some = (apart <= rounding).nonzero()[:, 0]
        if len(some):
            most = as_squared(values[some, -1], distance) + 2 * rounding[some]
            values[some], found[some] = settle(queries[some], embeddings, k, most, origin, distance)
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


# ---------------------------------------- distance

TINY = 1e-12  # below the square root of a distance, where its derivative would be infinite


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., n, m) the squared Euclidean distances of (..., n, D) and (..., m, D)."""
    inner = a @ b.transpose(-1, -2)
    lengths = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return (lengths - 2 * inner).clamp_min(0.0)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., n, m) one minus the cosines; 1 where a row is all 0."""
    a, b = (torch.nn.functional.normalize(one, dim=-1) for one in (a, b))
    return (1 - a @ b.transpose(-1, -2)).clamp_min(0.0)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": squared,
    "euclidean": lambda a, b: squared(a, b).clamp_min(TINY).sqrt(),
    "cosine": cosine,
}


def find_distance(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a distance by name."""
    if name not in DISTANCES:
        raise HierlearnError(unknown_name("distance", name, DISTANCES))
    return DISTANCES[name]


def distances_of(
    queries: Tensor, embeddings: Tensor, numbers: Tensor, distance: str, gathered: int = 1 << 20
) -> Tensor:
    """Return (n, k) the distances of queries to some rows, from differences.

    The distance of a query and a row is the same bit for bit, whatever else is computed with it.

    Args:
        queries: (n, D).
        embeddings: (N, D).
        numbers: (n, k) the numbers of the rows.
        distance: a name of DISTANCES.
        gathered: numbers of the rows that are held at once.
    """
    size = max(1, gathered // max(1, numbers.shape[1] * queries.shape[1]))
    out = queries.new_empty(numbers.shape)
    for query, number, result in zip(
        *(torch.split(one, size) for one in (queries, numbers, out)), strict=True
    ):
        rows = embeddings.index_select(0, number.reshape(-1)).to(queries.dtype)
        rows = rows.view(*number.shape, -1)  # (size, k, D)
        if distance == "cosine":
            rows = torch.nn.functional.normalize(rows, dim=-1)
            rows.mul_(torch.nn.functional.normalize(query, dim=-1)[:, None])
            result.copy_((1 - rows.sum(-1)).clamp_min(0.0))
            continue
        torch.linalg.vector_norm(rows.sub_(query[:, None]), dim=-1, out=result)
        if distance == "euclidean":
            result.clamp_min_(TINY**0.5)
        else:
            result.square_()
    return out


# ---------------------------------------- ties

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
) -> tuple[Tensor, Tensor]:
    """Return the k nearest rows of queries whose scores left them open.

    Args:
        queries: (n, D).
        embeddings: (N, D).
        k: how many rows.
        most: (n,) the squared distance, or the cosine one, up to which scores are looked at.
        origin: (D,) from which scores are computed.
        distance: a name of DISTANCES.
    """
    is_cosine = distance == "cosine"
    shifted = normalize(queries, dim=-1) if is_cosine else queries - origin
    lengths = shifted.square().sum(1)
    least = 1 - most if is_cosine else -most
    eligible = first_of_equal_rows(embeddings, k)
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
            held = [_first_of_each(*_joined(held), k)]
            count = len(held[0][0])
    query, found, values = _first_of_each(*_joined(held), k)
    if len(query) < k * len(queries):  # scores were off by more than that
        more = 1.01 * most + 1e-6
        return settle(queries, embeddings, k, more, origin, distance)
    shape = (len(queries), k)
    return best_of(values.view(shape), found.view(shape), k)


def _joined(held: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    query, rows, values = (torch.cat([one[side] for one in held]) for side in (0, 1, 2))
    return query, rows, values


def _first_of_each(
    query: Tensor, rows: Tensor, values: Tensor, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pairs of the k nearest rows of every query, by query."""
    order = priority(rows).argsort(stable=True)
    order = order[values[order].argsort(stable=True)]
    order = order[query[order].argsort(stable=True)]
    ordered = query[order]
    place = torch.arange(len(order), device=order.device)
    place = place - torch.searchsorted(ordered, ordered)  # within the pairs of the query
    order = order[place < k]
    return query[order], rows[order], values[order]


def first_of_equal_rows(embeddings: Tensor, k: int) -> Tensor:
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
    _, kept, _ = _first_of_each(group, numbers, torch.zeros_like(group), k)
    return kept.sort().values


# ---------------------------------------- scale


class Scale(nn.Module):
    """A positive number, or one per member.

    Args:
        value: the scale, or where learning begins.
        learned: whether it is a parameter.
    """

    log_scale: nn.Parameter | None

    def __init__(self, value: float, *, learned: bool = False) -> None:
        super().__init__()
        if not (value > 0 and math.isfinite(value)):
            raise HierlearnError(f"scale must be a number above 0, not {value}")
        self.value = float(value)
        self.log_scale = nn.Parameter(torch.tensor(math.log(value))) if learned else None

    @classmethod
    def stack(cls, scales: Sequence[Scale]) -> Scale:
        """Return the scales of all members."""
        new = cls(scales[0].value)
        learned = [one.log_scale.detach() for one in scales if one.log_scale is not None]
        if learned:
            new.log_scale = nn.Parameter(torch.stack(learned))
        return new

    def forward(self) -> Tensor | float:
        """Return the scale; (M, 1, 1) for the members of an ensemble."""
        if self.log_scale is None:
            return self.value
        found = self.log_scale.exp()
        return found[:, None, None] if found.dim() else found

    def extra_repr(self) -> str:
        """Show the value when the module is printed."""
        return f"{self.value:g}" + ", learned" * (self.log_scale is not None)
