"""The names of classes: checks, paths and natural order."""

from __future__ import annotations

import re
import warnings
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from hierlearn.errors import DataWarning, HierarchyError, LabelError, arg, plural, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints, Structure


Label = str | int
L = TypeVar("L", str, int)
NamedBy = Literal["path", "id"]
DIGITS = re.compile("[0-9]+")
NAMINGS = ("path", "id")
DEEPEST = 4_000  # levels of a hierarchy
LARGEST = 1 << 28  # characters of all paths, or classes with all their ancestors
WIDEST = 60  # characters of a title on a terminal and in a drawing
TEXT = "OUT"  # kinds of NumPy's arrays of names
SEPS = (" > ", " -> ", " => ", " » ", " › ", " → ", ">", "->", "::", "|", "\\")
SAMPLE = 20_000  # paths that are looked at
FEWEST = 3  # paths with another separator
MOST = 0.5  # the fraction of the paths that another separator must be in


def natural_ranks(names: Sequence[str]) -> Ints:
    """Return the place of each name in natural order, where "2" comes before "10"."""
    keys = [DIGITS.sub(lambda run: run.group().zfill(20), name) for name in names]
    order = sorted(range(len(names)), key=lambda number: (keys[number], names[number]))
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[order] = np.arange(len(names))
    return ranks


def as_text(name: object) -> str:
    """Return an id as text; integers are ids too."""
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return str(name)
    if not isinstance(name, str):
        raise HierarchyError(f"a class name is text, not {name!r} ({type(name).__name__})")
    return name


def checked(name: object, sep: str | None) -> str:
    """Return a node's bare name as text; raise if it cannot be one.

    Args:
        name: the name.
        sep: what it must not hold; None if that is not known yet.
    """
    name = as_text(name)
    if not name.strip():
        raise HierarchyError(f"a class name must not be empty, but one is {name!r}")
    if sep is not None and sep in name:
        raise HierarchyError(
            f"class name {name!r} holds the separator {sep!r}; choose another with {arg('sep=')}"
        )
    return name


def checked_sep(sep: str) -> str:
    """Return the separator; raise if it is empty."""
    if not isinstance(sep, str) or not sep:
        raise HierarchyError(f"{arg('sep')} must be a non-empty text, not {sep!r}")
    return sep


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: None, an empty text, NaN or a frame's own missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' own marks
        return True
    return bool(value == "" or value != value)


def checked_naming(named_by: NamedBy | None) -> NamedBy | None:
    """Return ``named_by``; raise if it is unknown."""
    if named_by is not None and named_by not in NAMINGS:
        raise HierarchyError(unknown_name("naming", str(named_by), NAMINGS))
    return named_by


def check_depth(depth: int) -> None:
    """Raise on more levels than a hierarchy may have."""
    if depth > DEEPEST:
        raise HierarchyError(
            f"the hierarchy has more than {DEEPEST:,} levels, which are not supported; is one long "
            f"chain meant?"
        )


def level_path(cells: Iterable[Any], sep: str | None) -> list[str]:
    """Return the path of a row with one cell per level; an empty level is left out."""
    return [checked(cell, sep) for cell in cells if not is_missing(cell)]


def has_gap(cells: Iterable[Any]) -> bool:
    """Whether a row with one cell per level has an empty cell before a filled one."""
    missing = list(map(is_missing, cells))
    return True in missing and False in missing[missing.index(True) :]


def warn_of_gaps(what: object, count: int, first: str, path: str) -> None:
    """Say how many rows have a gap; nothing where none has.

    Args:
        what: the table.
        count: how many rows.
        first: where the first of them is.
        path: how it is read.
    """
    if count:
        warnings.warn(
            f"{what}: {plural(count, 'row')} with an empty level above a filled one (the first is "
            f"{first}); that level is left out, so the path there is {path!r}; fill the cell if "
            f"the level is known",
            DataWarning,
            stacklevel=2,
        )


def check_total(structure: Structure, lengths: Sequence[int], named_by: str, sep: int) -> None:
    """Raise on a hierarchy that would fill the memory although its description is short.

    Args:
        structure: of C classes.
        lengths: (C,) the characters of their bare names.
        named_by: what names a class.
        sep: the characters of the separator.
    """
    check_depth(structure.depth)
    total = int(structure.levels.sum())
    what = "classes with their ancestors"
    if named_by == "path" and total <= LARGEST:
        paths = np.asarray(lengths, dtype=np.int64)
        first = structure.first_parents
        for begin, end in pairwise(structure.level_offsets.tolist()[1:]):
            paths[begin:end] += paths[first[begin:end]] + sep
        total, what = int(paths.sum()), "characters in the paths of its classes"
    if total > LARGEST:
        raise HierarchyError(
            f"the hierarchy has {total:,} {what}, and at most {LARGEST:,} are supported; use "
            f"shorter names or fewer levels"
        )


# ----------------------------------------------------------------------
# Titles: what people call the classes, such as "Cholera" for ``A00``.
#
# A title is shown beside a class and names nothing: labels, equality and the fingerprint know
# classes by their names alone. Titles are one line each, and any class may lack one.


def checked_title(value: object, name: object) -> str | None:
    """Return a title in one line, None where there is none; raise on what is no text.

    Args:
        value: the title, or a mark of a missing one.
        name: the class, for the error.
    """
    if is_missing(value):
        return None
    if not isinstance(value, str):
        raise HierarchyError(f"the title of {name!r} is {value!r}, which is not text")
    return " ".join(value.split()) or None


