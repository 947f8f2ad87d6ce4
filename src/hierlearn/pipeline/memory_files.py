"""The memory of a model as files of its folder.

memory.json                   the list of the shards: see ``Manifest``
memory-NUMBER.safetensors     a shard: the embeddings, labels and ids of some rows
index-*.safetensors           approximate indexes, where they were built

Numbered files are immutable, and no number is used twice by those who add to a folder.

A shard: some consecutive rows of the memory of a model, as one file that never changes.

    embeddings/HEAD   (n, D), or (M, n, D) of an ensemble
    set_offsets, set_numbers, set_of_row   label sets as CSR, and the set of each row
    weights           (n,) how much each row counts, where rows differ in that
    later             (n,) which rows came after the training, where any did
    names             JSON as bytes: the classes that the sets number, ids, texts
    id_digests        (n,) digests of the ids, ascending, and ``id_rows`` the row of each
    seen              digests of the rows by their inputs, of rows that were remembered later

Classes are stored by name, so a taxonomy that grows leaves the shards as they are. Whether a shard
has an id is found by binary search in the file, without reading it.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from hierlearn.files.reading import guarded, parse_json, read_json
from hierlearn.files.structured import check
from hierlearn.files.tensors import CheckpointError, map_tensor, read_tensors, write_tensors
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
from hierlearn.pipeline.seen_rows import text_digests

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.memory import Memory
    from hierlearn.pipeline.seen_rows import Digests

MANIFEST = "memory.json"
SHARD = "memory-{:05}.safetensors"
INDEX = "index-{head}-{member}.safetensors"
OWN = re.compile(r"memory\.json|memory-\d{5,9}\.safetensors|index-[\w.-]+\.safetensors")
ROWS = 1 << 18  # of a large shard, as a whole memory is written


@dataclass
class ShardEntry:
    """A shard in the list: its file, and how many rows it holds."""

    file: str
    rows: int


@dataclass
class Manifest:
    """memory.json.

    Attributes:
        unlabeled_descendants: how classes below a label count.
        texts: whether rows have a text to show.
        next: the number of the next file.
        largest_id: the largest id that is an integer; None where no id is.
        shards: in the order of their rows.
    """

    unlabeled_descendants: Literal["negative", "ignore"]
    texts: bool
    next: int = 1
    largest_id: int | None = None
    shards: list[ShardEntry] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many rows are remembered."""
        return sum(one.rows for one in self.shards)

    @property
    def next_id(self) -> int:
        """The integer after the largest id that is one."""
        return self.total if self.largest_id is None else self.largest_id + 1

    @property
    def names(self) -> list[str]:
        """The files of the memory, the manifest first."""
        return [MANIFEST, *(one.file for one in self.shards)]

    def add(self, folder: Path, shard: Shard) -> None:
        """Write a shard after the others."""
        name = SHARD.format(self.next)
        write_shard(folder / name, shard)
        self.shards.append(ShardEntry(name, len(shard)))
        self.next += 1
        numbers = [int(one) for one in shard.rows.ids if str(one).isdecimal()]
        if numbers:
            self.largest_id = max(-1 if self.largest_id is None else self.largest_id, *numbers)

    def copy(self) -> Manifest:
        """Return a manifest that may be changed."""
        return replace(self, shards=list(self.shards))

    def write(self, folder: Path) -> None:
        """Write memory.json."""
        with atomic_write(folder / MANIFEST) as file:
            file.write(json.dumps(asdict(self), indent=1) + "\n")


def read_manifest(folder: Path, names: Container[str]) -> Manifest:
    """Read memory.json.

    Args:
        folder: of the model.
        names: the files of the model; those of the memory must be among them.
    """
    path = folder / MANIFEST
    values = read_json(path, kind=CheckpointError)
    check(path, values, Manifest, CheckpointError)
    found = Manifest(**{**values, "shards": [ShardEntry(**one) for one in values["shards"]]})
    for name in found.names:
        if name not in names or not OWN.fullmatch(name):
            raise CheckpointError(f"{folder} has no {name}; {COPY}")
    if not found.shards or any(one.rows < 1 for one in found.shards):
        raise CheckpointError(f"{path} is damaged: its rows do not add up; {COPY}")
    return found


def write_memory(folder: Path, network: nn.Module) -> tuple[str, ...]:
    """Write what a network remembers, and return the names of the files; none without a memory."""
    rows = remembered(network)
    if rows is None:
        return ()
    whole = Shard(embeddings_of(network), rows)
    manifest = Manifest(rows.labels.sets.unlabeled_descendants, rows.texts is not None)
    for begin in range(0, len(rows), ROWS):
        part = np.arange(begin, min(begin + ROWS, len(rows)))
        manifest.add(folder, whole if len(part) == len(rows) else whole.take(part))
    manifest.write(folder)
    names = manifest.names
    for name, memory, number, _ in members_of_memories(network):
        if memory.indexes is not None:
            names.append(INDEX.format(head=name, member=number))
            memory.indexes[number].save(folder / names[-1])
    return tuple(names)


