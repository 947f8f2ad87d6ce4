"""Row digests: 64 bits by which a row of inputs is recognized, however it is stored.

Labels and ids are no part of a digest: a row that was trained on with another label was trained on.
Digests of two different rows are equal with probability 2^-64.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.features.images import as_images

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hierlearn.pipeline.pipeline import Pipeline

    Digests = NDArray[np.uint64]

CELLS = 1 << 20  # numbers that are read at a time
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def row_digests(pipeline: Pipeline, inputs: Any) -> Digests:
    """Return (N,) the digest of every row of raw inputs, as the pipeline reads them.

    Args:
        pipeline: the model, whose columns count.
        inputs: raw rows; those that stay in their file are read once, part by part.
    """
    parts = inputs.parts() if hasattr(inputs, "parts") else [inputs]
    found = [digests_of(part, pipeline.preprocessor) for part in parts]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *found])


def digests_of(inputs: Any, preprocessor: Any) -> Digests:
    """Return the digests of rows in memory."""
    reads = None if preprocessor is None else preprocessor.reads
    if reads == "table":
        first = getattr(preprocessor, "steps", (preprocessor,))[0]  # all of a blend read the same
        return table_digests(first.read(inputs))
    if reads == "images":
        return image_digests(inputs)
    if reads == "texts" or isinstance(inputs, list):
        return text_digests(inputs)
    if hasattr(inputs, "tocsr"):
        return sparse_digests(inputs.tocsr())
    values = np.asarray(inputs, dtype=np.float32)
    size = max(1, CELLS // max(1, values.shape[1]))
    chunks = [number_digests(values[begin : begin + size]) for begin in range(0, len(values), size)]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *chunks])


def image_digests(inputs: Any) -> Digests:
    """Return the digests of images, by the content of their files."""
    found = b"".join(digest[:8] for digest in as_images(inputs).digests())
    return np.frombuffer(found, dtype="<u8").astype(np.uint64)


def mix(x: Digests) -> Digests:
    """Return 64 bits each of which depends on all bits of x (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    mixed: Digests = x ^ (x >> np.uint64(31))
    return mixed


def number_bits(values: NDArray[Any]) -> Digests:
    """Return numbers as integers, equal for equal numbers; all NaN are equal."""
    values = values.astype(np.float64) + 0.0  # -0 becomes 0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def number_digests(values: NDArray[np.float32]) -> Digests:
    """Return the digests of (n, D) numbers."""
    found = np.zeros(len(values), dtype=np.uint64)
    for column in number_bits(np.ascontiguousarray(values.T)):
        found = mix(found ^ column)
    return found


def text_digests(texts: Iterable[Any]) -> Digests:
    """Return the digests of texts; equal texts are hashed once where many are equal."""
    known: dict[str, int] = {}
    numbers = []
    for one in texts:
        text = str(one)
        found = known.get(text)
        if found is None:
            hashed = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
            found = int.from_bytes(hashed.digest(), "little")
            if len(known) < CELLS:
                known[text] = found
        numbers.append(found)
    return np.array(numbers, dtype=np.uint64)


def sparse_digests(rows: Any) -> Digests:
    """Return the digests of CSR rows; stored zeros and the order of columns do not count."""
    rows = rows.copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    place = mix(rows.indices.astype(np.uint64) + np.uint64(1))
    bits = number_bits(rows.data.astype(np.float32))
    sums = np.concatenate([[np.uint64(0)], np.cumsum(mix(place ^ bits), dtype=np.uint64)])
    return mix(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])


def table_digests(table: Any) -> Digests:
    """Return the digests of the rows of a mixed table."""
    found = np.zeros(len(table), dtype=np.uint64)
    for column in table.columns.values():
        if column.dtype.kind == "O":
            bits = text_digests(column)
        elif column.dtype.kind == "M":
            bits = column.astype("datetime64[s]").view(np.uint64)
        else:
            bits = number_bits(column)
        found = mix(found ^ bits)
    return found
