"""Training a NeighborHead: what a step compares, and the best scale of a memory.

The training rows that a step compares its batch with come in two forms:

    Candidates      their targets, and which of them are the row itself, as matrices
    SetCandidates   the same as numbers of label sets, and keys of rows

What a step holds of the second grows with rows and candidates, not with rows times candidates or
candidates times classes; the Triton kernels of the head read it as it is.

Where few of many classes are positive, sums over the labels of candidates, p = w Y and
q = sum(w) - p, are sparse products, at a thousandth of the cost. They are summed in double
precision: q is a difference.

The best scale of a memory is that under which its own rows are most probable, each left out once:

    L(scale) = mean over rows i of -[y_i log p'(x_i) + (1 - y_i) log(1 - p'(x_i))], over the classes

with p' the smoothed answer of the other rows (see head.py). Distances are searched once, and a few
dozen scales are tried. Rows with the id of row i are left out with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from hierlearn.hierarchy.propagate import log_zero
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.kernels import choose
from hierlearn.memory.store import mixture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from hierlearn.memory.head import NeighborHead
    from hierlearn.memory.store import LabelSets

    Pair = tuple[Tensor, Tensor]

LEAST_KNOWN = 1e-20  # weight of known labels in training; the gradient of a smaller one overflows


def log_weights(candidates: Candidates | SetCandidates, dtype: torch.dtype) -> Tensor | None:
    """Return (K,) or (M, K) log weights, minus infinity for a weight of 0; None for all alike."""
    if candidates.weight is None:
        return None
    weight = candidates.weight.to(dtype)
    return torch.where(weight > 0, torch.where(weight > 0, weight, 1.0).log(), -torch.inf)


def compare(
    head: NeighborHead,
    queries: Tensor,
    others: Tensor,
    candidates: Candidates | SetCandidates,
    log_weight: Tensor | None,
    scale: Tensor | float,
) -> Pair:
    """Return log p and log(1 - p) of a training step.

    Args:
        head: whose step it is.
        queries: (n, D) or (M, n, D) embeddings of the batch.
        others: (K, D) or (M, K, D) embeddings of the candidates.
        candidates: their labels, and which of them are the row itself.
        log_weight: (K,) or (M, K) their log weights.
        scale: what distances are divided by.
    """
    logits = -head.distances(queries, others, candidates) / scale
    excluded = candidates.excluded
    if log_weight is not None:
        excluded = excluded | log_weight.isinf()[..., None, :]
        logits = logits + log_weight[..., None, :]
    logits = logits.masked_fill(excluded, log_zero(logits.dtype))
    weights = logits.softmax(-1).masked_fill(excluded, 0.0)
    if candidates.mask is None and is_sparse(candidates.targets):
        p, q = sparse_mixture(weights, candidates.targets)
    else:
        p, q = mixture(weights, candidates.targets, candidates.mask)
    p, q = head.normalized(p, q, partial=candidates.mask is not None, least=LEAST_KNOWN)
    e = head.smoothing
    return ((1 - 2 * e) * p + e).log(), ((1 - 2 * e) * q + e).log()


def compare_by_kernels(
    head: NeighborHead, queries: Tensor, others: Tensor, candidates: SetCandidates
) -> Pair:
    """Return the same by Triton kernels, member by member."""
    if queries.dim() == 3:
        pairs = [
            _compare_member(head, own, rows, candidates.member(number), number)
            for number, (own, rows) in enumerate(zip(queries, others, strict=True))
        ]
        return torch.stack([p for p, _ in pairs]), torch.stack([q for _, q in pairs])
    return _compare_member(head, queries, others, candidates, 0)


def kernels_work(distance: str, device: torch.device) -> bool:
    """Whether the kernels of a distance work on a device."""
    name = f"the neighbor head with {distance!r} distances"
    return choose.passes(name, device, partial(try_kernels, distance))


def try_kernels(distance: str, device: torch.device) -> Iterator[Pair]:
    """Yield what the kernels compute for a distance, with what they must."""
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.memory.head import NeighborHead
    from hierlearn.memory.store import LabelSets

    hierarchy = Hierarchy.from_parents(choose.example_parents())
    labels = LabelSets.from_labels(
        Labels([[one] for one in choose.example_classes()], hierarchy, numbers=True)
    )
    keys = torch.arange(choose.ROWS, device=device)
    sets = torch.from_numpy(labels.of_row).to(device)
    candidates = SetCandidates(labels, sets, keys, keys)
    head = NeighborHead(hierarchy, nn.Identity(), distance=distance)
    yield from choose.compare_functions(
        lambda x: compare_by_kernels(head, x, x.roll(1, dims=1), candidates),
        lambda x: compare_plainly(head, x, x.roll(1, dims=1), candidates),
        choose.example_inputs(device, columns=24),
    )


def compare_plainly(
    head: NeighborHead, queries: Tensor, others: Tensor, candidates: Candidates | SetCandidates
) -> Pair:
    """Return log p and log(1 - p) of a training step without kernels."""
    weight = log_weights(candidates, queries.dtype)
    return compare(head, queries, others, candidates, weight, head.scale())


def _compare_member(
    head: NeighborHead, queries: Tensor, others: Tensor, candidates: SetCandidates, member: int
) -> Pair:
    from hierlearn.kernels.neighbor_batch import Comparison
    from hierlearn.kernels.neighbor_head import neighbor_pair, products

    def plain(q: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor) -> Pair:
        return compare(head, q, x, candidates, weight, scale)

    scale = head.scale()
    if not isinstance(scale, torch.Tensor):
        scale = torch.full((), scale, device=queries.device)
    elif scale.dim():
        scale = scale[member, 0, 0]
    if head.distance == "cosine":
        queries, others = normalize(queries, dim=-1), normalize(others, dim=-1)
    compared = Comparison(
        candidates.labels.table,
        candidates.sets,
        candidates.row_keys,
        candidates.keys,
        head.distance,
        head.smoothing,
        products(),
    )
    weight = log_weights(candidates, queries.dtype)
    return neighbor_pair(queries, others, weight, scale, compared, plain)


# ---------------------------------------- candidates


@dataclass(frozen=True)
class Candidates:
    """The candidates of a step, K per member.

    Attributes:
        targets: (K, C) or (M, K, C) bool, closed.
        excluded: (n, K) or (M, n, K) bool, which candidates are the row itself.
        mask: which targets are known; None for all.
        weight: (K,) or (M, K) how much each candidate counts, 0 for not at all; None for all alike.
        are_batch: whether the candidates are the rows of the batch, encoded once.
    """

    targets: Tensor
    excluded: Tensor
    mask: Tensor | None = None
    weight: Tensor | None = None
    are_batch: bool = False

    @property
    def count(self) -> int:
        """K."""
        return self.targets.shape[-2]

    def member(self, number: int) -> Candidates:
        """Return the candidates of one member."""
        return Candidates(
            self.targets[number],
            self.excluded[number],
            None if self.mask is None else self.mask[number],
            None if self.weight is None else self.weight[number],
            self.are_batch,
        )


@dataclass(frozen=True)
class SetCandidates:
    """Candidates whose labels are all known, K per member, as a head reads ``Candidates``.

    Attributes:
        labels: the label sets.
        sets: (K,) or (M, K) the number of the set of each candidate.
        row_keys: (n,) or (M, n) integers below 2^31, the key of each row of the batch.
        keys: (K,) or (M, K) integers; a candidate with the key of a row is the row itself.
        weight: (K,) or (M, K) how much each candidate counts, 0 for not at all; None for all alike.
    """

    labels: LabelSets
    sets: Tensor
    row_keys: Tensor
    keys: Tensor
    weight: Tensor | None = None
    mask = None
    are_batch = False

    @property
    def count(self) -> int:
        """K."""
        return self.sets.shape[-1]

    @cached_property
    def targets(self) -> Tensor:
        """(K, C) or (M, K, C) bool, closed."""
        return self.labels.targets(self.sets)

    @property
    def excluded(self) -> Tensor:
        """(n, K) or (M, n, K) bool, which candidates are the row itself."""
        return self.row_keys[..., :, None] == self.keys[..., None, :]

    def member(self, number: int) -> SetCandidates:
        """Return the candidates of one member."""
        weight = None if self.weight is None else self.weight[number]
        parts = {name: getattr(self, name)[number] for name in ("sets", "row_keys", "keys")}
        return replace(self, **parts, weight=weight)


# ---------------------------------------- sparse mixture

LARGE = 1 << 24  # entries of targets from which the sparse sums are worthwhile
DENSITY = 0.02  # of positive entries, at most


class SparseMatmul(torch.autograd.Function):
    """A sparse matrix times a dense one, differentiable in the dense one any number of times."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
        """Return matrix @ dense."""
        ctx.pair = (matrix, transposed)
        found: Tensor = torch.sparse.mm(matrix, dense)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        """Return the gradient of the dense matrix."""
        matrix, transposed = ctx.pair
        return None, None, SparseMatmul.apply(transposed, matrix, grad)  # type: ignore[no-untyped-call]


