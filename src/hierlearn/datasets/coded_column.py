"""CodedColumn: a column of a table that repeats a few values, such as the names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CodedColumn(Sequence[Any]):
    """A sequence of N cells, stored as a number per cell.

    Columns that share ``values``, or ``codes``, should share the object: what is made of them is
    then made once.

    Args:
        values: the distinct values; of one type.
        codes: (N,) which of them each cell is, from 0.
    """

    def __init__(self, values: Sequence[Any], codes: NDArray[np.int64]) -> None:
        self.values = values
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return CodedColumn(self.values, self.codes[place])
        return self.values[self.codes[place]]

    def __eq__(self, other: object) -> bool:
        """Whether the cells are those of another sequence."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the cells as an array."""
        del copy
        return np.asarray(self.values, dtype=dtype)[self.codes]

    def __repr__(self) -> str:
        return f"CodedColumn({len(self)} cells of {len(self.values)} values)"

    def take(self, places: Any) -> CodedColumn:
        """Return some of the cells."""
        return CodedColumn(self.values, self.codes[np.asarray(places, dtype=np.int64)])

    def to_arrow(self) -> Any:
        """Return the cells as a plain Arrow array."""
        import pyarrow as pa

        return pa.array(self.values).take(pa.array(self.codes))
