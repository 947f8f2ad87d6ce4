"""The digest of a dataset, by which a study recognizes its data."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.datasets.dataset import Dataset


def digest_of(dataset: Dataset) -> str:
    """Return the sha256 of inputs, labels and splits."""
    sums = hashlib.sha256()
    for block in input_blocks(dataset):
        sums.update(block)
    sums.update(json.dumps([list(row) for row in dataset.labels]).encode())
    for name, rows in sorted(dataset.splits.items()):
        sums.update(name.encode() + np.asarray(rows, dtype=np.int64).tobytes())
    return sums.hexdigest()


def input_blocks(dataset: Dataset) -> Iterator[bytes]:
    """Yield the inputs as bytes that do not depend on how they are stored or read."""
    if dataset.kind == "sparse":
        yield from sparse_blocks(dataset.inputs)
    elif dataset.kind == "texts":
        yield from text_blocks(dataset)
    elif dataset.kind in ("table", "images"):
        held: Any = dataset.inputs
        yield from held.blocks()
    else:
        for part in dataset.input_parts():
            yield np.ascontiguousarray(part).tobytes()


def text_blocks(dataset: Dataset) -> Iterator[bytes]:
    """Yield the texts as one JSON list, one text at a time."""
    start = "["
    for part in dataset.input_parts():
        for text in part:
            yield (start + json.dumps(text)).encode()
            start = ", "
    yield b"[]" if start == "[" else b"]"


def sparse_blocks(rows: Any) -> Iterator[bytes]:
    """Yield CSR rows without stored zeros, with sorted columns and wide indices."""
    rows = rows.copy()
    rows.sum_duplicates()  # also sorts the columns of each row
    rows.eliminate_zeros()
    yield f"sparse {rows.shape} {rows.dtype.name}".encode()
    for array in (rows.indptr, rows.indices):
        yield array.astype(np.int64).tobytes()
    yield np.ascontiguousarray(rows.data).tobytes()
