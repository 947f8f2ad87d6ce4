"""Encoded tables: some columns through frozen backbones, the others by their kinds, joined.

    row = [other columns as in ``table`` | features of the first encoder | of the second | ...]

Not one of ``FEATURES``: a training makes it of the encoders of its plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.datasets.images.images import Images
from hierlearn.datasets.tables.kinds import base_kind
from hierlearn.datasets.tables.table import Table, columns_summary
from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.embed import EmbedPreprocessor, part
from hierlearn.features.preprocessor import Preprocessor, stored
from hierlearn.features.table import TablePreprocessor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind

ROOT = "root"  # an option of a column of images: the folder of the files


class ColumnEncoder:
    """A frozen backbone for one column.

    Args:
        column: its name.
        options: ``source`` and the options of the backbone; ``root`` is the folder of images.
    """

    def __init__(self, column: str, options: Mapping[str, Any]) -> None:
        own = dict(options)
        if "tuning" in own and own.pop("tuning") != "frozen":
            raise HierlearnError(
                f"the encoder of column {column!r} is frozen; leave tuning out, or train on that "
                f"column alone with network={own.get('source')!r}"
            )
        self.column = column
        self.root = str(own.pop(ROOT, "."))
        self.step = EmbedPreprocessor(**own)
        if self.step.reads != "images" and ROOT in options:
            raise HierlearnError(f"root is for images, and {self.step.source} reads texts")

    def read(self, table: Table) -> Any:
        """Return the cells of the column as the backbone reads them."""
        cells = table.columns[self.column].tolist()
        if self.step.reads != "images":
            return cells
        empty = next((row for row, cell in enumerate(cells) if not cell), None)
        if empty is not None:
            raise DataError(
                f"row {empty} (counted from 0) has no image in column {self.column!r}; leave the "
                f"row out"
            )
        return Images.from_files(cells, self.root)

    def check(self, table: Table) -> None:
        """Raise on a table without the column, or with numbers in it."""
        if self.column not in table.kinds:
            raise HierlearnError(unknown_name("column of an encoder", self.column, table.kinds))
        kind = base_kind(table.kinds[self.column])
        if kind not in ("text", "category"):
            what = "texts" if self.step.reads == "texts" else "paths of images"
            raise HierlearnError(
                f"the encoder of column {self.column!r} reads {what}, but the column is a {kind}"
            )


class EncodedTablePreprocessor(Preprocessor[Any, Any]):
    """The columns of a table, some of them through frozen backbones.

    Args:
        encoders: ``source`` and options by column.
        options: of ``TablePreprocessor``, for the other columns.
    """

    name: ClassVar[str] = "encoded-table"
    reads: ClassVar[Kind] = "table"
    by_default: ClassVar[bool] = False

    def __init__(
        self, encoders: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any] | None = None
    ) -> None:
        self.given = {column: dict(own) for column, own in encoders.items()}
        self.encoders = [ColumnEncoder(column, own) for column, own in self.given.items()]
        self.rest = TablePreprocessor(**(options or {}))
        self.has_rest = False
        self._whole = TablePreprocessor()  # reads tables and frames, and is never fitted

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of every column that is read."""
        return self._whole.kinds

    @property
    def order(self) -> tuple[str, ...]:
        """All columns as they were given."""
        return self._whole.order

    @property
    def produces(self) -> Literal["numbers", "sparse"]:  # type: ignore[override]
        """What ``transform`` returns: sparse rows where other columns give these."""
        return self.rest.produces if self.has_rest else "numbers"

    @property
    def columns(self) -> int:
        """The columns of all parts."""
        own = self.rest.columns if self.has_rest else 0
        return own + sum(one.step.columns for one in self.encoders)

    @property
    def input_columns(self) -> int:
        """The number of columns that were given."""
        return len(self.order)

    def to(self, device: torch.device) -> Self:
        """Compute on a device."""
        for one in self.encoders:
            one.step.to(device)
        return self

    def summary(self) -> str:
        """Return what becomes of the columns."""
        encoded = ", ".join(f"{one.column} by {one.step.source}" for one in self.encoders)
        return f"{columns_summary(self.kinds, self._whole.ignored)}; encoded: {encoded}"

    def fit(self, inputs: Any) -> Self:
        """Read the backbones, and learn from the other columns."""
        if not isinstance(inputs, Table):
            raise HierlearnError(
                f"encoders of columns read a table, not {type(inputs).__name__}; name columns "
                f"with features="
            )
        for one in self.encoders:
            one.check(inputs)
        self._set(inputs.kinds, inputs.ignored, inputs.order)
        if self.has_rest:
            self.rest.fit(self._others(inputs))
        for one in self.encoders:
            one.step.fit(one.read(inputs))
        return self

    def _set(
        self, kinds: Mapping[str, str], ignored: Mapping[str, str], order: tuple[str, ...]
    ) -> None:
        self._whole.kinds, self._whole.ignored = dict(kinds), dict(ignored)
        self._whole.order = order
        self.has_rest = len(kinds) > len(self.encoders)

    def _others(self, table: Table) -> Table:
        """Return the columns without an encoder."""
        names = [name for name in self.kinds if name not in self.given]
        return Table({name: table.columns[name] for name in names}, self.kinds)

    def read(self, inputs: Any) -> Table:
        """Return rows as a table of the fitted columns."""
        return self._whole.read(inputs)

    def transform(self, inputs: Any) -> Any:
        """Return the rows of a table, or of a frame, as (N, columns) numbers."""
        table = self.read(inputs)
        encoded = [one.step.transform(one.read(table)) for one in self.encoders]
        if not self.has_rest:
            return np.concatenate(encoded, axis=1)
        rest = self.rest.transform(self._others(table))
        if self.produces == "numbers":
            return np.concatenate([rest, *encoded], axis=1)
        from scipy.sparse import csr_array, hstack

        parts = [rest, *(csr_array(one) for one in encoded)]
        return csr_array(hstack(parts, format="csr", dtype=np.float32))

    def newly_missing(self, inputs: Any) -> dict[int, NDArray[np.int64]]:
        """Return the rows without a value, for each column in which every training row has one."""
        if not self.has_rest:
            return {}
        found = self.rest.newly_missing(self._others(self.read(inputs)))
        own, every = [*self.rest.kinds], [*self.kinds]
        return {every.index(own[column]): rows for column, rows in found.items()}

    def plain_state(self) -> dict[str, Any]:
        """Return what becomes of the columns, without the weights."""
        rest = self.rest.plain_state() if self.has_rest else None
        return {"name": self.name, "encoders": self.given, "kinds": self.kinds, "rest": rest}

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings and the arrays of all parts."""
        settings: dict[str, Any] = {
            "name": self.name,
            "encoders": self.given,
            "kinds": self.kinds,
            "ignored": dict(self._whole.ignored),
            "order": list(self.order),
            "rest": None,
            "steps": [],
        }
        arrays: dict[str, NDArray[Any]] = {}
        if self.has_rest:
            settings["rest"], held = self.rest.state()
            arrays |= {f"rest/{key}": value for key, value in held.items()}
        for number, one in enumerate(self.encoders):
            own, held = one.step.state()
            settings["steps"].append(own)
            arrays |= {f"{number}/{key}": value for key, value in held.items()}
        return settings, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the encoders and the other columns."""
        new = cls(stored(settings, "encoders"))
        kinds, steps = dict(stored(settings, "kinds")), stored(settings, "steps")
        new._set(kinds, stored(settings, "ignored"), tuple(stored(settings, "order")))
        missing = [one.column for one in new.encoders if one.column not in kinds]
        if missing or len(steps) != len(new.encoders) or new.has_rest != bool(settings["rest"]):
            raise DataError(
                f"the stored preprocessor is damaged: {len(steps)} encoders must match the columns "
                f"{', '.join(new.given)}"
            )
        if new.has_rest:
            new.rest = TablePreprocessor.from_state(settings["rest"], part(arrays, "rest/"))
        for number, (one, own) in enumerate(zip(new.encoders, steps, strict=True)):
            one.step = EmbedPreprocessor.from_state(own, part(arrays, f"{number}/"))
        return new
