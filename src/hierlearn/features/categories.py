"""Categories: one column per category, and one for all that are rare.

A category has a column of its own where enough training rows have it, the most frequent ones first
up to a limit. All others, and those that no training row has, share the column "other". It exists
where some training row is in it: otherwise no model could have learned what it means, and a
category that is not known is 0 in all columns. An empty string is a category like any other.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError
from hierlearn.features.preprocessor import stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

MISSING, OTHER = "(missing)", "(other)"


class Categories:
    """One column of categories as zeros and ones.

    Args:
        kept: the categories with a column of their own, in order.
        other: whether the rest has a column.
    """

    def __init__(self, kept: Sequence[str], *, other: bool) -> None:
        self.kept = list(kept)
        self.other = other
        self._codes = {value: code for code, value in enumerate(self.kept)}

    @classmethod
    def fit(cls, values: NDArray[Any], most: int, least: int) -> Categories:
        """Learn from (N,) strings.

        Args:
            values: of the training rows.
            most: how many categories have a column at most.
            least: how many training rows a category must have.
        """
        counts = Counter(values.tolist())
        frequent = [value for value, count in counts.items() if count >= least]
        kept = sorted(frequent, key=lambda value: (-counts[value], value))[:most]
        return cls(sorted(kept), other=len(kept) < len(counts))

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(self.kept) + self.other

    def names(self, column: str) -> list[str]:
        """Return the names of the columns: ``color=red``."""
        values = [value or MISSING for value in self.kept] + [OTHER] * self.other
        return [f"{column}={value}" for value in values]

    def transform(self, values: NDArray[Any]) -> csr_array[np.float32]:
        """Return (N, columns) rows with a single 1, or none."""
        from scipy.sparse import csr_array

        rest = len(self.kept) if self.other else -1
        codes = np.array([self._codes.get(value, rest) for value in values.tolist()], np.int64)
        rows = np.flatnonzero(codes >= 0)
        ones = np.ones(len(rows), dtype=np.float32)
        return csr_array((ones, (rows, codes[rows])), shape=(len(values), self.columns))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and no arrays."""
        return {"kept": self.kept, "other": self.other}, {}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Categories:
        """Restore fitted categories."""
        del arrays
        kept = stored(settings, "kept")
        if len(set(kept)) < len(kept):
            raise DataError("the stored preprocessor is damaged: a category occurs twice")
        return cls(kept, other=bool(stored(settings, "other")))