def set_title(titles: dict[Any, str | None], key: Any, title: str | None, name: object) -> None:
    """Note a title; raise where the class has another one already.

    Args:
        titles: changed in place.
        key: of the class among them.
        title: the title.
        name: the class, for the error.
    """
    if key in titles and titles[key] != title:
        raise HierarchyError(
            f"class {name!r} has two titles, {titles[key]!r} and {title!r}; keep one of them"
        )
    titles[key] = title


def inherit_titles(new: Hierarchy, old: Hierarchy) -> Hierarchy:
    """Return a hierarchy with the titles of another one for classes of the same name without one.

    Args:
        new: the hierarchy; its own titles stay.
        old: the hierarchy that it was made from.
    """
    if not old.has_titles:
        return new
    known = dict(zip(old.names, old.titles, strict=True))
    pairs = zip(new.names, new.titles, strict=True)
    titles = tuple(known.get(name) if own is None else own for name, own in pairs)
    return new._with(titles=titles)


def with_title(hierarchy: Hierarchy, name: str, most: int = WIDEST) -> str:
    """Return ``A00 (Cholera)``: a class and its title, shortened, where it has one."""
    title = hierarchy.title(name)
    return name if title is None else f"{name} ({shorten(title, most)})"


def joined_titles(hierarchy: Hierarchy, names: Iterable[str], sep: str) -> str:
    """Return the titles of several classes in one cell, one after each separator."""
    return sep.join(hierarchy.title(name) or "" for name in names)


def shorten(text: str, longest: int) -> str:
    """Return a text of at most ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


# ----------------------------------------------------------------------
# Level columns: labels as a table with one column per level, as one path per row.
#
# A frame of pandas or polars, or an (N, L) array of names; cells are missing below the last level
# that is known. A missing cell above a known one is left out, with a warning. 2.0 is the name "2",
# since a frame with gaps holds no integers.


def is_frame(values: Any) -> bool:
    """Whether this is a frame of pandas or polars."""
    return all(hasattr(values, name) for name in ("columns", "dtypes", "shape"))


def table_rows(values: Any) -> list[Sequence[Any]] | None:
    """Return the rows of a table with one column per level; None for labels in another form."""
    if is_frame(values):
        is_polars = hasattr(values, "iter_rows")
        return list(values.iter_rows() if is_polars else values.itertuples(index=False, name=None))
    is_names = isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in TEXT
    return values.tolist() if is_names else None


def as_rows(values: Any, sep: str, what: str = "labels") -> Any:
    """Return labels as rows: a table as one path per row, one column as it is, others unchanged."""
    table = table_rows(values)
    if table is None:
        return values
    if len(values.shape) == 2 and values.shape[1] == 1:
        return [row[0] for row in table]
    return paths_of(table, sep, what)


def paths_of(table: Iterable[Sequence[Any]], sep: str, what: str = "labels") -> list[str | None]:
    """Return the paths of rows with one cell per level, with a warning of gaps."""
    paths: list[str | None] = []
    gaps: list[int] = []
    for number, row in enumerate(table):
        cells = [int(c) if isinstance(c, float) and c.is_integer() else c for c in row]
        try:
            paths.append(sep.join(level_path(cells, sep)) or None)
        except HierarchyError as error:
            message = f"row {number} of {what}, one column per level: {error.message}"
            raise LabelError(message) from None
        if has_gap(row):
            gaps.append(number)
    if gaps:
        warn_of_gaps(what, len(gaps), f"row {gaps[0]}", str(paths[gaps[0]]))
    return paths


def join_levels(table: Any, sep: str = "/") -> NDArray[Any]:
    """Return (N,) the path of each row of a table with one column per level.

    scikit-learn's own scores and folds take one label per row, so they take these.

    Args:
        table: a frame, an (N, L) array or a list of rows, the top level first; cells may be missing
            below the last known level.
        sep: what joins the names of a path.

    Returns:
        An array of strings; of objects, with None, where a row has no label at all.

    Example:
        >>> join_levels([["animal", "dog"], ["animal", "cat"], ["plant", None]]).tolist()
        ['animal/dog', 'animal/cat', 'plant']
    """
    if isinstance(table, np.ndarray) and table.ndim != 2:
        raise LabelError(f"a table has one column per level, but its shape is {table.shape}")
    rows = table_rows(table)
    paths = paths_of(table if rows is None else rows, sep)
    return np.asarray(paths, dtype=object if None in paths else str)


# ----------------------------------------------------------------------
# What a taxonomy looks like, where it may not be meant as it was read.


def find_other_sep(paths: Iterable[str], sep: str) -> tuple[str, str] | None:
    """Return what seems to join the names of paths rather than ``sep``, and a path that holds it.

    It is in most of the paths and in twice as many as ``sep``, and paths share what comes before
    it, as those below one class do.
    """
    sample = list(islice(paths, SAMPLE))
    usual = sum(sep in path for path in sample)
    for other in SEPS:
        if other in sep or sep in other:
            continue
        split = {path: path.split(other) for path in sample if other in path}
        holding = [path for path, parts in split.items() if all(map(str.strip, parts))]
        if len(holding) < max(FEWEST, MOST * len(sample), 2 * usual):
            continue
        tops = {path.split(other)[0].strip() for path in holding}
        if len(tops) < len(holding):
            return other, holding[0]
    return None


def warn_of_other_sep(paths: Iterable[str], sep: str) -> None:
    """Point out that paths seem to be joined by something other than ``sep``."""
    if found := find_other_sep(paths, sep):
        warnings.warn(
            f"labels such as {found[1]!r} look like paths joined by {found[0]!r}, but sep is "
            f"{sep!r}; set {arg('sep=')} to {found[0]!r} to read them as paths",
            DataWarning,
            stacklevel=2,
        )
