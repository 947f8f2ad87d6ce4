"""A shard: some consecutive rows of the memory of a model, as one file that never changes.

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.files.reading import guarded, parse_json
from hierlearn.files.schema import check
from hierlearn.files.tensors import CheckpointError, map_tensor, read_tensors, write_tensors
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, Remembered
from hierlearn.pipeline.row_digests import text_digests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.pipeline.row_digests import Digests

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
    """Write a shard."""
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


def read_shard(path: Path, places: Places, policy: Any) -> Shard:
    """Read a shard.

    Args:
        path: its file.
        places: the classes of the model.
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
        numbers = sorted_in_rows(offsets, places.numbers(names["classes"])[coded])
        sets = Labels.from_numbers(offsets, numbers, places.hierarchy, policy)
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


@dataclass(frozen=True)
class Places:
    """The numbers of the classes of a taxonomy by name, for many shards."""

    hierarchy: Hierarchy
    known: dict[str, int]

    @classmethod
    def of(cls, hierarchy: Hierarchy) -> Places:
        """Number the classes of a taxonomy."""
        return cls(hierarchy, {name: number for number, name in enumerate(hierarchy.names)})

    def numbers(self, names: Sequence[str]) -> Ints:
        """Return the numbers of some classes; raise ValueError on one that is not there."""
        try:
            return np.array([self.known[name] for name in names], dtype=np.int64)
        except KeyError as error:
            raise ValueError(f"the hierarchy has no class {error}") from None


def sorted_in_rows(offsets: Ints, numbers: Ints) -> Ints:
    """Return CSR numbers, ascending in every row: other classes may lie between them now."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if len(rows) != len(numbers):
        raise ValueError("label sets do not fit their classes")
    return numbers[np.lexsort((numbers, rows))]


# ---------------------------------------- ids


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
