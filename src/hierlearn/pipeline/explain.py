"""Explain: the remembered rows that an answer was taken from, with their weights.

The weight of a row is what it contributes to the probabilities of its classes, averaged over the
members of an ensemble; the weights of all neighbors of an answer sum to 1. In a blend they sum to
what its memories count in the answer; the rest comes from networks that remember nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.dataset import count_rows
from hierlearn.errors import HierlearnError, arg
from hierlearn.memory.search import nearest
from hierlearn.networks.blend import is_blend, memory_shares
from hierlearn.networks.memories import (
    embed,
    embeddings_of,
    memory_heads,
    neighbors_of,
    remembered,
)
from hierlearn.networks.network import AVERAGE
from hierlearn.pipeline.threads import in_order, one_core_each, worker_count
from hierlearn.pipeline.tiles import filled_tile, tile_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hierlearn.memory import Remembered
    from hierlearn.pipeline.pipeline import Pipeline

BATCH = 1024


@dataclass(frozen=True)
class Evidence:
    """A remembered row that an answer was taken from.

    Attributes:
        id: of the row.
        weight: its share of the answer, between 0 and 1.
        labels: its most specific labels, by path.
        text: its text where the model reads texts, else None.
        row: its number in the memory, from 0.
    """

    id: str
    weight: float
    labels: tuple[str, ...]
    text: str | None
    row: int


def rows_of(pipeline: Pipeline) -> Remembered:
    """Return what a pipeline remembers; raise where it has no memory."""
    rows = remembered(pipeline.network)
    if rows is None:
        heads = "neighbors" if memory_heads(pipeline.network) else "linear"
        raise HierlearnError(
            "the memory of this model is empty"
            if heads == "neighbors"
            else "this model has no memory: its answers come from weights, not from rows; train it "
            f"again with what is new, or train with {arg('recipe', 'neighbors')}, or "
            f"{arg('head', 'neighbors')}, for "
            "answers with evidence, and rows and classes that are remembered without training"
        )
    return rows


def answering_memories(network: nn.Module, answer: str) -> dict[str, float]:
    """Return the heads with a memory that answer, with what each counts among them all.

    Args:
        network: a network, an ensemble or a blend, which knows its own shares.
        answer: the head that answers, or "average"; then it is the first head with a memory.
    """
    if is_blend(network):
        return memory_shares(network)
    heads = memory_heads(network)
    if answer in heads:
        return {answer: 1.0}
    return dict.fromkeys(list(heads)[:1], 1.0) if answer == AVERAGE else {}


def shares_of(pipeline: Pipeline) -> dict[str, float]:
    """Return the heads whose rows are the evidence, with shares; raise where there are none."""
    shares = answering_memories(pipeline.network, pipeline.answer)
    if not shares:
        memory = next(iter(memory_heads(pipeline.network)), "main")
        raise HierlearnError(
            f"this model answers by its head {pipeline.answer!r}, which is no memory, so no "
            f"remembered row is behind an answer; train with --answer {memory} "
            f"(answer={memory!r} in Python) for answers with evidence"
        )
    return shares


def most_neighbors(pipeline: Pipeline) -> int:
    """Return from how many remembered rows an answer is taken, at least."""
    heads = memory_heads(pipeline.network)
    return min(heads[name][0].neighbors for name in shares_of(pipeline))


@torch.no_grad()
def neighbor_weights(pipeline: Pipeline, inputs: Any) -> Iterator[tuple[Any, Any]]:
    """Yield, for every row of a tile, its neighbors by falling weight: weights, row numbers."""
    rows_of(pipeline)
    network, shares = pipeline.network, shares_of(pipeline)
    read, size = pipeline.rows(inputs), tile_size(pipeline)
    queries = embed(network, read if size is None else filled_tile(read, 0, size))
    weighed, numbered = [], []
    for name, share in shares.items():
        weights, index = neighbors_of(network, name, queries[name])
        scaled = weights.double().mul(share / len(weights))
        weighed.append(scaled.transpose(0, 1).flatten(1).cpu().numpy())
        numbered.append(index.transpose(0, 1).flatten(1).cpu().numpy())
    both = np.concatenate(weighed, axis=1), np.concatenate(numbered, axis=1)
    for own, numbers in zip(*(side[: len(read)] for side in both), strict=True):
        rows, first, place = np.unique(numbers, return_index=True, return_inverse=True)
        total = np.bincount(place, own)
        order = np.lexsort((first, -total))  # far rows may all weigh 0; the nearest comes first
        yield total[order], rows[order]


def explain(pipeline: Pipeline, inputs: Any, count: int = 3) -> list[list[Evidence]]:
    """Return the rows that the answer to every input was taken from, the weightiest first.

    Args:
        pipeline: a pipeline with a memory.
        inputs: the raw rows.
        count: how many rows at most.
    """
    if count < 1:
        raise HierlearnError(f"{arg('count')} must be at least 1, not {count}")
    rows = rows_of(pipeline)
    shares_of(pipeline)  # raises where no memory answers
    pipeline.network.eval()
    size = tile_size(pipeline) or BATCH

    def explained(begin: int) -> list[list[Evidence]]:
        found = neighbor_weights(pipeline, inputs[begin : begin + size])
        return [evidence(rows, weights[:count], numbers[:count]) for weights, numbers in found]

    begins = range(0, count_rows(inputs), size)
    workers = worker_count(pipeline)
    with one_core_each() if tile_size(pipeline) else nullcontext():
        return [row for tile in in_order(explained, begins, workers) for row in tile]


def evidence(rows: Remembered, weights: Any, numbers: Any) -> list[Evidence]:
    """Return some remembered rows with their weights."""
    return [
        Evidence(
            id=str(rows.ids[number]),
            weight=float(weight),
            labels=tuple(labels),
            text=None if rows.texts is None else rows.texts[number],
            row=int(number),
        )
        for weight, number, labels in zip(weights, numbers, rows.labels.names(numbers), strict=True)
    ]


@torch.no_grad()
def kneighbors(
    pipeline: Pipeline, inputs: Any, count: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (N, k) the distances to the nearest remembered rows, and their numbers.

    The distance of an ensemble is that of the embeddings of its members side by side: the mean
    over the members where it is squared or a cosine. In a blend it is that of the memory that
    counts most.

    Args:
        pipeline: a pipeline with a memory.
        inputs: the raw rows; None for the remembered rows themselves, each without itself.
        count: k.
    """
    rows = rows_of(pipeline)
    most = len(rows) - (inputs is None)
    if not 1 <= count <= most:
        raise HierlearnError(f"n_neighbors must lie between 1 and {most:,}, not {count}")
    pipeline.network.eval()
    heads = memory_heads(pipeline.network)
    shares = answering_memories(pipeline.network, pipeline.answer)
    name = max(shares, key=lambda one: shares[one]) if shares else next(iter(heads))
    distance = heads[name][0].distance
    if heads[name][0].metric != "plain":
        raise HierlearnError(
            "kneighbors needs one distance for all rows, but the metric of this memory depends on "
            "their labels; explain shows the rows that answers are taken from"
        )
    held = side_by_side(embeddings_of(pipeline.network)[name], distance)
    if inputs is None:
        return without_itself(*nearest(held.float(), held, count + 1, distance))
    total = count_rows(inputs)
    if not total:
        return np.zeros((0, count)), np.zeros((0, count), dtype=np.int64)
    parts = []
    for begin in range(0, total, BATCH):
        batch = embed(pipeline.network, pipeline.rows(inputs[begin : begin + BATCH]))[name]
        parts.append(nearest(side_by_side(batch, distance), held, count, distance))
    distances, index = (torch.cat([part[side] for part in parts]).cpu().numpy() for side in (0, 1))
    return distances.astype(np.float64), index


def without_itself(
    distances: Tensor, index: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Drop every row from its own neighbors, or the last one where others are as near."""
    own = index == torch.arange(len(index), device=index.device)[:, None]
    own[:, -1] |= ~own.any(dim=1)
    shape = (len(index), index.shape[1] - 1)
    kept = ~own
    return distances[kept].view(shape).double().cpu().numpy(), index[kept].view(shape).cpu().numpy()


def side_by_side(embeddings: Tensor, distance: str) -> Tensor:
    """Return (N, M D) embeddings whose distance is that of M members on average."""
    if embeddings.dim() == 2:
        return embeddings
    members = len(embeddings)
    if distance == "cosine":
        embeddings = torch.nn.functional.normalize(embeddings.float(), dim=-1)
    scaled: Tensor = embeddings.float() / members**0.5
    return scaled.transpose(0, 1).flatten(1)
