"""Tables as datasets: which column plays which role; read into memory or streamed from the file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from hierlearn.datasets.labels import Annotations, Unknown
from hierlearn.datasets.tables import open_table
from hierlearn.datasets.tables.arrow import ParquetFile
from hierlearn.datasets.tables.kinds import check_kind
from hierlearn.datasets.tables.stream import RowGroups, Vectors
from hierlearn.datasets.tables.table import ColumnWarning, columns_summary, type_columns
from hierlearn.errors import DataError, arg, quoted, unknown_name
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.names import checked_sep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.datasets.dataset import Dataset, Kind
    from hierlearn.datasets.tables.table import TableFile


ROLES = (
    *("label", "levels", "features", "text", "split", "id_column", "group", "ignore"),
    "embeddings",
)
ROWS = 1 << 20  # rows whose labels are parsed at a time
FIRST = 1000  # rows by which a mixed table is recognized before it is streamed


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns, and how its labels are written; checks itself.

    Attributes:
        label: the column of labels, or
        levels: the columns of labels, one column per level, top level first.
        features: the input columns; None for every column without another role.
        text: the column of texts; alone it is the only input, beside features one more of them.
        split: a column that names each row's split.
        hierarchy: the taxonomy, or a file of it; None to infer it from the labels' paths.
        label_sep: what joins several labels in one cell; None where a cell holds one label.
        sep: what joins the names of a path, / by default; a given hierarchy's own separator
            replaces it.
        id_column: a column that names each row.
        group: a column that names what each row belongs to, such as a patient or a recording.
        ignore: columns that are no inputs.
        column_kinds: the kinds of columns by name, where they should not be found by rule.
        labels_by_id: instead of columns of labels, the labels of each row by its id.
        unknown: "error" to raise on a label that the hierarchy does not have, "skip" to leave it
            out, "nearest" to let it count for the nearest class above.
        embeddings: instead of input columns, the vectors of the rows: a file, or a column of lists.
    """

    label: str | None = None
    levels: Sequence[str] | None = None
    features: Sequence[str] | None = None
    text: str | None = None
    split: str | None = None
    hierarchy: Hierarchy | Path | str | None = None
    label_sep: str | None = ";"
    sep: str | None = None
    id_column: str | None = None
    group: str | None = None
    ignore: Sequence[str] | None = None
    column_kinds: Mapping[str, str] = field(default_factory=dict)
    labels_by_id: Mapping[str, Sequence[str]] | None = None
    unknown: Unknown = "error"
    embeddings: Path | str | None = None

    def __post_init__(self) -> None:
        if self.unknown not in get_args(Unknown):
            raise DataError(unknown_name("value of unknown", str(self.unknown), get_args(Unknown)))
        if self.labels_by_id is not None:
            if self.label is not None or self.levels is not None:
                raise DataError(
                    "the labels come from annotations, by id; leave out the column of labels"
                )
            if self.id_column is None:
                raise DataError(
                    f"annotations are joined by the id of each row; name {arg('id_column')}"
                )
            if self.hierarchy is None:
                raise DataError("annotations need the taxonomy of their terms; give hierarchy")
        elif (self.label is None) == (self.levels is None):
            raise DataError(
                f"name either the label column ({arg('label=')}) or the level columns "
                f"({arg('levels=')})"
            )
        # A label among the features would give itself away.
        seen: dict[str, str] = {}
        for role in ROLES:
            named = getattr(self, role)
            if named is not None and not named:
                raise DataError(f"{role} names no column; name at least one")
            for name in [str(named)] if isinstance(named, (str, Path)) else named or ():
                if name in seen:
                    raise DataError(
                        f"column {name!r} is named twice, as {seen[name]} and as {role}; "
                        f"give each column one role"
                    )
                seen[name] = role
        for other in ("features", "text", "ignore", "column_kinds"):
            if self.embeddings is not None and getattr(self, other):
                raise DataError(f"embeddings are the only inputs; leave {other}= out")
        if self.ignore is not None and not self.takes_rest:
            only = "features" if self.features is not None else "text"
            raise DataError(
                f"{arg('ignore=')} leaves columns out of the inputs, but {arg(f'{only}=')} names "
                f"those; use one of them, and {arg('column_kinds=')} to say that a column is text"
            )
        if self.only_text is not None and self.column_kinds:
            raise DataError(
                f"{arg('text')} names {self.text!r} as the only input; leave {arg('column_kinds')} "
                f"out, or give column_kinds={{{self.text!r}: 'text'}} to read the other columns too"
            )
        for name, kind in self.column_kinds.items():
            check_kind(name, kind)
        if self.text is not None and (kind := self.column_kinds.get(self.text, "text")) != "text":
            raise DataError(
                f"column {self.text!r} is named as text and as {kind}; give it one kind"
            )
        checked_sep(self.path_sep)
        if isinstance(self.hierarchy, Hierarchy):
            object.__setattr__(self, "sep", self.hierarchy.sep)
        if self.label is None or self.label_sep is None or isinstance(self.hierarchy, (str, Path)):
            return
        sep, label_sep = self.path_sep, self.label_sep
        if not isinstance(label_sep, str) or not label_sep or label_sep in sep or sep in label_sep:
            raise DataError(
                f"{arg('label_sep')} {label_sep!r} joins labels and sep {sep!r} the names of a "
                f"path; neither may be empty or part of the other"
            )

    @property
    def path_sep(self) -> str:
        """What joins the names of a path."""
        return "/" if self.sep is None else self.sep

    @property
    def takes_rest(self) -> bool:
        """Whether every column without another role is an input."""
        return self.features is None and self.text is None

    @property
    def only_text(self) -> str | None:
        """The column of texts where it is the only input."""
        return self.text if self.features is None else None

    @property
    def kinds(self) -> dict[str, str]:
        return {**self.column_kinds, **({} if self.text is None else {self.text: "text"})}

    @property
    def annotations(self) -> tuple[str, ...]:
        """The columns of labels, splits, ids and groups."""
        named = (self.label, *(self.levels or ()), self.split, self.id_column, self.group)
        return tuple(name for name in named if name is not None)

    def inputs_of(self, file: TableFile) -> tuple[str, ...]:
        taken = (*self.annotations, *(self.ignore or ()))
        file.check_columns(taken)
        if self.embeddings is not None:
            return ()
        names = (*(self.features or ()), *(() if self.text is None else (self.text,)))
        if self.takes_rest:
            names = tuple(name for name in file.columns if name not in {*taken})
        if not names:
            known = quoted(file.columns, most=10)
            raise DataError(
                f"{file.path} has no feature column; it has {known}: add one, or name a text "
                f"column ({arg('text=')})"
            )
        file.check_columns((*names, *self.column_kinds))
        wrong = [name for name in self.column_kinds if name not in {*names}]
        if wrong:
            raise DataError(
                f"{arg('column_kinds')} names {quoted(wrong)}, which is no input; leave it out "
                "there"
            )
        return names


