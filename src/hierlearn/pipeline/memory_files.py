"""The memory of a model as files of its folder.

memory.safetensors   the embeddings of every head, and the label sets
memory.json          the id of every row, and its text where the model reads texts
index-*.safetensors  approximate indexes, where they were built
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from hierlearn.errors import HierlearnError
from hierlearn.files.reading import LARGE, guarded, read_json
from hierlearn.files.schema import check
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, Remembered
from hierlearn.memory.index import ApproximateIndex
from hierlearn.networks.memories import (
    embeddings_of,
    members_of_head,
    memory_heads,
    remembered,
    set_memory,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from torch import Tensor, nn

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.memory import Memory

MEMORY_FILES = ("memory.safetensors", "memory.json")
INDEX = "index-{head}-{member}.safetensors"
ARRAYS = ("set_offsets", "set_numbers", "set_of_row")
FORMAT = "hierlearn.memory"
COPY = "copy the whole folder again"


@dataclass
class MemoryJson:
    """memory.json."""

    unlabeled_descendants: Literal["negative", "ignore"]
    ids: list[str | int]
    texts: list[str] | None


def check_filled(network: nn.Module) -> None:
    """Raise on a network whose memory is empty: a folder of it could not answer."""
    if memory_heads(network) and remembered(network) is None:
        raise HierlearnError(
            "the memory of this model is empty, so it cannot be saved; train it first"
        )


def write_memory(folder: Path, network: nn.Module) -> tuple[str, ...]:
    """Write what a network remembers, and return the names of the files; none without a memory."""
    rows = remembered(network)
    if rows is None:
        return ()
    arrays = (*rows.labels.sets.terminal, rows.labels.of_row)
    tensors = {name: torch.from_numpy(a) for name, a in zip(ARRAYS, arrays, strict=True)}
    tensors |= {f"embeddings/{name}": value for name, value in embeddings_of(network).items()}
    if rows.weights is not None:
        tensors["weights"] = torch.from_numpy(np.asarray(rows.weights, dtype=np.float64))
    write_tensors(folder / MEMORY_FILES[0], tensors, {"format": FORMAT})
    policy = rows.labels.sets.unlabeled_descendants
    texts = None if rows.texts is None else list(rows.texts)
    values = {"unlabeled_descendants": policy, "ids": list(rows.ids), "texts": texts}
    with atomic_write(folder / MEMORY_FILES[1]) as file:
        text = json.dumps(values, ensure_ascii=False)
        file.write(text.encode(errors="replace").decode() + "\n")  # halves of surrogate pairs
    return (*MEMORY_FILES, *write_indexes(folder, network))


def write_indexes(folder: Path, network: nn.Module) -> list[str]:
    """Write the approximate indexes of a network, and return the names of their files."""
    names = []
    for name, memory, number, _ in members_of_memories(network):
        if memory.indexes is not None:
            path = folder / INDEX.format(head=name, member=number)
            memory.indexes[number].save(path)
            names.append(path.name)
    return names


def read_indexes(folder: Path, network: nn.Module, names: Container[str]) -> None:
    """Read the approximate indexes of a model that ``names`` lists, if faiss is installed."""
    found: dict[int, tuple[Memory, list[ApproximateIndex]]] = {}
    for name, memory, number, part in members_of_memories(network):
        path = folder / INDEX.format(head=name, member=number)
        if path.name in names and find_spec("faiss") is not None:
            found.setdefault(id(memory), (memory, []))[1].append(ApproximateIndex.load(path, part))
    for memory, indexes in found.values():
        memory.indexes = indexes


def members_of_memories(network: nn.Module) -> Iterator[tuple[str, Memory, int, Tensor]]:
    """Yield name, memory, number in the memory and embeddings of every head and member."""
    for name, heads in memory_heads(network).items():
        for place, head in enumerate(heads):
            embeddings, _ = head.memory.held()
            parts = embeddings if embeddings.dim() == 3 else embeddings[None]
            for number, part in enumerate(parts):
                yield f"{name}-{place}" if len(heads) > 1 else name, head.memory, number, part


def check_shape(embeddings: Tensor, members: int | None, size: int | None) -> None:
    """Raise on embeddings of another number of members, or of another width where it is known."""
    shape = tuple(embeddings.shape)
    leading = () if members is None else (members,)
    if shape[:-2] != leading or size not in (None, shape[-1]):
        wanted = ", ".join(map(str, (*leading, "N", size or "D")))
        raise ValueError(f"embeddings {shape} must be ({wanted})")


def read_memory(
    folder: Path, network: nn.Module, hierarchy: Hierarchy, names: Container[str]
) -> None:
    """Read what a network remembers; nothing for one without a memory.

    Args:
        folder: of the model.
        network: the network to fill.
        hierarchy: of the labels.
        names: the files of the model; an index that is none of them is left alone.

    Raises:
        CheckpointError: where a file is missing, damaged, or does not fit the network.
    """
    heads = memory_heads(network)
    if not heads:
        return
    for name in MEMORY_FILES:
        if name not in names:
            raise CheckpointError(f"{folder} has no {name}; copy the whole folder again")
    path = folder / MEMORY_FILES[0]
    tensors, _ = read_tensors(path)
    values = read_json(folder / MEMORY_FILES[1], LARGE, CheckpointError)
    check(folder / MEMORY_FILES[1], values, MemoryJson, CheckpointError)
    with guarded(path, "does not fit this model", CheckpointError, COPY):
        offsets, numbers, of_row = (tensors[name].numpy() for name in ARRAYS)
        sets = Labels.from_numbers(offsets, numbers, hierarchy, values["unlabeled_descendants"])
        if len(of_row) and not 0 <= int(of_row.min()) <= int(of_row.max()) < len(sets):
            raise ValueError("a row has a label set that is not there")
        if not len(of_row) == len(values["ids"]) == len(values["texts"] or values["ids"]):
            raise ValueError("ids, texts and label sets differ in number")
        weights = tensors["weights"].numpy() if "weights" in tensors else None
        rows = Remembered(LabelSets(sets, of_row), values["ids"], weights, values["texts"])
        found: dict[str, Tensor] = {name: tensors[f"embeddings/{name}"] for name in heads}
        for name, (head, *_) in heads.items():
            check_shape(
                found[name], members_of_head(network, name), getattr(head.projection, "size", None)
            )
        set_memory(network, found, rows)
        read_indexes(folder, network, names)
