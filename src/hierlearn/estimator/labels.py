"""LabelFormat: how labels were given, so that answers come back in the same form.

    one      one label per row: a string (a path), or a number or boolean of a flat problem
    levels   one path per row by levels, top level first: an (N, L) table, or a list per row such as
             ["animal", "dog"]; missing below the last one known
    several  several labels per row: a set of labels, a list of paths that hold the separator
             (["animal/dog", "pet"]), or a list of paths by levels ([["animal", "dog"], ["pet"]])

A list is ordered and a set is not: ["animal", "dog"] is a dog, {"red", "round"} has two labels.
Where some list holds the separator, which no name of a level can, all lists are lists of paths;
rows that come after the training are read as the training's were.

A row without a label is None, "", NaN, NA, an empty list, or a row of missing cells. A number names
a flat class, or, where a hierarchy is given, is the number of a class in it.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hierlearn.errors import (
    DataError,
    HierarchyError,
    HierlearnError,
    LabelError,
    arg,
    quoted,
    shown,
)
from hierlearn.estimator.parameters import as_plain
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels, has_no_label
from hierlearn.hierarchy.names import (
    has_gap,
    inherit_titles,
    is_missing,
    level_path,
    warn_of_gaps,
    warn_of_other_sep,
)
from hierlearn.memory.taxonomy import grown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.hierarchy.names import Label


Shape = Literal["one", "several", "levels"]

FLOAT = np.dtype(float)
SETS = (set, frozenset)
NUMERIC = "biuf"  # kinds of NumPy's numbers and booleans
COLUMN = (  # scikit-learn's own words, which its users know
    "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
    "(n_samples, ), for example using ravel()."
)


@dataclass(frozen=True)
class ParsedLabels:
    """The labels of N rows, read but not yet looked up.

    Attributes:
        shape: their shape.
        rows: the labels of each row, strings or numbers.
        cells: for levels, the cell of each name that was not a string.
        columns: for levels, L.
        plain: whether strings came as an array of strings, or a list without a missing one.
        listed: whether levels came as a list per row rather than as a table.
    """

    shape: Shape
    rows: list[list[Any]]
    cells: Mapping[str, Any] = field(default_factory=dict)
    columns: int = 0
    plain: bool = True
    listed: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def labels(self) -> Iterator[tuple[int, Any]]:
        """Give every label with its row."""
        return ((row, label) for row, labels in enumerate(self.rows) for label in labels)

    @cached_property
    def are_numbers(self) -> bool:
        """Whether the labels are numbers or booleans; a mixture with strings raises."""
        first: tuple[int, Any] | None = None
        for row, label in self.labels():
            if not is_number(label) and not isinstance(label, str):
                kind = type(label).__name__
                raise LabelError(
                    f"row {row}: a label is a string or a number, not {label!r} ({kind})"
                )
            if first is None:
                first = row, label
            elif is_number(label) != is_number(first[1]):
                raise LabelError(
                    f"row {row} has the label {label!r}, but row {first[0]} has {first[1]!r}; "
                    f"give strings or numbers, not both"
                )
        return first is not None and is_number(first[1])


def is_number(label: object) -> bool:
    """Whether a label is a number or a boolean."""
    return isinstance(label, (int, float, np.number, np.bool_))


def parse_labels(y: Any, sep: str = "/", shape: Shape | None = None) -> ParsedLabels:
    """Parse labels in any of their forms.

    Args:
        y: a sequence with one entry per row, or an (N, L) array or frame, one column per level.
        sep: what joins the names of a path.
        shape: that of the training labels, by which lists are read; None for training labels.
    """
    if y is None:
        raise DataError(
            "HierarchicalClassifier requires y to be passed, but the target y is None; "
            "give a label, or several, per row"
        )
    if isinstance(y, (str, bytes)):
        raise LabelError(f"labels are a list with one entry per row, not one string {y!r}")
    if hasattr(y, "tocsr"):
        raise LabelError("labels are a sparse matrix; give a set of labels per row")
    if hasattr(y, "columns"):  # a frame of pandas or polars
        rows = y.iter_rows() if hasattr(y, "iter_rows") else y.itertuples(index=False, name=None)
        return parse_levels(list(rows), len(y.columns), sep)
    if isinstance(y, (list, tuple)) or not isinstance(getattr(y, "dtype", FLOAT), np.dtype):
        # Frames' own types hold what NumPy's cannot.
        return parse_entries(list(y), sep, shape, plain=True)
    array = np.asarray(y)
    if array.ndim == 2:
        check_no_indicators(array)
        return parse_levels(array.tolist(), array.shape[1], sep)
    if array.ndim != 1:
        raise LabelError(
            f"y should be a 1d array, or (N, L) with one column per level: {array.shape}"
        )
    if array.dtype.kind in NUMERIC:
        check_numbers(array)
        return ParsedLabels("one", [[label] for label in array])
    return parse_entries(array, sep, shape, plain=array.dtype.kind == "U")


def parse_entries(
    entries: Sequence[Any] | NDArray[Any], sep: str, shape: Shape | None, *, plain: bool
) -> ParsedLabels:
    """Parse a sequence with a label, a list or a set of labels, or nothing per row."""
    if not any(is_list(entry) for entry in entries):
        rows = [[] if has_no_label(entry) else [entry] for entry in entries]
        given = ParsedLabels("one", rows, plain=plain and all(rows))
        if given.are_numbers:
            check_numbers(np.asarray([label for _, label in given.labels()]))
        return given
    if shape == "several" or holds_several(entries, sep):
        rows = []
        for entry in entries:
            if not is_list(entry):
                rows.append([] if has_no_label(entry) else [entry])
                continue
            labels = sorted(entry, key=str) if isinstance(entry, SETS) else entry
            rows.append([sep.join(level_path(x, sep)) if is_list(x) else x for x in labels])
        return ParsedLabels("several", rows)
    table: list[list[Any]] = []
    for number, entry in enumerate(entries):
        if not is_list(entry) and not has_no_label(entry):
            raise LabelError(
                f"row {number} is {shown(entry)}, but other rows are lists: a list is one path by "
                f"levels, from the top down; give lists for all rows, or a set of paths for rows "
                f"with several labels"
            )
        table.append(list(entry) if is_list(entry) else [])
    columns = max(1, *map(len, table))
    padded = [row + [None] * (columns - len(row)) for row in table]
    if columns > 1 and padded == table:
        check_no_indicators(np.asarray(table))
    return replace(parse_levels(padded, columns, sep), listed=True)


def holds_several(entries: Sequence[Any] | NDArray[Any], sep: str) -> bool:
    """Whether some row says by its form that rows have several labels; see above.

    Raises:
        LabelError: where a set says so, but a list could be a path by levels.
    """
    rows = [(number, entry) for number, entry in enumerate(entries) if is_list(entry)]
    if any(
        is_list(label) or (isinstance(label, str) and sep in label)
        for _, entry in rows
        if not isinstance(entry, SETS)
        for label in entry
    ):
        return True
    if not any(isinstance(entry, SETS) for _, entry in rows):
        return False
    for number, entry in rows:
        if not isinstance(entry, SETS) and len(entry) > 1:
            raise LabelError(
                f"row {number} is a list, {list(entry)}, but other rows are sets: a list is "
                f"one path by levels, a set holds several labels; give sets for all rows"
            )
    return True


def is_list(entry: object) -> bool:
    """Whether a row's entry holds labels rather than being one."""
    return not isinstance(entry, (str, bytes)) and hasattr(entry, "__iter__")


