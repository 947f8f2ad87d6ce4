"""A metric per class (Verma et al., 2012): distances depend on the labels of a remembered row.

    d(z, z_j) = sum over d of W_jd (z_d - z_jd)^2
    W_j = mean of w_c over the labels c of row j and their ancestors,   w_c = exp(10 a_c)

with a vector a_c per class, all 0 at the start: the plain distance. The factor lets weights learn
as much in the few steps of a memory as the encoder does.

They sum a matrix per class along the path of a class; here it is a diagonal on a learned embedding,
and a mean, since a sum would move rows with more labels away from everything. Written as

    sum of W_j z^2 - 2 z (W_j z_j) + W_j z_j^2

the distances of a batch are one matmul, of twice the width. A class that was never trained has the
weights of the start, and so does a row without labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.links import HeadOutput
from hierlearn.memory.compare import SparseMatmul, compare_plainly, sparse_targets
from hierlearn.memory.head import NeighborHead
from hierlearn.memory.search import TINY
from hierlearn.training.recipes import Recipe, quick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.memory.compare import Candidates, SetCandidates


RATE = 10.0  # how much faster than others these parameters are learned
ROWS = 4096  # of the memory, compared at once
GATHERED = 1 << 20  # numbers of the rows whose distances are computed again
LARGE = 1 << 20  # entries of targets from which sparse sums may be worthwhile
DENSITY = 0.02  # of positive entries, at most


class NodeWeights(nn.Module):
    """(C, D) positive weights, 1 at the start; (M, C, D) for the members of an ensemble.

    Args:
        classes: C.
        size: D, the width of an embedding.
    """

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.exponents = nn.Parameter(torch.zeros(classes, size))

    @classmethod
    def stack(cls, several: Sequence[NodeWeights]) -> NodeWeights:
        new = cls(0, 0)
        new.exponents = nn.Parameter(torch.stack([one.exponents.detach() for one in several]))
        return new

    def forward(self) -> Tensor:
        return (RATE * self.exponents).exp()

    @torch.no_grad()
    def move(self, destinations: Sequence[Sequence[int]], classes: int) -> None:
        """Follow a change of the taxonomy; a class that none becomes has the weights of the start.

        Args:
            destinations: the new classes of each old one; of several that become one, the first
                counts.
            classes: how many there are now.
        """
        old = self.exponents.detach()
        new = old.new_zeros(*old.shape[:-2], classes, old.shape[-1])
        taken: set[int] = set()
        for number, ends in enumerate(destinations):
            if len(ends) == 1 and ends[0] not in taken:
                taken.add(ends[0])
                new[..., ends[0], :] = old[..., number, :]
        self.exponents = nn.Parameter(new)


def label_means(targets: Tensor, weights: Tensor) -> Tensor:
    """Return (..., K, D) the mean weights of the labels of each row; 1 for a row without labels.

    Args:
        targets: (K, C) or (M, K, C) bool, closed.
        weights: (C, D) or (M, C, D).
    """
    if weights.dim() == 3:
        each = targets if targets.dim() == 3 else targets.expand(len(weights), -1, -1)
        parts = [label_means(one, own) for one, own in zip(each, weights, strict=True)]
        return torch.stack(parts)
    count = targets.sum(dim=-1, keepdim=True)
    if is_sparse(targets, count):
        _, by_row = pair = sparse_targets(targets, weights.dtype)
        sums: Tensor = SparseMatmul.apply(by_row, pair[0], weights)  # type: ignore[no-untyped-call]
    else:
        sums = targets.to(weights.dtype) @ weights
    return torch.where(count > 0, sums / count.clamp_min(1), 1.0)


def is_sparse(targets: Tensor, count: Tensor) -> bool:
    """Whether sparse sums are worthwhile: many targets on the CPU, few of them positive."""
    if torch.compiler.is_compiling() or targets.is_cuda or targets.numel() < LARGE:
        return False
    return int(count.sum()) <= DENSITY * targets.numel()


def weighted_squares(queries: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Return (..., n, K) sum over d of W_kd (q_d - z_kd)^2.

    Args:
        queries: (..., n, D).
        rows: (..., K, D).
        weights: (..., K, D).
    """
    origin = rows.mean(dim=-2, keepdim=True).detach()  # a near one keeps the sums accurate
    queries, rows = queries - origin, rows - origin
    scaled = weights * rows
    left = torch.cat([queries.square(), -2 * queries], dim=-1)
    right = torch.cat([weights, scaled], dim=-1)
    lengths = (scaled * rows).sum(dim=-1)[..., None, :]
    return (left @ right.transpose(-1, -2) + lengths).clamp_min(0.0)


