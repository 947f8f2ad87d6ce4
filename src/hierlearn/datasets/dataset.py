"""Dataset: inputs, annotated labels, the hierarchy they belong to, and named splits of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError, unknown_name
from hierlearn.hierarchy.labels import row_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Rows


@dataclass(frozen=True)
class Dataset:
    """Rows, their labels and the taxonomy.

    Attributes:
        inputs: (N, D) float32 with NaN where a value is missing, a SciPy CSR array of them, or
            a list of N texts.
        labels: the annotated labels of each row, as class names; a row may have none or several.
        hierarchy: the taxonomy the labels belong to.
        splits: row numbers by split name, usually "train", "valid" and "test"; a boolean mask of
            the rows is turned into numbers.
        name: how people call the dataset.
        feature_names: D names, empty for texts.
        source: where the rows come from, in one sentence.
    """

    inputs: NDArray[np.float32] | list[str]
    labels: list[list[str]]
    hierarchy: Hierarchy
    splits: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    name: str = ""
    feature_names: Sequence[str] = ()
    source: str = ""

    def __post_init__(self) -> None:
        rows = self.inputs.shape[0] if hasattr(self.inputs, "shape") else len(self.inputs)
        if rows != len(self.labels):
            raise DataError(f"inputs have {rows} rows but labels have {len(self.labels)}")
        splits = {
            name: row_numbers(rows, len(self), f"split {name!r}")
            for name, rows in self.splits.items()
        }
        object.__setattr__(self, "splits", splits)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_sparse(self) -> bool:
        """Whether the inputs are a sparse matrix."""
        return hasattr(self.inputs, "tocsr")

    @property
    def is_text(self) -> bool:
        """Whether the inputs are texts rather than numbers."""
        return isinstance(self.inputs, list) or getattr(self.inputs, "is_text", False)

    def take(self, rows: Rows) -> Dataset:
        """Return the dataset of the given rows, in that order, without splits.

        Args:
            rows: row numbers, a slice, or a boolean mask of all rows.
        """
        picked = row_numbers(rows, len(self))
        if isinstance(self.inputs, list):
            inputs: Any = [self.inputs[row] for row in picked]
        else:
            inputs = self.inputs[picked]
        return Dataset(
            inputs=inputs,
            labels=[self.labels[row] for row in picked],
            hierarchy=self.hierarchy,
            name=self.name,
            feature_names=self.feature_names,
            source=self.source,
        )

    def split(self, name: str) -> Dataset:
        """Return the rows of one split as a dataset of their own."""
        if name not in self.splits:
            raise DataError(unknown_name("split", name, self.splits))
        return self.take(self.splits[name])