def check_numbers(values: NDArray[Any]) -> None:
    """Raise on numbers that name no classes, in scikit-learn's words."""
    from sklearn.utils import check_array
    from sklearn.utils.multiclass import check_classification_targets

    check_array(values, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
    if len(values):
        check_classification_targets(values)


def check_no_indicators(array: NDArray[Any]) -> None:
    """Raise on a matrix of zeros and ones, which is hardly one column per level."""
    if array.shape[1] > 1 and array.dtype.kind in NUMERIC and np.isin(array, (0, 1)).all():
        raise LabelError(
            f"y {array.shape} holds zeros and ones only: an indicator matrix and one column per "
            f"level look alike; give a set of labels per row"
        )


def parse_levels(table: list[Any], columns: int, sep: str) -> ParsedLabels:
    """Parse rows of cells, one per level; 2.0 is 2, since a frame with gaps holds no integers."""
    if columns == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(COLUMN, DataConversionWarning, stacklevel=5)
        return parse_labels(np.asarray([row[0] for row in table]))
    rows: list[list[str]] = []
    gaps: list[tuple[int, str]] = []
    cells: dict[str, Any] = {}
    for number, given in enumerate(table):
        row = [int(c) if isinstance(c, float) and c.is_integer() else c for c in given]
        try:
            path = level_path(row, sep)
        except HierarchyError as error:
            raise LabelError(
                f"row {number}: {error.message} (a row has one name per level; for several labels "
                "give a "
                f"set of paths per row)"
            ) from None
        known = (cell for cell in row if not is_missing(cell))
        cells.update((str(cell), cell) for cell in known if not isinstance(cell, str))
        if has_gap(row):
            gaps.append((number, sep.join(path)))
        rows.append([sep.join(path)] if path else [])
    if gaps:
        warn_of_gaps("y", len(gaps), f"row {gaps[0][0]}", gaps[0][1])
    return ParsedLabels("levels", rows, cells, columns)


def name_of(label: Any) -> str:
    """Return the name of the flat class that a number stands for; 2.0 and 2 are the same."""
    if isinstance(label, (float, np.floating)) and float(label).is_integer():
        return str(int(label))
    return str(label)


@dataclass(frozen=True)
class LabelFormat:
    """The form of the training labels, which is the form of the answers.

    Attributes:
        hierarchy: the taxonomy.
        shape: the shape of the labels.
        inferred: whether the hierarchy was inferred from the labels.
        numbers: whether labels are class numbers of a given hierarchy.
        values: the label of a class, where that is not its name.
        dtype: of an array of labels, where every class has one of that type.
        columns: for levels, L.
    """

    hierarchy: Hierarchy
    shape: Shape = "one"
    inferred: bool = False
    numbers: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "object"
    columns: int = 0

    @classmethod
    def from_labels(
        cls,
        given: ParsedLabels,
        hierarchy: Hierarchy | None,
        sep: str,
        listing: ParsedLabels | None = None,
    ) -> Self:
        """Return the form of labels, and infer their hierarchy where none is given.

        Args:
            given: the labels.
            hierarchy: the taxonomy, if there is one.
            sep: what joins the names of a path otherwise.
            listing: all labels that may occur; by default those that do.
        """
        listing = listing or given
        numbers = listing.are_numbers
        labels = [label for _, label in listing.labels()]
        values: dict[str, Any] = {**listing.cells, **given.cells}
        inferred = hierarchy is None
        if hierarchy is None:
            if not labels:
                raise LabelError(
                    f"none of the {len(listing)} rows has a label, so no hierarchy can be "
                    f"inferred; give one with {arg('hierarchy=')}"
                )
            if numbers:
                values |= {name_of(label): as_plain(label) for label in labels}
            names = sorted({name_of(label) if numbers else label for label in labels})
            warn_of_other_sep(names, sep)
            hierarchy = Hierarchy.from_paths(names, sep=sep)
        elif given.listed:  # a list that is no path may be one of several labels
            for row, path in given.labels():
                if path in hierarchy:
                    continue
                names = [given.cells.get(name, name) for name in path.split(hierarchy.sep)]
                hint = f"known are {quoted(hierarchy.names, most=3)}"
                if len(names) > 1 and all(name in hierarchy for name in names):
                    hint = f"for several labels give a set, {{{', '.join(map(repr, names))}}}"
                raise LabelError(
                    f"row {row}: the list {names} is one path by levels, and {path!r} is no "
                    f"class of the hierarchy; {hint}"
                )
        dtype = str(np.asarray(labels).dtype) if numbers else "str" if given.plain else "object"
        class_numbers = numbers and not inferred
        return cls(hierarchy, given.shape, inferred, class_numbers, values, dtype, given.columns)

    @classmethod
    def of_answers(cls, answers: str, hierarchy: Hierarchy) -> Self:
        """Return the form that fits a decoder, for a model that has seen no Python labels."""
        return cls(hierarchy, "one" if answers == "class" else "several", dtype="str")

    def names(self, given: ParsedLabels) -> list[list[Label]]:
        """Return the labels of each row as Labels takes them: names, or class numbers."""
        if not given.are_numbers:
            return given.rows
        names, known = self.hierarchy.names, set(self.hierarchy.names)
        for row, label in given.labels():
            if self.numbers:
                if isinstance(label, (bool, np.bool_)) or int(label) != label:
                    raise LabelError(f"row {row}: {label!r} is no class number of the hierarchy")
            elif name_of(label) not in known:
                raise LabelError(
                    f"row {row}: the label {label!r} is none of the {len(known)} classes; name all "
                    f"of them when training begins"
                )
        if self.numbers:
            return [[names[self.hierarchy.index(int(x))] for x in row] for row in given.rows]
        return [[name_of(label) for label in labels] for labels in given.rows]

    def class_names(self, given: ParsedLabels) -> list[list[str]]:
        """Return the labels of each row by the names of their classes."""
        names, index = self.hierarchy.names, self.hierarchy.index
        return [[names[index(label)] for label in row] for row in self.names(given)]

    def extended(self, given: ParsedLabels, hierarchy: Hierarchy | None) -> LabelFormat:
        """Return the form with the classes of new rows.

        Args:
            given: the labels of the new rows.
            hierarchy: has their classes, where the labels do not tell the parents.
        """
        check_hierarchy(hierarchy)
        labels = [label for _, label in given.labels()]
        known = self.hierarchy
        if hierarchy is None and self.inferred:
            names = {name_of(label) if given.are_numbers else label for label in labels}
            new = [name for name in names if name not in known]
            if new:
                paths = Hierarchy.from_paths([*known.names, *new], sep=known.sep)
                known = inherit_titles(paths, known)
        elif hierarchy is None and not given.are_numbers:
            known = grown(known, iter(labels))
        form = replace(self, hierarchy=hierarchy or known, values={**self.values, **given.cells})
        return with_values(form, labels) if given.are_numbers and not form.numbers else form

    # ------------------------------------------------------------------ answers

    def label(self, number: int) -> Any:
        """Return the label of a class; None for the root, -1."""
        if number < 0:
            return None
        if self.numbers:
            return number
        name = self.hierarchy.names[number]
        return name if self.shape == "levels" else self.values.get(name, name)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether labels were numbers, but some class is known by its name only."""
        if self.numbers or self.dtype == "object" or np.dtype(self.dtype).kind not in NUMERIC:
            return False
        return any(name not in self.values for name in self.hierarchy.names)

    def classes(self, label_space: LabelSpace) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the label of every column of ``predict_proba``, and the class number of each.

        One label per row: the terminal classes in the order of their labels, as everywhere in
        scikit-learn. Several: all classes, in the hierarchy's order, or in that of the labels where
        they are flat and no hierarchy was given.
        """
        several = self.shape == "several"
        numbers = np.arange(len(self.hierarchy)) if several else label_space.terminals
        labels = self.array(numbers.tolist())
        flat = self.inferred and self.hierarchy.depth == 1
        if self.is_mixed or (several and not flat):
            return labels, numbers
        order = np.argsort(labels, kind="stable")
        return labels[order], numbers[order].astype(np.int64)

    def array(self, numbers: Iterable[int]) -> NDArray[Any]:
        """Return the labels of classes as an array; of objects where one is the root, or mixed."""
        found = [self.label(number) for number in numbers]
        if self.is_mixed or self.dtype == "object" or any(label is None for label in found):
            return as_objects(found)
        return np.asarray(found, dtype=self.dtype)

    def answer(self, numbers: Sequence[int]) -> Any:
        """Return decisions, each one class or the root, in the form of the labels."""
        if self.shape == "several":
            return [[] if number < 0 else [self.label(number)] for number in numbers]
        if self.shape == "one":
            return self.array(numbers)
        cells = {number: self.cells(number) for number in set(numbers)}
        width = max([self.columns, *(len(row) for row in cells.values())])
        table = np.full((len(numbers), width), None, dtype=object)
        for row, number in enumerate(numbers):
            table[row, : len(cells[number])] = cells[number]
        return table

    def cells(self, number: int) -> list[Any]:
        """Return the names on the way down to a class, as they were in the table."""
        path: list[str] = []
        while number >= 0:
            path.append(self.hierarchy.bare_names[number])
            number = int(self.hierarchy.structure.first_parents[number])
        return [self.values.get(name, name) for name in reversed(path)]

    def answer_sets(self, rows: Iterable[Iterable[int]]) -> list[list[Any]]:
        """Return a list of labels per row."""
        return [[self.label(number) for number in row] for row in rows]

    # ------------------------------------------------------------------ a folder

    def to_dict(self) -> dict[str, Any]:
        """Return all but the hierarchy, fit for JSON."""
        return {
            "shape": self.shape,
            "inferred": self.inferred,
            "numbers": self.numbers,
            "values": [[name, as_plain(value)] for name, value in self.values.items()],
            "dtype": self.dtype,
            "columns": self.columns,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any], hierarchy: Hierarchy) -> Self:
        """Restore what ``to_dict`` returned."""
        return cls(hierarchy, **{**form, "values": dict(form["values"])})