class NodeMetricHead(NeighborHead):
    """A memory whose distances have a weight per class and dimension.

    Search is exact: there is no approximate index, and processes cannot share the rows.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        projection: from (N, F) features to (N, D) embeddings, of which ``size`` is D.
        options: of NeighborHead; the distance is "squared" or "euclidean".
    """

    metric = "node"
    stackable = True

    def __init__(
        self, label_space: LabelSpace | Hierarchy, projection: nn.Module, **options: Any
    ) -> None:
        super().__init__(label_space, projection, **options)
        if self.distance == "cosine":
            raise HierlearnError(
                "a metric per node weighs squared differences, not a cosine; choose distance "
                "'squared' or 'euclidean', or metric 'plain'"
            )
        size: Any = projection.size
        self.node_weights = NodeWeights(len(self.label_space.hierarchy), size)

    def compare(
        self, queries: Tensor, others: Tensor, candidates: Candidates | SetCandidates
    ) -> HeadOutput:
        """Return the answers of a training step; there are no kernels."""
        with torch.autocast(queries.device.type, enabled=False):
            return HeadOutput(*compare_plainly(self, queries, others, candidates))

    def distances(
        self, queries: Tensor, others: Tensor, candidates: Candidates | SetCandidates
    ) -> Tensor:
        """Return (..., n, K) the distances of a training step."""
        weights = label_means(candidates.targets, self.node_weights())
        return self.rooted(weighted_squares(queries, others, weights))

    def rooted(self, squares: Tensor) -> Tensor:
        """Return squares, or their roots where the distance is Euclidean."""
        return squares.clamp_min(TINY).sqrt() if self.distance == "euclidean" else squares

    @torch.no_grad()
    def set_weights(self) -> Tensor:
        """Return (S, D), or (M, S, D), the weights of every label set of the memory."""
        weights = self.node_weights()
        parts = [label_means(targets, weights) for targets in self.memory.targets_of_sets()]
        return torch.cat(parts, dim=-2)

    @torch.no_grad()
    def search(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return (..., n, k) the distances to the nearest remembered rows, and their numbers."""
        embeddings, rows = self.memory.held()
        weights, of_row = self.set_weights(), self.memory.set_ids
        if self.memory.is_traced:
            each = weights.double()[..., of_row, :]
            found = weighted_squares(queries.double(), embeddings.double(), each)
            least = found.topk(min(count, len(rows)), dim=-1, largest=False).values
            far = found > least.amax(dim=-1, keepdim=True)
            dense = self.rooted(found).masked_fill(far, torch.inf)
            return dense, torch.arange(len(rows), device=dense.device).expand(dense.shape)
        if embeddings.dim() == 2:
            values, numbers = nearest(queries, embeddings, weights, of_row, count)
        else:
            members = zip(queries, embeddings, weights, strict=True)
            found_all = [nearest(*one, of_row, count) for one in members]
            values, numbers = (torch.stack([one[side] for one in found_all]) for side in (0, 1))
        return self.rooted(values), numbers

    def build_index(self, recall: float) -> float:
        """Raise: an index orders rows by one distance for all."""
        del recall
        raise HierlearnError(
            "a memory with a metric per node has no approximate index, since its distances depend "
            "on the labels of the rows; search it exactly, or train with metric 'plain'"
        )

    def move_to(self, label_space: LabelSpace, destinations: Sequence[Sequence[int]]) -> None:
        """Follow a change of the taxonomy; see NodeWeights.move."""
        super().move_to(label_space, destinations)
        self.node_weights.move(destinations, len(label_space.hierarchy))

    def extra_repr(self) -> str:
        """Show the metric when the module is printed."""
        return f"{super().extra_repr()}, a metric per node"


def nearest(
    queries: Tensor, embeddings: Tensor, weights: Tensor, of_row: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Return (n, k) the weighted squares of the nearest rows, ascending, and their numbers.

    Rows are compared block by block; the squares of those that are found are computed again from
    differences, in which nothing cancels.

    Args:
        queries: (n, D).
        embeddings: (N, D), in any precision.
        weights: (S, D) of the label sets.
        of_row: (N,) the set of each row.
        count: k; all N where there are fewer.
    """
    dtype = torch.float64 if queries.dtype == torch.float64 else torch.float32
    queries, weights = queries.to(dtype), weights.to(dtype)
    k = min(count, len(embeddings))
    best = queries.new_empty(len(queries), 0)
    numbers = of_row.new_empty(len(queries), 0)
    for begin in range(0, len(embeddings), ROWS):
        rows = embeddings[begin : begin + ROWS].to(dtype)
        scores = weighted_squares(queries, rows, weights[of_row[begin : begin + ROWS]])
        here = torch.arange(begin, begin + len(rows), device=scores.device).expand_as(scores)
        best, numbers = torch.cat([best, scores], dim=1), torch.cat([numbers, here], dim=1)
        best, places = best.topk(min(k, best.shape[1]), dim=1, largest=False)
        numbers = numbers.gather(1, places)
    numbers = numbers.sort(dim=1).values  # so that rows that are equally near come by number
    values = queries.new_empty(numbers.shape)
    size = max(1, GATHERED // max(1, k * queries.shape[1]))
    for part in torch.split(torch.arange(len(queries), device=queries.device), size):
        found = numbers[part]
        gaps = embeddings[found].to(dtype) - queries[part][:, None]
        values[part] = (weights[of_row[found]] * gaps.square()).sum(dim=-1)
    values, order = values.sort(dim=1, stable=True)
    return values, numbers.gather(1, order)


VERMA = Recipe(
    "bce",
    "a memory with a metric per class, averaged along paths (Verma 2012)",
    head="neighbors",
    rule=lambda facts: {
        **(found := quick(facts)),
        "head_options": {**found["head_options"], "metric": "node"},
    },
)
