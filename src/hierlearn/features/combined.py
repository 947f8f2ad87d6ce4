"""Several: the results of several preprocessing steps side by side, for the parts of a blend.

Not one of ``FEATURES``: a blend makes it of the steps of its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hierlearn.datasets.images import Images
from hierlearn.datasets.tables.kinds import base_kind
from hierlearn.datasets.tables.table import Table, columns_summary
from hierlearn.errors import DataError, HierlearnError, arg, unknown_name
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.features.preprocessor import Preprocessor, join_columns, nest, nested, stored
from hierlearn.features.table import TablePreprocessor, read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind


ROOT = "root"  # an option of a column of images: the folder of the files


class SeveralPreprocessor(Preprocessor[Any, Any]):
    """Steps that read the same inputs; their columns follow each other.

    Args:
        steps: all of them read the same kind of inputs. Where one of them produces sparse rows, the
            columns of the others become sparse too.
    """

    name: ClassVar[str] = "several"
    reads: ClassVar[Kind] = "numbers"

    def __init__(self, steps: Sequence[Preprocessor[Any, Any]]) -> None:
        if not steps:
            raise HierlearnError("several needs at least one preprocessing step")
        found = {step.reads for step in steps}
        if len(found) > 1:
            raise HierlearnError(
                f"steps side by side must read the same, not {' and '.join(sorted(found))}"
            )
        self.steps = tuple(steps)
        self.reads: Kind = steps[0].reads  # type: ignore[misc]
        sparse = any(step.produces == "sparse" for step in steps)
        self.produces: Literal["numbers", "sparse"] = "sparse" if sparse else "numbers"  # type: ignore[misc]

    @property
    def columns(self) -> int:
        """The columns of all steps."""
        return sum(step.columns for step in self.steps)

    @property
    def input_columns(self) -> int | None:
        """The number of columns that ``transform`` reads."""
        return self.steps[0].input_columns

    def fit(self, inputs: Any) -> Self:
        """Fit every step."""
        for step in self.steps:
            step.fit(inputs)
        return self

    def transform(self, inputs: Any) -> Any:
        """Return the columns of all steps, one after another."""
        parts = [step.transform(inputs) for step in self.steps]
        return join_columns(parts, sparse=self.produces == "sparse")

    def newly_missing(self, inputs: Any) -> dict[int, NDArray[np.int64]]:
        """Return what is missing for any step."""
        found: dict[int, NDArray[np.int64]] = {}
        for step in self.steps:
            found |= step.newly_missing(inputs)
        return found

    def as_module(self) -> nn.Module | None:
        """Return the steps as one module, or None where one of them cannot be."""
        parts = [step.as_module() for step in self.steps]
        known = [part for part in parts if part is not None]
        return SideBySide(known) if len(known) == len(parts) else None

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings of all steps, and their arrays under the numbers of the steps."""
        settings: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {}
        for number, step in enumerate(self.steps):
            own, held = step.state()
            settings.append(own)
            arrays |= nest(number, held)
        return {"name": self.name, "steps": settings}, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the steps."""
        from hierlearn.features.registry import from_state

        held = enumerate(stored(settings, "steps"))
        steps = [from_state(own, nested(number, arrays)) for number, own in held]
        if not steps:
            raise DataError("the stored preprocessor is damaged: it has no steps")
        return cls(steps)


# ----------------------------------------------------------------------
# Chain: a step on the numbers that a frozen backbone returns.
#
# Not one of ``FEATURES``: a training makes it of the backbone and the step of its recipe.


def side_by_side(steps: Sequence[Preprocessor[Any, Any]]) -> Preprocessor[Any, Any]:
    """Return steps that read the same rows as one; a first step that they share is done once."""
    chains = [step for step in steps if isinstance(step, ChainPreprocessor)]
    if len(steps) == 1:
        return steps[0]
    if len(chains) < len(steps) or any(one.first is not chains[0].first for one in chains):
        return SeveralPreprocessor(steps)
    return ChainPreprocessor(chains[0].first, SeveralPreprocessor([one.second for one in chains]))


class ChainPreprocessor(Preprocessor[Any, Any]):
    """One step after another; both are fitted already.

    Args:
        first: from raw inputs to numbers.
        second: from these to what the network reads.
    """

    name: ClassVar[str] = "chain"
    reads: ClassVar[Kind] = "texts"

    def __init__(self, first: Preprocessor[Any, Any], second: Preprocessor[Any, Any]) -> None:
        self.first, self.second = first, second
        self.reads: Kind = first.reads  # type: ignore[misc]
        self.produces = second.produces  # type: ignore[misc]

    @property
    def columns(self) -> int:
        """The columns of the second step."""
        return self.second.columns

    def to(self, device: torch.device) -> Self:
        """Compute on a device."""
        self.first.to(device)
        return self

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the columns, where the first step reads a table."""
        found: dict[str, str] = self.first.kinds  # type: ignore[attr-defined]
        return found

    @property
    def order(self) -> tuple[str, ...]:
        """The columns as they were given, where the first step reads a table."""
        found: tuple[str, ...] = self.first.order  # type: ignore[attr-defined]
        return found

    def read(self, inputs: Any) -> Any:
        """Return rows as a table, where the first step reads one."""
        return self.first.read(inputs)  # type: ignore[attr-defined]

    def summary(self) -> str:
        """Return what the first step says of its columns."""
        return self.first.summary()

    def newly_missing(self, inputs: Any) -> dict[int, NDArray[Any]]:
        """Return what the first step finds missing."""
        return self.first.newly_missing(inputs)

    def fit(self, inputs: Any) -> Self:
        """Fit both steps."""
        self.second.fit(self.first.fit_transform(inputs))
        return self

    def transform(self, inputs: Any) -> Any:
        """Return what the second step makes of the first one's numbers."""
        return self.second.transform(self.first.transform(inputs))

    def as_module(self) -> nn.Module | None:
        """Return both steps as one module, or None where one of them cannot be."""
        first, second = self.first.as_module(), self.second.as_module()
        if first is None or second is None:
            return None
        module = nn.Sequential(first, second)
        if hasattr(first, "examples"):
            module.examples = first.examples  # how to draw raw rows
        return module

    @property
    def input_columns(self) -> int | None:
        """The number of columns that the first step reads."""
        return self.first.input_columns

    def plain_state(self) -> dict[str, Any]:
        """Return both as plain values."""
        steps = {"first": self.first.plain_state(), "second": self.second.plain_state()}
        return {"name": self.name, **steps}

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings and the arrays of both."""
        settings: dict[str, Any] = {"name": self.name}
        arrays: dict[str, NDArray[Any]] = {}
        for key, step in (("first", self.first), ("second", self.second)):
            settings[key], held = step.state()
            arrays |= nest(key, held)
        return settings, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore both."""
        from hierlearn.features.registry import from_state

        return cls(
            *(from_state(stored(settings, k), nested(k, arrays)) for k in ("first", "second"))
        )