# ---------------------------------------- reading


def read_table(
    path: Path | str,
    *,
    label: str | None = None,
    levels: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    text: str | None = None,
    split: str | None = None,
    hierarchy: Hierarchy | Path | str | None = None,
    label_sep: str | None = ";",
    sep: str | None = None,
    id_column: str | None = None,
    group: str | None = None,
    ignore: Sequence[str] | None = None,
    column_kinds: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    labels_by_id: Mapping[str, Sequence[str]] | None = None,
    unknown: Unknown = "error",
    embeddings: Path | str | None = None,
) -> Dataset:
    """Read a CSV or TSV file, or one or many Parquet files, into memory.

    Inputs are numbers where every input column is one, texts where the only one is of texts, and
    otherwise a ``Table``: each column is a number, category, text, date or boolean. The kinds are
    found on the training rows by the rule in ``column_kinds``, unless they are given.

    Args:
        path: the file; its ending tells the format. Parquet needs the extra ``data``, and may be a
            folder of files, a pattern such as ``rows/*.parquet``, or an address that fsspec
            opens, such as ``s3://bucket/rows``.
        label: the column of labels, or
        levels: the columns of labels, one column per level, top level first.
        features: the input columns; by default every other column.
        text: the column of texts; alone it is the only input, beside features one more of them.
        split: a column that names each row's split.
        hierarchy: the taxonomy, or a file of it; by default inferred from the labels' paths.
        label_sep: what joins several labels in one cell; None where a cell holds one label.
        sep: what joins the names of a path, by default /; names in level columns that hold a slash
            are joined by another one.
        id_column: a column that names each row; rows may share an id.
        group: a column that names what each row belongs to, such as a patient or a recording; rows
            of one group stay together wherever rows are held out.
        ignore: columns that are no inputs.
        column_kinds: the kinds of some input columns: number, category, text, boolean, date, or
            a date with its format, ``date:%d.%m.%Y``.
        delimiter: what separates the cells of a CSV or TSV file; by default found.
        labels_by_id: instead of columns of labels, the labels of each row by its id, such as those
            of ``read_gaf``; rows without any are left out.
        unknown: "error" to raise on a label that the hierarchy does not have, "skip" to leave it
            out, "nearest" to let it count for the nearest class above; see
            ``Dataset.label_report``.
        embeddings: instead of input columns, the vector of each row that another model made: a
            ``.npy`` or ``.safetensors`` file with one row per row of the table, or a column of
            lists.

    Raises:
        DataError: naming the file, the line and the column of what is wrong.
        LabelError: naming the line of a label that the hierarchy does not have.
    """
    given = {name: value for name, value in locals().items() if name not in ("path", "delimiter")}
    columns = Columns(**given | {"column_kinds": column_kinds or {}})
    file = open_table(path, delimiter)
    names = columns.inputs_of(file)
    vectors = None if embeddings is None else Vectors(embeddings, file)
    names = vectors.columns if vectors is not None else names
    table = file.read(list(dict.fromkeys([*columns.annotations, *names])))
    annotations = Annotations(file.path, columns)
    annotations.add(table)
    if vectors is not None:
        vectors.check_count(len(table))
        return annotations.dataset(vectors.of(table, 0))
    if columns.only_text is not None:
        return annotations.dataset(table.texts(columns.only_text))
    rows = annotations.training_rows()
    found = type_columns(table, names, columns.kinds, rows, chosen=not columns.takes_rest)
    if (numbers := found.numbers) is not None:
        inputs = np.empty((len(table), len(numbers)), dtype=np.float32)
        for position, name in enumerate(numbers):
            inputs[:, position] = found.columns.pop(name)
        return annotations.dataset(inputs, numbers)
    if [found.kinds[name] for name in found.used] == ["text"]:
        return annotations.dataset(found.columns[found.used[0]].tolist(), (found.used[0],))
    mixed = found.table(ignored=columns.ignore or ())
    return annotations.dataset(mixed, mixed.names)


