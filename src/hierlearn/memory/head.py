"""NeighborHead: answers are mixtures of the labels of similar training rows.

    w_j = softmax over rows j of (-d(f(x), f(x_j)) / scale + log weight_j)
    p   = sum over j of w_j y_j,      1 - p = sum over j of w_j (1 - y_j)

with f(x) the projected features, d a distance and y_j the closed targets of row j. p is a convex
mixture of closed label sets: no class is more probable than its parents, in any tree or DAG.

Training compares a batch with sampled candidates, encoded with the same weights, or with its own
rows, which are encoded anyway; the row itself is left out. A row without any candidate of its class
would cost infinity, so a weight ``smoothing`` is given to either answer: p' = (1 - 2e) p + e.
Predicting compares with the nearest remembered rows, and p = 0 and p = 1 are exact.

Partial labels: sums go over the rows whose label is known, p = sum w m y / sum w m; in a DAG the
minimum over the ancestors keeps p coherent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.propagate import log_zero
from hierlearn.kernels.neighbor_head import can_use
from hierlearn.links import Head, HeadOutput
from hierlearn.links.output import safe_log
from hierlearn.memory.compare import (
    Candidates,
    SetCandidates,
    compare_by_kernels,
    compare_plainly,
    kernels_work,
)
from hierlearn.memory.search import Scale, find_distance
from hierlearn.memory.store import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy import Hierarchy

SCALES = {"squared": 16.0, "euclidean": 1.0, "cosine": 0.1}


class NeighborHead(Head):
    """Look the answer up among the remembered rows.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        projection: from (N, F) features to (N, D) embeddings.
        distance: a name of DISTANCES.
        scale: what distances are divided by; by default 16, 1 and 0.1 for squared, Euclidean and
            cosine distances.
        learn_scale: learn the scale, from that value on.
        neighbors: how many of the nearest rows answer.
        candidates: how many training rows a step compares its batch with, at most; 0 compares the
            rows of the batch with each other.
        smoothing: the weight of either answer that training adds.

    Attributes:
        memory: the remembered rows.
        metric: "plain" where all rows have one distance, "node" where it depends on their labels.
    """

    metric: ClassVar[str] = "plain"
    stackable = True
    has_memory = True

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        projection: nn.Module,
        *,
        distance: str = "squared",
        scale: float | None = None,
        learn_scale: bool = False,
        neighbors: int = 256,
        candidates: int = 2048,
        smoothing: float = 1e-6,
    ) -> None:
        super().__init__()
        find_distance(distance)
        for name, value, least in (("neighbors", neighbors, 1), ("candidates", candidates, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise HierlearnError(
                    f"{name} must be an integer of at least {least}, not {value!r}"
                )
        if not 0 < smoothing < 0.5:
            raise HierlearnError(f"smoothing must lie between 0 and 0.5, not {smoothing}")
        self.label_space = LabelSpace.of(label_space)
        self.projection = projection
        self.distance = distance
        self.scale = Scale(SCALES[distance] if scale is None else scale, learned=learn_scale)
        self.neighbors = neighbors
        self.candidates = candidates
        self.smoothing = smoothing
        self.memory = Memory()

    def forward(
        self,
        features: Tensor,
        others: Tensor | None = None,
        candidates: Candidates | SetCandidates | None = None,
    ) -> HeadOutput:
        """Return the node log-probabilities of (N, F) features.

        Args:
            features: of the rows.
            others: (K, F) the features of the candidates of a training step; None to answer from
                the memory.
            candidates: their labels.
        """
        queries = self.embed(features)
        if others is None or candidates is None:
            return self.look_up(queries)
        found = queries if candidates.are_batch else self.embed(others)
        return self.compare(queries, found, candidates)

    def embed(self, features: Tensor) -> Tensor:
        """Return the embeddings of features, in float32 also where the encoder computes in half.

        Distances of near rows are small differences of large numbers.
        """
        first = next(self.projection.parameters(), None)
        with torch.autocast("cpu" if first is None else first.device.type, enabled=False):
            if isinstance(features, Tensor) and features.dtype in (torch.float16, torch.bfloat16):
                features = features.float()
            found: Tensor = self.projection(features)
            return found

    def compare(
        self, queries: Tensor, others: Tensor, candidates: Candidates | SetCandidates
    ) -> HeadOutput:
        """Return the answers of a training step, from its candidates.

        Args:
            queries: (n, D) or (M, n, D) embeddings of the batch.
            others: (K, D) or (M, K, D) embeddings of the candidates.
            candidates: their labels, and which of them are the row itself.
        """
        with torch.autocast(queries.device.type, enabled=False):
            if (
                isinstance(candidates, SetCandidates)
                and can_use(queries, others)
                and kernels_work(self.distance, queries.device)
            ):
                return HeadOutput(*compare_by_kernels(self, queries, others, candidates))
            return HeadOutput(*compare_plainly(self, queries, others, candidates))

    def distances(
        self, queries: Tensor, others: Tensor, candidates: Candidates | SetCandidates
    ) -> Tensor:
        """Return (..., n, K) the distances of a training step; arguments as in ``compare``."""
        del candidates
        return find_distance(self.distance)(queries, others)

    def search(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return (..., n, k) the distances to the nearest remembered rows, and their numbers."""
        return self.memory.search(queries, count, self.distance)

    def build_index(self, recall: float) -> float:
        """Build an approximate index of the memory; return the recall that was measured."""
        return self.memory.build_index(self.distance, k=self.neighbors, recall=recall)

    def move_to(self, label_space: LabelSpace, destinations: Sequence[Sequence[int]]) -> None:
        """Follow a change of the taxonomy.

        Args:
            label_space: what can be predicted now.
            destinations: the new classes of each old one.
        """
        del destinations  # the labels of the memory have moved already
        self.label_space = label_space

    def look_up(self, queries: Tensor) -> HeadOutput:
        """Return the answers from the memory to (n, D) or (M, n, D) embeddings."""
        weights, index = self.kneighbors(queries)
        p, q = self.memory.mix(weights, index)
        p, q = self.normalized(p, q, partial=self.memory.is_partial)
        return HeadOutput(safe_log(p), safe_log(q))

    def kneighbors(self, queries: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Return (..., n, k) the weights of the nearest remembered rows, and their row numbers.

        Args:
            queries: (n, D) or (M, n, D) embeddings.
            count: k; by default ``neighbors``.
        """
        distances, index = self.search(queries, count or self.neighbors)
        least = log_zero(queries.dtype)
        # Finite before they are divided: infinite ones would make the gradient of a scale NaN.
        logits = -distances.to(queries.dtype).clamp_max(-least) / self.scale()
        logits = logits.clamp_min(least)
        log_weights = self.memory.log_weights(index)
        if log_weights is not None:
            logits = logits + log_weights
        if index.dim() < logits.dim():  # members that differ in their scales alone
            index = index.expand(logits.shape)
        return logits.softmax(-1), index

    def normalized(
        self, p: Tensor, q: Tensor, *, partial: bool, least: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Divide by the weight whose label is known; see the function."""
        return normalized(p, q, self.hierarchy if partial else None, least)

    @property
    def hierarchy(self) -> Hierarchy:
        """The taxonomy of the answers: that of the remembered rows, once there are any."""
        rows = self.memory.rows
        return self.label_space.hierarchy if rows is None else rows.hierarchy

    def extra_repr(self) -> str:
        """Show the distance when the module is printed."""
        return f"{self.distance}, {self.neighbors} neighbors, {self.candidates} candidates"


def normalized(
    p: Tensor, q: Tensor, hierarchy: Hierarchy | None = None, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Divide by the weight whose label is known; a class that nobody knows has p = 0.

    Args:
        p: (..., C) the weight of the rows that have each class.
        q: (..., C) of those that lack it.
        hierarchy: the taxonomy, where labels are partial; otherwise all is known, up to rounding.
        least: a weight up to this counts as unknown.
    """
    known = p + q
    whole = torch.where(known > least, known, 1.0)
    p = torch.where(known > least, p / whole, 0.0)
    q = torch.where(known > least, q / whole, 1.0)
    if hierarchy is None:
        return p, q
    return -hierarchy.max_down(-p), hierarchy.max_down(q)
