"""Mixed tables: every column by the step of its kind, side by side.

    numbers     standardized, or encoded by quantile bins, see ``piecewise``
    booleans    0 and 1; where one is missing that never was in training, their mean
    dates       see ``dates``
    missing     1 where the value of a column is missing, for columns with missing training values
    categories  see ``categories``
    texts       weighted words, see ``texts``
    encoded     what a frozen backbone makes of a column of texts, or of the paths of images

The rows are dense where there is no text but encoded ones and categories have few columns, else
sparse.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.datasets.images import Images
from hierlearn.datasets.tables.kinds import base_kind
from hierlearn.datasets.tables.table import (
    Table,
    check_columns,
    columns_summary,
    new_rows,
)
from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.features.numbers import NumericPreprocessor, PiecewiseLinearPreprocessor
from hierlearn.features.preprocessor import (
    Preprocessor,
    integer_option,
    join_columns,
    nest,
    nested,
    stored,
    stored_array,
)
from hierlearn.features.texts import TextPreprocessor
from hierlearn.hierarchy.names import is_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from scipy.sparse import csr_array
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Dataset, Kind

    Rows = Any  # (N, W) float32, dense or CSR
    Dates = NDArray[np.datetime64]

DENSE = 1000  # columns of categories up to which rows without texts are dense
NUMBERS: dict[str, type[Preprocessor[Any, Any]]] = {
    NumericPreprocessor.name: NumericPreprocessor,
    PiecewiseLinearPreprocessor.name: PiecewiseLinearPreprocessor,
}
ORIGIN = np.datetime64("2000-01-01", "D")
SCALED = ("year", "days")
CYCLES = {"month": 12, "weekday": 7, "hour": 24}


class TablePreprocessor(Preprocessor["Table", "Rows"]):
    """Preprocess the columns of a ``Table``, each by its kind.

    Columns are found by name, in any order; those of a frame are parsed as the training rows were.

    Args:
        numbers: the step of the numbers, "numeric" or "piecewise-linear". None is "numeric" for
            dense rows and "piecewise-linear" for sparse ones: those go through a linear model by
            default, which can only weigh the ranges of a number apart where they are columns.
        standardize: whether "numeric" centers and scales.
        encoders: the frozen backbones of some columns: ``source`` and options by column;
            ``root`` is the folder of images.
        max_categories: how many categories of a column have a column of their own at most.
        min_category_rows: how many training rows such a category must have.
        texts: whether columns of texts are used; rows without them are dense, as trees read them.
        text_options: the arguments of ``TextPreprocessor``, for all columns of texts.
    """

    name: ClassVar[str] = "table"
    reads: ClassVar[Kind] = "table"

    def __init__(
        self,
        *,
        numbers: str | None = None,
        standardize: bool = True,
        max_categories: int = 100,
        min_category_rows: int = 2,
        encoders: Mapping[str, Mapping[str, Any]] | None = None,
        texts: bool = True,
        **text_options: Any,
    ) -> None:
        if numbers is not None and numbers not in NUMBERS:
            raise HierlearnError(unknown_name("step of numbers", numbers, NUMBERS))
        self.numbers = numbers
        self.standardize = standardize
        self.max_categories = integer_option("max_categories", max_categories, 1, 2**31 - 1)
        self.min_category_rows = integer_option(
            "min_category_rows", min_category_rows, 1, 2**31 - 1
        )
        self.encoders = {name: ColumnEncoder(name, own) for name, own in (encoders or {}).items()}
        self.texts = texts
        self.text_options = text_options
        TextPreprocessor(**text_options)  # refuses wrong options
        self.kinds: dict[str, str] = {}  # of every column that is read, in order
        self.ignored: dict[str, str] = {}
        self.order: tuple[str, ...] = ()  # all columns as they were given, ignored ones too
        self._missing: dict[str, int] = {}  # training values that were missing
        self._usual: dict[str, float] = {}  # what stands for a missing boolean
        self._numbers: Preprocessor[Any, Any] | None = None
        self._parts: dict[str, Any] = {}  # of dates, categories and texts, by column

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the arguments it is made with, those for texts too."""
        made = ("encoders", "text_options")  # by a training
        own = tuple(name for name in super().options() if name not in made)
        return (*own, *TextPreprocessor.options())

    @classmethod
    def produces_for(cls, dataset: Dataset, **options: Any) -> Literal["numbers", "sparse"]:
        """Return what ``transform`` will return for a dataset, before anything is fitted."""
        if not cls.accepts(dataset):
            return "numbers"  # it is refused when it is made
        table: Any = dataset.inputs
        new = cls(**{key: value for key, value in options.items() if key in cls.options()})
        new.kinds = dict(table.kinds)
        if not new._named("text"):
            new._fit_categories(table)
        return new.produces

    @property
    def produces(self) -> Literal["numbers", "sparse"]:  # type: ignore[override]
        """What ``transform`` returns."""
        if self._named("text"):
            return "sparse"
        # Not by the numbers, whose columns depend on the recipe, and that on what is produced.
        width = sum(self._parts[name].columns for name in self._named("category"))
        return "numbers" if width <= DENSE else "sparse"

    @property
    def columns(self) -> int:
        """The number of columns that come out."""
        self._check_fitted()
        numbers = 0 if self._numbers is None else self._numbers.columns
        own = len(self._named("boolean")) + len(self._incomplete())
        encoded = (one.step for one in self.encoders.values())
        parts = (*self._parts.values(), *encoded)
        return numbers + own + sum(int(part.columns) for part in parts)

    @property
    def input_columns(self) -> int:
        """The number of columns that were given, ignored ones too."""
        self._check_fitted()
        return len(self.order)

    def summary(self) -> str:
        """Return how many columns of each kind were fitted, and which are ignored."""
        self._check_fitted()
        encoded = ", ".join(f"{name} by {one.step.source}" for name, one in self.encoders.items())
        return columns_summary(self.kinds, self.ignored) + (encoded and f"; encoded: {encoded}")

    def to(self, device: torch.device) -> Self:
        """Let the backbones compute on a device."""
        for one in self.encoders.values():
            one.step.to(device)
        return self

    # ------------------------------------------------------------------ fitting

    def fit(self, inputs: Table) -> Self:
        """Learn from the columns of the training rows."""
        if not isinstance(inputs, Table):
            raise DataError(
                f"inputs are {type(inputs).__name__}, not a Table; read a file with read_table"
            )
        if not len(inputs):
            raise DataError("cannot fit on 0 rows; give the training rows")
        for one in self.encoders.values():
            one.check(inputs.kinds)
        self.kinds, self.ignored = dict(inputs.kinds), dict(inputs.ignored)
        self.order = inputs.order
        self._missing = {name: int(inputs.missing(name).sum()) for name in inputs.names}
        self._usual = {
            # Where training rows lack one, that is a column of its own.
            name: 0.0 if self._missing[name] else float(np.mean(inputs.columns[name]))
            for name in self._named("boolean")
        }
        self._parts = {}
        for name in self._named("date"):
            self._parts[name] = DateParts.fit(inputs.columns[name])
        self._fit_categories(inputs)
        for name in self._named("text"):
            try:
                self._parts[name] = TextPreprocessor(**self.text_options).fit(inputs.columns[name])
            except DataError as error:
                raise DataError(f"column {name!r}: {error.message}") from None
        self._numbers = None
        if self._named("number"):
            name_of = self.numbers or (
                # The columns of categories and texts decide, as they do on what is produced.
                NumericPreprocessor.name
                if self.produces == "numbers" or not self.standardize
                else PiecewiseLinearPreprocessor.name
            )
            standardize = {"standardize": self.standardize} if name_of == "numeric" else {}
            self._numbers = NUMBERS[name_of](**standardize).fit(self._number_rows(inputs))
        for name, one in self.encoders.items():
            one.step.fit(one.read(inputs.columns[name]))
        return self

    def _fit_categories(self, table: Table) -> None:
        for name in self._named("category"):
            self._parts[name] = Categories.fit(
                table.columns[name], self.max_categories, self.min_category_rows
            )

    def _named(self, *kinds: str) -> list[str]:
        """Return the columns of some kinds that are used, and have no encoder."""
        used = [one for one in kinds if self.texts or one != "text"]
        named = (name for name, kind in self.kinds.items() if base_kind(kind) in used)
        return [name for name in named if name not in self.encoders]

    def _incomplete(self) -> list[str]:
        """Return the columns that get one more column, of where they are missing."""
        return [name for name in self._named("number", "boolean", "date") if self._missing[name]]

    def _number_rows(self, table: Table) -> NDArray[Any]:
        """Return (N, D) the number columns."""
        return np.stack([table.columns[name] for name in self._named("number")], axis=1)

    # ------------------------------------------------------------------ transforming

    def transform(self, inputs: Table) -> Rows:
        """Return the rows of a table, or of a frame, as (N, columns) numbers."""
        table = self.read(inputs)
        columns, parts = table.columns, self._parts
        dense: list[NDArray[Any]] = [np.zeros((len(table), 0), dtype=np.float32)]
        if self._numbers is not None:
            rows = self._number_rows(table)
            infinite = np.argwhere(np.isinf(rows))
            if len(infinite):
                row, column = infinite[0].tolist()
                raise DataError(
                    f"row {row} (counted from 0), column {self._named('number')[column]!r}: "
                    f"{rows[row, column]} is not a finite number; mark missing values with NaN"
                )
            dense.append(self._numbers.transform(rows))
        for name in self._named("boolean"):
            usual = self._usual.get(name, 0.0)
            dense.append(np.nan_to_num(columns[name], nan=usual)[:, None])
        dense += [parts[name].transform(columns[name]) for name in self._named("date")]
        dense += [table.missing(name)[:, None] for name in self._incomplete()]
        sparse = self.produces == "sparse"
        names = [*self._named("category"), *self._named("text")]
        found: list[Any] = [parts[name].transform(columns[name]) for name in names]
        if not sparse:
            found = [part.toarray() for part in found]
        joined = np.concatenate(dense, axis=1, dtype=np.float32)
        found += [
            one.step.transform(one.read(columns[name])) for name, one in self.encoders.items()
        ]
        return join_columns([joined, *found], sparse=sparse)

    def read(self, inputs: Any) -> Table:
        """Return rows as a table of the fitted columns; raise on missing and unknown ones."""
        self._check_fitted()
        return read_rows(inputs, self.kinds, self.order)

    def newly_missing(self, inputs: Table) -> dict[int, NDArray[np.int64]]:
        """Return the rows without a value, for each column in which every training row has one."""
        self._check_fitted()
        table = self.read(inputs)
        complete = [
            (number, name)
            for number, name in enumerate(self.kinds)
            if not self._missing[name] and name not in self.encoders
        ]
        found = {column: np.flatnonzero(table.missing(name)) for column, name in complete}
        return {column: rows for column, rows in found.items() if len(rows)}

    # ------------------------------------------------------------------ saving

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings with those of every part, and the arrays of all parts."""
        self._check_fitted()
        settings: dict[str, Any] = {
            "name": self.name,
            "numbers": self.numbers,
            "standardize": self.standardize,
            "max_categories": self.max_categories,
            "min_category_rows": self.min_category_rows,
            "encoders": {name: one.given for name, one in self.encoders.items()},
            "texts": self.texts,
            "text_options": dict(self.text_options),
            "kinds": dict(self.kinds),
            "ignored": dict(self.ignored),
            "order": list(self.order),
            "missing": dict(self._missing),
            "usual": dict(self._usual),
        }
        steps = [] if self._numbers is None else [self._numbers]
        parts: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {}
        for place, step in enumerate([*steps, *self._parts.values()]):
            own, held = step.state()
            parts.append(own)
            arrays |= nest(place, held)
        steps_of = {}
        for place, (name, one) in enumerate(self.encoders.items()):
            steps_of[name], held = one.step.state()
            arrays |= nest(f"encoder {place}", held)
        return {**settings, "parts": parts, "encoder_steps": steps_of}, arrays

    def plain_state(self) -> dict[str, Any]:
        """Return the state as plain values, without the weights of backbones."""
        settings, arrays = self.state()
        own = {k: array.tolist() for k, array in arrays.items() if not k.startswith("encoder ")}
        return {**{k: v for k, v in settings.items() if k != "encoder_steps"}, **own}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        own = ("numbers", "standardize", "max_categories", "min_category_rows", "texts")
        given = {key: stored(settings, key) for key in own} | stored(settings, "text_options")
        new = cls(**given, encoders=settings.get("encoders"))
        new.kinds, new.ignored = dict(stored(settings, "kinds")), dict(stored(settings, "ignored"))
        new.order, new._missing = tuple(stored(settings, "order")), stored(settings, "missing")
        new._usual = dict(settings.get("usual", {}))
        ordered = [*new._named("date"), *new._named("category"), *new._named("text")]
        has_numbers = bool(new._named("number"))
        parts = stored(settings, "parts")
        if len(parts) != has_numbers + len(ordered) or set(new._missing) != set(new.kinds):
            raise DataError(
                f"the stored preprocessor is damaged: {len(parts)} parts must match the "
                f"{len(new.kinds)} columns {', '.join(new.kinds)}"
            )
        held = [nested(place, arrays) for place in range(len(parts))]
        if has_numbers:
            name = stored(parts[0], "name")
            if name not in NUMBERS:
                raise DataError(unknown_name("step of numbers", str(name), NUMBERS))
            new._numbers = NUMBERS[name].from_state(parts[0], held[0])
        for place, name in enumerate(ordered, start=int(has_numbers)):
            parts_of_kind = {"category": Categories, "date": DateParts, "text": TextPreprocessor}
            step: Any = parts_of_kind[base_kind(new.kinds[name])]
            new._parts[name] = step.from_state(parts[place], held[place])
        for place, (name, one) in enumerate(new.encoders.items()):
            state = stored(stored(settings, "encoder_steps"), name)
            one.step = EmbedPreprocessor.from_state(state, nested(f"encoder {place}", arrays))
        return new

    def _check_fitted(self) -> None:
        self._learned(self.kinds or None)


class ColumnEncoder:
    """A frozen backbone for one column.

    Args:
        column: its name.
        options: ``source`` and the options of the backbone; ``root`` is the folder of images.
    """

    def __init__(self, column: str, options: Mapping[str, Any]) -> None:
        self.column, self.given = column, dict(options)
        own = dict(options)
        if own.pop("tuning", "frozen") != "frozen":
            raise HierlearnError(
                f"the encoder of column {column!r} is frozen; leave tuning out, or train on that "
                f"column alone with network={own.get('source')!r}"
            )
        self.root = str(own.pop("root", "."))
        self.step = EmbedPreprocessor(**own)
        if self.step.reads != "images" and "root" in options:
            raise HierlearnError(f"root is for images, and {self.step.source} reads texts")

    def read(self, column: NDArray[Any]) -> Any:
        """Return the cells of the column as the backbone reads them."""
        cells = column.tolist()
        if self.step.reads != "images":
            return cells
        if "" in cells:
            raise DataError(
                f"row {cells.index('')} (counted from 0) has no image in column {self.column!r}; "
                f"leave the row out"
            )
        return Images.from_files(cells, self.root)

    def check(self, kinds: Mapping[str, str]) -> None:
        """Raise on a table without the column, or with numbers in it."""
        if self.column not in kinds:
            raise HierlearnError(unknown_name("column of an encoder", self.column, kinds))
        kind = base_kind(kinds[self.column])
        if kind not in ("text", "category"):
            what = "texts" if self.step.reads == "texts" else "paths of images"
            raise HierlearnError(
                f"the encoder of column {self.column!r} reads {what}, but the column is a {kind}"
            )


def read_rows(inputs: Any, kinds: Mapping[str, str], order: Sequence[str]) -> Table:
    """Return rows of a table or frame as a table of the fitted columns.

    Args:
        inputs: the rows; their columns may stand in any order, and strings may be either kind.
        kinds: the kind of every column that is read.
        order: all columns of the training rows, ignored ones too.
    """
    if not isinstance(inputs, Table):
        if is_frame(inputs):
            return new_rows(inputs, kinds, order)
        raise DataError(
            f"the model reads a table with the columns {', '.join(kinds)}, not "
            f"{type(inputs).__name__}; give a DataFrame with these columns"
        )
    check_columns(inputs.names, tuple(kinds), order)
    for name, kind in kinds.items():
        wanted, found = base_kind(kind), base_kind(inputs.kinds[name])
        if wanted != found and {wanted, found} != {"category", "text"}:
            raise DataError(
                f"column {name!r} is a {found} here, but a {wanted} in the training rows; read "
                f"the table with column_kinds={{{name!r}: {kind!r}}}"
            )
    return Table({name: inputs.columns[name] for name in kinds}, kinds)


# ----------------------------------------------------------------------
# Categories: one column per category, and one for all that are rare.
#
# A category has a column of its own where enough training rows have it, the most frequent ones
# first up to a limit. All others, and those that no training row has, share the column "other". It
# exists where some training row is in it: otherwise no model could have learned what it means, and
# a category that is not known is 0 in all columns. An empty string is a category like any other.


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


# ---------------------------------------- Dates: what a network can learn from a day and a time
#
#     year, days since 2000-01-01           standardized
#     month, weekday, hour as an angle a    sin a, cos a
#
# so that December is near January. The hour is left out where every training date is at midnight. A
# missing date is 0 everywhere.


class DateParts:
    """One column of dates as numbers.

    Args:
        mean: (2,) of year and days over the training rows.
        scale: (2,) their standard deviations, 1 where they are constant.
        timed: whether some training date has a time.
    """

    def __init__(
        self, mean: NDArray[np.float64], scale: NDArray[np.float64], *, timed: bool
    ) -> None:
        self.mean = mean
        self.scale = scale
        self.timed = timed

    @classmethod
    def fit(cls, values: Dates) -> DateParts:
        """Learn from (N,) dates, NaT where one is missing."""
        known = values[~np.isnat(values)]
        if not len(known):
            return cls(np.zeros(2), np.ones(2), timed=False)
        parts = np.stack([date_parts(known)[name] for name in SCALED], axis=1)
        deviation = parts.std(axis=0)
        constant = parts.min(axis=0) == parts.max(axis=0)
        midnight = known.astype("datetime64[D]").astype(known.dtype)
        return cls(
            parts.mean(axis=0),
            np.where(constant, 1.0, deviation),
            timed=bool(np.any(known != midnight)),
        )

    @property
    def cycles(self) -> list[str]:
        """The parts that are angles."""
        return [name for name in CYCLES if name != "hour" or self.timed]

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(SCALED) + 2 * len(self.cycles)

    def transform(self, values: Dates) -> NDArray[np.float32]:
        """Return (N, columns) numbers."""
        missing = np.isnat(values)
        parts = date_parts(np.where(missing, ORIGIN, values))
        scaled = np.stack([parts[name] for name in SCALED], axis=1)
        found = [(scaled - self.mean) / self.scale]
        for name in self.cycles:
            angle = 2 * np.pi * parts[name] / CYCLES[name]
            found.append(np.stack([np.sin(angle), np.cos(angle)], axis=1))
        result = np.concatenate(found, axis=1).astype(np.float32)
        result[missing] = 0
        return result

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return whether there are times, and the arrays mean and scale."""
        return {"timed": self.timed}, {"mean": self.mean.copy(), "scale": self.scale.copy()}

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> DateParts:
        """Restore fitted dates."""
        mean, scale = (
            stored_array(arrays, name, (2,)).astype(np.float64) for name in ("mean", "scale")
        )
        return cls(mean, scale, timed=bool(stored(settings, "timed")))


def date_parts(values: Dates) -> dict[str, NDArray[np.float64]]:
    """Return year, days, month from 0, weekday from Monday as 0, and hour of known dates."""
    days = values.astype("datetime64[D]")
    months = values.astype("datetime64[M]").astype(np.int64)
    seconds = values.astype("datetime64[s]").astype(np.int64)
    since = (days - ORIGIN).astype(np.int64)
    return {
        "year": (months // 12 + 1970).astype(np.float64),
        "days": since.astype(np.float64),
        "month": (months % 12).astype(np.float64),
        "weekday": ((since + 5) % 7).astype(np.float64),  # 2000-01-01 was a Saturday
        "hour": (seconds % 86400) / 3600,
    }