# ----------------------------------------------------------------------
# Encoded tables: some columns through frozen backbones, the others by their kinds, joined.
#
#     row = [other columns as in ``table`` | features of the first encoder | of the second | ...]
#
# Not one of ``FEATURES``: a training makes it of the encoders of its plan.


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
        self.kinds: dict[str, str] = {}  # of every column that is read
        self.ignored: dict[str, str] = {}
        self.order: tuple[str, ...] = ()  # all columns as they were given

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
        return f"{columns_summary(self.kinds, self.ignored)}; encoded: {encoded}"

    def fit(self, inputs: Any) -> Self:
        """Read the backbones, and learn from the other columns."""
        if not isinstance(inputs, Table):
            raise HierlearnError(
                f"encoders of columns read a table, not {type(inputs).__name__}; name columns "
                f"with {arg('features=')}"
            )
        for one in self.encoders:
            one.check(inputs)
        self.kinds, self.ignored = dict(inputs.kinds), dict(inputs.ignored)
        self.order = inputs.order
        self.has_rest = len(self.kinds) > len(self.encoders)
        if self.has_rest:
            self.rest.fit(self._others(inputs))
        for one in self.encoders:
            one.step.fit(one.read(inputs))
        return self

    def _others(self, table: Table) -> Table:
        """Return the columns without an encoder."""
        names = [name for name in self.kinds if name not in self.given]
        return Table({name: table.columns[name] for name in names}, self.kinds)

    def read(self, inputs: Any) -> Table:
        """Return rows as a table of the fitted columns."""
        if not self.kinds:
            raise self._not_fitted()
        return read_rows(inputs, self.kinds, self.order)

    def transform(self, inputs: Any) -> Any:
        """Return the rows of a table, or of a frame, as (N, columns) numbers."""
        table = self.read(inputs)
        rest = [self.rest.transform(self._others(table))] if self.has_rest else []
        encoded = [one.step.transform(one.read(table)) for one in self.encoders]
        return join_columns([*rest, *encoded], sparse=self.produces == "sparse")

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
            "ignored": dict(self.ignored),
            "order": list(self.order),
            "rest": None,
            "steps": [],
        }
        arrays: dict[str, NDArray[Any]] = {}
        if self.has_rest:
            settings["rest"], held = self.rest.state()
            arrays |= nest("rest", held)
        for number, one in enumerate(self.encoders):
            own, held = one.step.state()
            settings["steps"].append(own)
            arrays |= nest(number, held)
        return settings, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the encoders and the other columns."""
        new = cls(stored(settings, "encoders"))
        new.kinds, new.ignored = dict(stored(settings, "kinds")), dict(stored(settings, "ignored"))
        new.order, steps = tuple(stored(settings, "order")), stored(settings, "steps")
        new.has_rest = len(new.kinds) > len(new.encoders)
        missing = [one.column for one in new.encoders if one.column not in new.kinds]
        if missing or len(steps) != len(new.encoders) or new.has_rest != bool(settings["rest"]):
            raise DataError(
                f"the stored preprocessor is damaged: {len(steps)} encoders must match the columns "
                f"{', '.join(new.given)}"
            )
        if new.has_rest:
            new.rest = TablePreprocessor.from_state(settings["rest"], nested("rest", arrays))
        for number, (one, own) in enumerate(zip(new.encoders, steps, strict=True)):
            one.step = EmbedPreprocessor.from_state(own, nested(number, arrays))
        return new


# ----------------------------------------------------------------------
# The torch module of several preprocessing steps side by side.


class SideBySide(nn.Module):
    """Modules that read the same rows; their columns follow each other.

    Args:
        parts: the modules.
    """

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the columns of all modules."""
        return torch.cat([part(inputs) for part in self.parts], dim=-1)

    def examples(self, noise: Tensor) -> Tensor:
        """Make raw rows out of noise as the first module does that can."""
        for part in self.parts:
            if hasattr(part, "examples"):
                found: Tensor = part.examples(noise)  # type: ignore[operator]
                return found
        return noise