def stream_table(path: Path | str, *, window: int | None = None, **columns: Any) -> Dataset:
    """Open Parquet files like ``read_table``, but leave their inputs in the files.

    Args:
        path: the file, folder, pattern or address.
        window: how many rows are shuffled together in training, by each process.
        columns: the other arguments of ``read_table``.
    """
    roles = Columns(**columns)
    if roles.embeddings is not None:
        raise DataError(f"{path}: embeddings cannot be streamed; train without streaming")
    file = open_table(path)
    if not isinstance(file, ParquetFile):
        raise DataError(
            f"{path}: only Parquet files can be streamed into training; convert the file, or train "
            f"without streaming"
        )
    names = roles.inputs_of(file)
    if not file.num_rows:
        raise file.no_rows()
    kind: Kind = "numbers" if roles.only_text is None else "texts"
    remedy = (
        "only numbers, or one column of texts, can be streamed: train without streaming, or choose "
        f"columns with {arg('features=')} or {arg('text=')}"
    )
    if kind == "numbers" and (roles.column_kinds or roles.text is not None):
        raise DataError(f"{file.path}: {remedy}")
    if kind == "numbers" and roles.features is None:  # those that are named are taken for numbers
        first = next(iter(file.chunks(names, FIRST)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)
            kinds = type_columns(first, names, {}, chosen=True).kinds
        if any(one != "number" for one in kinds.values()):
            what = columns_summary(kinds, {})
            raise DataError(f"{file.path} is a mixed table of {what}; {remedy}")
    inputs = RowGroups(file, names, kind, window)
    annotations = Annotations(file.path, roles)
    for chunk in file.chunks(roles.annotations, ROWS):
        annotations.add(chunk)
    return annotations.dataset(inputs, names if kind == "numbers" else ())
