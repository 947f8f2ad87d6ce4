"""SeenRows: which rows a model was trained on, and which were held out.

The rows themselves are not kept, only the digest of each, 8 bytes per row. Of more than ``MOST``
training rows the digests below a bound are kept, a random sample of the rows: of other rows, those
below the same bound are looked up.

A row of new data may equal a training row by chance. How many do is estimated from the training
rows (Good and Turing): with f of n of them unlike all others, a fraction 1 - f / (n + 1) of new
rows should equal one. More than that, by a tenth of the others and three standard deviations, is no
chance; nor is it where they are the training rows, row by row.

Row digests: 64 bits by which a row of inputs is recognized, however it is stored.

Labels and ids are no part of a digest: a row that was trained on with another label was trained on.
Digests of two different rows are equal with probability 2^-64.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.features.images import as_images
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline.pipeline import Pipeline

    Ints = NDArray[np.int64]
    Digests = NDArray[np.uint64]

ROWS_FILE = "rows.safetensors"
FORMAT = "hierlearn.rows"
MOST = 1 << 23  # digests that are kept: 64 MiB
FEW = 0.1  # of the rows that are not there by chance


@dataclass(frozen=True)
class Overlap:
    """How many of some rows a model has seen.

    Attributes:
        rows: how many rows there are.
        known: how many of them equal a row that it has seen.
        by_chance: whether so many may be expected of new rows.
    """

    rows: int
    known: int
    by_chance: bool


@dataclass(frozen=True)
class SeenRows:
    """The digests of the rows of a training.

    Attributes:
        trained: of the training rows, ascending.
        held_out: of the validation rows.
        numbers: the number of each validation row in the dataset.
        selected: whether the validation rows chose the weights, as in early stopping.
        bound: digests of training rows at or above it are not kept; None keeps all.
    """

    trained: Digests
    held_out: Digests = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    numbers: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    selected: bool = False
    bound: int | None = None

    def __post_init__(self) -> None:
        trained, bound = np.sort(self.trained), self.bound
        if len(trained) > MOST:
            bound = int(trained[MOST])
            trained = trained[trained < np.uint64(bound)]
        object.__setattr__(self, "trained", trained)
        object.__setattr__(self, "bound", bound)

    def with_rows(self, digests: Digests) -> SeenRows:
        """Return these with more training rows."""
        return replace(self, trained=np.concatenate([self.trained, self._below(digests)]))

    def _below(self, digests: Digests) -> Digests:
        return digests if self.bound is None else digests[digests < np.uint64(self.bound)]

    def overlap(self, digests: Digests, *, selecting: bool = False) -> Overlap:
        """Return how many of some rows were trained on.

        Args:
            digests: of the rows.
            selecting: whether rows that chose the weights count as well.
        """
        seen = self.trained
        if selecting and self.selected:
            seen = np.sort(np.concatenate([seen, self._below(self.held_out)]))
        looked_up = self._below(digests)
        count = len(looked_up)
        if not count or not len(seen):
            return Overlap(len(digests), 0, by_chance=True)
        values, times = np.unique(seen, return_counts=True)
        place = np.searchsorted(values, looked_up).clip(max=len(values) - 1)
        known = int(np.count_nonzero(values[place] == looked_up))
        chance = 1 - np.count_nonzero(times == 1) / (len(seen) + 1)
        usual = chance * count + 3 * np.sqrt(count * chance * (1 - chance))
        are_they = count == len(seen) and np.array_equal(np.sort(looked_up), seen)
        by_chance = bool(known <= usual + FEW * (1 - chance) * count) and not are_they
        return Overlap(len(digests), round(known / count * len(digests)), by_chance)

    def find_held_out(self, digests: Digests) -> Ints:
        """Return the numbers of the validation rows among some rows, ascending.

        In the dataset of the training these are exactly the rows that were held out; elsewhere the
        rows that equal them, as often as they were held out.
        """
        numbers = self.numbers
        same = len(numbers) and int(numbers.max()) < len(digests)
        if same and np.array_equal(digests[numbers], self.held_out):
            return np.sort(numbers)
        values, times = np.unique(self.held_out, return_counts=True)
        if not len(values):
            return np.zeros(0, dtype=np.int64)
        order = np.argsort(digests, kind="stable")
        ordered = digests[order]
        nth = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        place = np.searchsorted(values, ordered).clip(max=len(values) - 1)
        return np.sort(order[(values[place] == ordered) & (nth < times[place])])

    def save(self, path: Path) -> None:
        """Write the digests to a file."""
        tensors = {
            "trained": torch.from_numpy(self.trained.view(np.int64)),
            "held_out": torch.from_numpy(self.held_out.view(np.int64)),
            "numbers": torch.from_numpy(self.numbers),
        }
        metadata = {"format": FORMAT, "selected": self.selected, "bound": self.bound}
        write_tensors(path, tensors, metadata)

    @classmethod
    def load(cls, path: Path, later: Digests | None = None) -> SeenRows:
        """Read the digests of a model.

        Args:
            path: their file.
            later: those of rows that were remembered after training.
        """
        tensors, metadata = read_tensors(path)
        try:
            trained, held_out, numbers = (
                tensors[name].numpy() for name in ("trained", "held_out", "numbers")
            )
            found = cls(
                trained=trained.view(np.uint64),
                held_out=held_out.view(np.uint64),
                numbers=numbers,
                selected=bool(metadata["selected"]),
                bound=metadata["bound"],
            )
            return found if later is None or not len(later) else found.with_rows(later)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path} does not hold the rows of a model ({error}); copy the whole folder again"
            ) from None


def note_rows(pipeline: Pipeline, dataset: Dataset, trained: Ints, held_out: Ints) -> None:
    """Set which rows a pipeline was trained on.

    Args:
        pipeline: after its training.
        dataset: all rows.
        trained: the numbers of the training rows.
        held_out: the numbers of the validation rows.
    """
    own, held = (row_digests(pipeline, dataset.take(rows).inputs) for rows in (trained, held_out))
    chose = pipeline.config.get("training", {}).get("best_epoch") is not None
    numbers = np.asarray(held_out, dtype=np.int64)
    pipeline.seen = SeenRows(own, held, numbers, selected=chose and len(numbers) > 0)


# ---------------------------------------- row digests

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
    reads = None if preprocessor is None else preprocessor.reads
    if reads == "table":
        first = getattr(preprocessor, "steps", (preprocessor,))[0]  # all of a blend read the same
        return table_digests(first.read(inputs))
    if reads == "images":
        content = b"".join(digest[:8] for digest in as_images(inputs).digests())
        return np.frombuffer(content, dtype="<u8").astype(np.uint64)
    if reads == "texts" or isinstance(inputs, list):
        return text_digests(inputs)
    if hasattr(inputs, "tocsr"):
        return sparse_digests(inputs.tocsr())
    values = np.asarray(inputs, dtype=np.float32)
    size = max(1, CELLS // max(1, values.shape[1]))
    found = np.zeros(len(values), dtype=np.uint64)
    for begin in range(0, len(values), size):
        part = found[begin : begin + size]
        for column in number_bits(np.ascontiguousarray(values[begin : begin + size].T)):
            part[:] = mix(part ^ column)
    return found


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