def is_sparse(targets: Tensor) -> bool:
    """Whether the sparse sums are worthwhile: large targets on the CPU, few of them positive."""
    if targets.numel() < LARGE or targets.is_cuda or torch.compiler.is_compiling():
        return False
    return int(targets.count_nonzero()) <= DENSITY * targets.numel()


def sparse_mixture(weights: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum of w y and sum of w (1 - y).

    Args:
        weights: (n, K) or (M, n, K).
        targets: (K, C) or (M, K, C) bool.
    """
    if targets.dim() == 3:
        parts = [sparse_mixture(w, y) for w, y in zip(weights, targets, strict=True)]
        return torch.stack([p for p, _ in parts]), torch.stack([q for _, q in parts])
    matrix, transposed = sparse_targets(targets, torch.float64)
    double = weights.double()
    p: Tensor = SparseMatmul.apply(matrix, transposed, double.mT.contiguous()).mT  # type: ignore[no-untyped-call]
    q = (double.sum(-1, keepdim=True) - p).clamp_min(0.0)
    return p.to(weights.dtype).contiguous(), q.to(weights.dtype).contiguous()


def sparse_targets(targets: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return (K, C) targets as sparse matrices of ones: (C, K), and (K, C)."""
    count, classes = targets.shape
    places = targets.nonzero().T.contiguous()  # (2, nonzero), by candidate
    by_class = places[:, places[1].argsort(stable=True)].flip(0).contiguous()
    ones = torch.ones(places.shape[1], dtype=dtype)
    matrix = torch.sparse_coo_tensor(
        by_class, ones, (classes, count), is_coalesced=True, check_invariants=False
    )
    transposed = torch.sparse_coo_tensor(
        places, ones, (count, classes), is_coalesced=True, check_invariants=False
    )
    return matrix, transposed


# ---------------------------------------- leave one out

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