def members_of_memories(network: nn.Module) -> Iterator[tuple[str, Memory, int, Tensor]]:
    """Yield name, memory, number in the memory and embeddings of every head and member."""
    for name, heads in memory_heads(network).items():
        for place, head in enumerate(heads):
            embeddings, _ = head.memory.held()
            parts = embeddings if embeddings.dim() == 3 else embeddings[None]
            for number, part in enumerate(parts):
                yield f"{name}-{place}" if len(heads) > 1 else name, head.memory, number, part


def read_shards(
    folder: Path, manifest: Manifest, hierarchy: Hierarchy, entries: Iterable[ShardEntry]
) -> Iterator[Shard]:
    """Read some of the shards of a memory, one after another."""
    for entry in entries:
        shard = read_shard(folder / entry.file, hierarchy, manifest.unlabeled_descendants)
        if len(shard) != entry.rows or (shard.rows.texts is not None) != manifest.texts:
            raise CheckpointError(f"{folder / entry.file} does not fit {MANIFEST}; {COPY}")
        yield shard


def read_memory(
    folder: Path,
    network: nn.Module,
    hierarchy: Hierarchy,
    names: Container[str],
) -> Digests | None:
    """Read what a network remembers; nothing for one without a memory.

    Args:
        folder: of the model.
        network: the network to fill.
        hierarchy: of the labels.
        names: the files of the model; an index that is none of them is left alone.
        part: the rows whose embeddings are kept, where processes share them; None for all.

    Returns:
        The digests of the rows that were remembered after training; None without a memory.

    Raises:
        CheckpointError: where a file is missing, damaged, or does not fit the network.
    """
    heads = memory_heads(network)
    if not heads:
        return None
    manifest = read_manifest(folder, names)
    known: list[Shard] = []
    held: dict[str, Tensor] = {}
    begin = 0  # of the rows of a shard
    shards = read_shards(folder, manifest, hierarchy, manifest.shards)
    for entry, shard in zip(manifest.shards, shards, strict=True):
        with guarded(folder / entry.file, "does not fit this model", CheckpointError, COPY):
            for name, (head, *_) in heads.items():
                rows, size = shard.embeddings[name], getattr(head.projection, "size", None)
                members = members_of_head(network, name)
                leading = () if members is None else (members,)
                if rows.shape[:-2] != leading or size not in (None, rows.shape[-1]):
                    wanted = ", ".join(map(str, (*leading, "N", size or "D")))
                    raise ValueError(f"embeddings {tuple(rows.shape)} must be ({wanted})")
                if len(manifest.shards) == 1:
                    held[name] = rows
                    continue
                if name not in held:
                    held[name] = rows.new_empty((*leading, manifest.total, rows.shape[-1]))
                # Not in the precision of the first: what overflows half came in another.
                held[name] = held[name].to(torch.promote_types(held[name].dtype, rows.dtype))
                held[name][..., begin : begin + len(shard), :] = rows
        begin += len(shard)
        known.append(replace(shard, embeddings={}))
    with guarded(folder / MANIFEST, "does not fit this model", CheckpointError, COPY):
        joined = Shard.join(known)
        set_memory(network, held, joined.rows)
        indexes: dict[int, tuple[Memory, list[ApproximateIndex]]] = {}
        for name, memory, number, rows in members_of_memories(network):
            path = folder / INDEX.format(head=name, member=number)
            if path.name in names and find_spec("faiss") is not None:
                found = ApproximateIndex.load(path, rows)
                indexes.setdefault(id(memory), (memory, []))[1].append(found)
        for memory, several in indexes.values():
            memory.indexes = several
    return joined.seen


# ---------------------------------------- memory shards

FORMAT = "hierlearn.memory"
ARRAYS = ("set_offsets", "set_numbers", "set_of_row")
HEAD = "embeddings/"
COPY = "copy the whole folder again"


@dataclass
class NamesJson:
    """What ``names`` of a shard holds."""

    classes: list[str]
    ids: list[str | int]
    texts: list[str] | None


@dataclass(frozen=True)
class Shard:
    """Some rows of a memory.

    Attributes:
        embeddings: by head, (n, D), or (M, n, D) of an ensemble.
        rows: what is known of the rows beside that.
        seen: digests of their inputs; empty for training rows, which are listed elsewhere.
    """

    embeddings: Mapping[str, Tensor]
    rows: Remembered
    seen: Digests = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, kept: Ints) -> Shard:
        """Return some rows; what was seen stays."""
        index = torch.from_numpy(kept)
        embeddings = {
            name: held.index_select(-2, index.to(held.device))
            for name, held in self.embeddings.items()
        }
        return replace(self, embeddings=embeddings, rows=self.rows.take(kept))

    @classmethod
    def join(cls, shards: Sequence[Shard]) -> Shard:
        """Return the rows of all shards, in their order."""
        first, *others = shards
        if not others:
            return first
        # Not in the precision of the first: what overflows half precision came in another.
        embeddings = {
            name: torch.cat([one.embeddings[name] for one in shards], dim=-2)
            for name in first.embeddings
        }
        rows = first.rows.join(*(one.rows for one in others))
        return cls(embeddings, rows, np.concatenate([one.seen for one in shards]))


