"""The answers of a training step of a NeighborHead: plainly, and by Triton kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import normalize

from hierlearn.hierarchy.propagate import log_zero
from hierlearn.kernels import trial
from hierlearn.memory.sparse_mixture import is_sparse, sparse_mixture
from hierlearn.memory.store import mixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from hierlearn.memory.candidates import Candidates, SetCandidates
    from hierlearn.memory.head import NeighborHead

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
    return trial.passes(name, device, partial(try_kernels, distance))


def try_kernels(distance: str, device: torch.device) -> Iterator[Pair]:
    """Yield what the kernels compute for a distance, with what they must."""
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.memory.candidates import SetCandidates
    from hierlearn.memory.head import NeighborHead
    from hierlearn.memory.label_sets import LabelSets

    hierarchy = Hierarchy.from_parents(trial.example_parents())
    labels = LabelSets.from_labels(
        Labels([[one] for one in trial.example_classes()], hierarchy, numbers=True)
    )
    keys = torch.arange(trial.ROWS, device=device)
    sets = torch.from_numpy(labels.of_row).to(device)
    candidates = SetCandidates(labels, sets, keys, keys)
    head = NeighborHead(hierarchy, nn.Identity(), distance=distance)
    yield from trial.compare_functions(
        lambda x: compare_by_kernels(head, x, x.roll(1, dims=1), candidates),
        lambda x: compare_plainly(head, x, x.roll(1, dims=1), candidates),
        trial.example_inputs(device, columns=24),
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
