"""The names of classes: checks, paths and natural order."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataWarning, HierarchyError, plural, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hierlearn.hierarchy.nodes import NamedBy
    from hierlearn.hierarchy.structure import Ints, Structure

DIGITS = re.compile("[0-9]+")
NAMINGS = ("path", "id")
DEEPEST = 4_000  # levels of a hierarchy
LARGEST = 1 << 28  # characters of all paths, or classes with all their ancestors


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
            f"class name {name!r} holds the separator {sep!r}; choose another with sep="
        )
    return name


def checked_sep(sep: str) -> str:
    """Return the separator; raise if it is empty."""
    if not isinstance(sep, str) or not sep:
        raise HierarchyError(f"sep must be a non-empty text, not {sep!r}")
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


def split_path(path: str, sep: str) -> list[str]:
    """Return the names of a path; raise if one is empty."""
    parts = path.split(sep)
    check_depth(len(parts))
    if not all(part.strip() for part in parts):
        raise HierarchyError(f"path {path!r} has an empty part; write a{sep}b{sep}c")
    return parts


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