def write_shard(path: Path, shard: Shard) -> None:
    rows = shard.rows
    offsets, numbers = rows.labels.sets.terminal
    classes, coded = np.unique(numbers, return_inverse=True)
    names = {
        "classes": [rows.hierarchy.names[one] for one in classes],
        "ids": list(rows.ids),
        "texts": None if rows.texts is None else list(rows.texts),
    }
    text = json.dumps(names, ensure_ascii=False).encode(errors="replace")  # halves of surrogates
    digests = id_digests(rows.ids)
    order = np.argsort(digests, kind="stable")
    arrays: dict[str, Any] = {
        **dict(zip(ARRAYS, (offsets, coded.astype(np.int64), rows.labels.of_row), strict=True)),
        "names": np.frombuffer(text, dtype=np.uint8).copy(),
        "id_digests": digests[order].view(np.int64),
        "id_rows": order.astype(np.int64),
    }
    if rows.weights is not None:
        arrays["weights"] = np.asarray(rows.weights, dtype=np.float64)
    if rows.later is not None and rows.later.any():
        arrays["later"] = rows.later.astype(np.uint8)
    if len(shard.seen):
        arrays["seen"] = shard.seen.view(np.int64)
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    tensors |= {HEAD + name: held for name, held in shard.embeddings.items()}
    write_tensors(path, tensors, {"format": FORMAT})


def read_shard(path: Path, hierarchy: Hierarchy, policy: Any) -> Shard:
    """Read a shard.

    Args:
        path: its file.
        hierarchy: the classes of the model.
        policy: how classes below a label count, "negative" or "ignore".

    Raises:
        CheckpointError: where the file is missing, damaged, or does not fit the model.
    """
    tensors, _ = read_tensors(path)
    with guarded(path, "does not fit this model", CheckpointError, COPY):
        names = parse_json(tensors["names"].numpy().tobytes().decode())
        check(path, names, NamesJson, CheckpointError)
        offsets, coded, of_row = (tensors[name].numpy() for name in ARRAYS)
        if len(coded) and not 0 <= int(coded.min()) <= int(coded.max()) < len(names["classes"]):
            raise ValueError("a label set has a class that is not there")
        numbers = np.array(
            [hierarchy.index(name, exact=True) for name in names["classes"]], dtype=np.int64
        )[coded]
        rows_of_sets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        if len(rows_of_sets) != len(numbers):
            raise ValueError("label sets do not fit their classes")
        numbers = numbers[np.lexsort((numbers, rows_of_sets))]  # others may lie between them now
        sets = Labels.from_numbers(offsets, numbers, hierarchy, policy)
        if len(of_row) and not 0 <= int(of_row.min()) <= int(of_row.max()) < len(sets):
            raise ValueError("a row has a label set that is not there")
        if not len(of_row) == len(names["ids"]) == len(names["texts"] or names["ids"]):
            raise ValueError("ids, texts and label sets differ in number")
        weights = tensors["weights"].numpy() if "weights" in tensors else None
        later = tensors["later"].numpy().astype(bool) if "later" in tensors else None
        labels = LabelSets(sets, of_row)
        rows = Remembered(labels, names["ids"], weights, names["texts"], later)
        embeddings = {
            name.removeprefix(HEAD): held for name, held in tensors.items() if name.startswith(HEAD)
        }
        if any(held.shape[-2] != len(rows) for held in embeddings.values()):
            raise ValueError("embeddings and ids differ in number")
        seen = tensors["seen"].numpy().view(np.uint64) if "seen" in tensors else None
        return Shard(embeddings, rows) if seen is None else Shard(embeddings, rows, seen)


def id_digests(ids: Iterable[Any]) -> Digests:
    """Return (n,) the digest of each id; ids are equal if their texts are."""
    return text_digests(ids)


def rows_with_ids(path: Path, digests: Digests) -> tuple[Ints, Ints]:
    """Return the rows of a shard that have one of some ids, and which of the ids.

    Only a few pages of the file are read: those that a binary search looks at.

    Args:
        path: of the shard.
        digests: (m,) of the ids.
    """
    held, order = map_tensor(path, "id_digests"), map_tensor(path, "id_rows")
    values = held.view(np.uint64)
    begin, end = (np.searchsorted(values, digests, side=side) for side in ("left", "right"))
    counts = end - begin
    which = np.repeat(np.arange(len(digests)), counts)
    first = np.repeat(begin - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return np.asarray(order[first + np.arange(len(which))], dtype=np.int64), which
