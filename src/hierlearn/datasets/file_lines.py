"""FileLines: the lines of a table that lies in several files, each named with its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FileLine(int):
    """The number of a row in the table, shown as its line in its own file: ``3 of b.parquet``."""

    shown: str

    def __str__(self) -> str:
        return self.shown

    def __format__(self, spec: str) -> str:
        return format(self.shown, spec)


class FileLines(Sequence[int]):
    """The lines of consecutive rows.

    Args:
        numbers: of the rows in the table, from 1.
        offsets: (F + 1,) the number of the first row of each file, from 0.
        names: of the files.
    """

    def __init__(self, numbers: range, offsets: NDArray[np.int64], names: Sequence[str]) -> None:
        self.numbers, self.offsets, self.names = numbers, offsets, names

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, row: int) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> FileLines: ...
    def __getitem__(self, row: int | slice) -> int | FileLines:
        if isinstance(row, slice):
            return FileLines(self.numbers[row], self.offsets, self.names)
        found = FileLine(self.numbers[row])
        file = int(np.searchsorted(self.offsets, found - 1, side="right")) - 1
        found.shown = f"{found - int(self.offsets[file])} of {self.names[file]}"
        return found