def check_hierarchy(hierarchy: object) -> None:
    """Raise on a hierarchy that is not one, such as the name of a file."""
    if hierarchy is not None and not isinstance(hierarchy, Hierarchy):
        raise HierlearnError(
            f"hierarchy is {hierarchy!r}, not a Hierarchy; build one with "
            f"Hierarchy.from_paths, or read a file with Hierarchy.read"
        )


def as_objects(values: list[Any]) -> NDArray[Any]:
    """Return an object array of values as they are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


# ---------------------------------------- more classes


def as_ids(ids: Iterable[str | int] | str | int) -> list[str]:
    """Return one id or several as a list of strings."""
    return [str(ids)] if isinstance(ids, (str, int, np.integer)) else [str(one) for one in ids]


def with_values(form: LabelFormat, labels: Iterable[Any]) -> LabelFormat:
    """Return the form in which numbers among some labels are those of their classes.

    Args:
        form: the form of training labels; one of strings stays as it is.
        labels: labels, lists of labels, or None.
    """
    rows = [label if is_list(label) else [label] for label in labels]
    numbers = [label for row in rows for label in row if is_number(label)]
    if not numbers or form.dtype == "object" or np.dtype(form.dtype).kind not in NUMERIC:
        return form
    values = {name_of(label): as_plain(label) for label in numbers}
    dtype = str(np.result_type(np.dtype(form.dtype), np.asarray(numbers)))
    return replace(form, values={**form.values, **values}, dtype=dtype)


def class_of(label: Any, form: LabelFormat) -> str:
    """Return the class that a label means, by name; what a string means is checked later.

    Args:
        label: a string or a number.
        form: the form of the labels, which says what a number means.
    """
    if not is_number(label):
        return str(label)
    hierarchy, name = form.hierarchy, label if form.numbers else name_of(label)
    found = hierarchy.names[hierarchy.index(name)] if name in hierarchy else None
    if found is None or not (form.numbers or found == name):
        raise LabelError(
            f"the label {as_plain(label)!r} is no class of {hierarchy!r}; name classes by their "
            f"paths, or by numbers such as fit was given"
        )
    return found


def classes_of(labels: Any, form: LabelFormat) -> list[str]:
    """Return the classes that one label, several or None mean, by name."""
    rows = [] if labels is None else labels if is_list(labels) else [labels]
    return [class_of(label, form) for label in rows]


# ---------------------------------------- class weights


def weigh_rows(
    class_weight: Any, names: list[list[Label]], form: LabelFormat, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (N,) weights of rows times those of their classes.

    Args:
        class_weight: "balanced", a mapping from classes to weights, or None.
        names: the labels of each row.
        form: of the labels.
        weights: (N,) how much each row counts by itself.
    """
    offsets, numbers = Labels(names, form.hierarchy).terminal
    sizes = np.diff(offsets)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    hierarchy = form.hierarchy
    of_class = np.ones(len(hierarchy))
    if isinstance(class_weight, Mapping):  # a class has its own, or that of the nearest one above
        own: dict[int, float] = {}
        for label, weight in class_weight.items():
            try:
                number = hierarchy.index(class_of(label, form))
            except LabelError as error:
                raise LabelError(f"class_weight: {error.message}") from None
            try:
                value = float(weight)
            except (TypeError, ValueError):
                value = math.nan
            if not (math.isfinite(value) and value >= 0):
                raise HierlearnError(
                    f"class_weight of {label!r} must be at least 0, not {weight!r}"
                )
            own[number] = value
        depth = np.zeros(len(hierarchy), dtype=int)  # the level of the class that a weight is of
        for number in range(len(hierarchy)):  # parents come before their children
            above = [int(parent) for parent in hierarchy.parents(number)]
            if number in own:
                of_class[number], depth[number] = own[number], hierarchy.levels[number]
            elif above:
                deepest = depth[number] = depth[above].max()
                of_class[number] = np.mean([of_class[p] for p in above if depth[p] == deepest])
    elif isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(numbers, weights[rows], minlength=len(hierarchy))
        present = counts > 0
        of_class[present] = counts.sum() / (present.sum() * counts[present])
    else:
        raise HierlearnError(
            f"class_weight must be 'balanced', a mapping from classes to weights, or None, not "
            f"{class_weight!r}"
        )
    sums = np.bincount(rows, of_class[numbers], minlength=len(sizes))
    found: NDArray[np.float64] = weights * np.where(sizes > 0, sums / np.maximum(sizes, 1), 1.0)
    return found


# ---------------------------------------- labels that scikit-learn encoded

REMEDY = "hierlearn.cross_val_proba(classifier, X, y) gives probabilities fold by fold"
CALIBRATOR = "CalibratedClassifierCV"
CALIBRATES = (
    "the classifier calibrates itself (calibration=True); with ensemble=True, the methods "
    "'sigmoid' and 'isotonic' keep the labels"
)


def check_not_encoded(sep: str, *, hierarchy_given: bool) -> None:
    """Raise where a caller in scikit-learn encoded paths, or labels of a given hierarchy.

    Args:
        sep: what joins the names of a path.
        hierarchy_given: whether integers would be read as class numbers of a hierarchy.
    """
    from sklearn.preprocessing import LabelEncoder

    frames: list[FrameType] = []  # of scikit-learn, the nearest first
    above: FrameType | None = sys._getframe(1)
    while above is not None:
        if str(above.f_globals.get("__name__", "")).startswith("sklearn."):
            frames.append(above)
        above = above.f_back
    for frame in frames:
        bagging = frame.f_locals.get("ensemble")  # BaggingClassifier has no encoder
        owner = frame.f_locals.get("self", bagging)
        held = [*frame.f_locals.values(), *getattr(owner, "__dict__", {}).values(), bagging]
        labels = [
            str(label)
            for one in held
            if isinstance(one, LabelEncoder) or (one is bagging and one is not None)
            for label in getattr(one, "classes_", ())
        ]
        lost = [label for label in labels if sep in label] or labels * hierarchy_given
        if not lost:
            continue
        who = frame.f_code.co_name if owner is None else type(owner).__name__
        remedy = "average networks with ensemble_size=, or blend recipes with effort='best'"
        if any(type(one.f_locals.get("self")).__name__ == CALIBRATOR for one in frames):
            who, remedy = CALIBRATOR, CALIBRATES
        elif who == "cross_val_predict":
            remedy = REMEDY
        raise LabelError(
            f"{who} of scikit-learn replaced the labels by integers ({lost[0]!r} and so on), so "
            f"their taxonomy is lost; {remedy}"
        )
    # In a process of its own what the labels were cannot be seen.
    methods = {frame.f_code.co_name: frame.f_locals.get("method") for frame in reversed(frames)}
    if "cross_val_predict" not in methods and "proba" in str(methods.get("_fit_and_predict")):
        warnings.warn(
            f"cross_val_predict of scikit-learn replaces labels by integers, so a taxonomy in "
            f"their names is lost; {REMEDY}",
            UserWarning,
            stacklevel=4,
        )
