"""Cells as values, the kinds of columns of a mixed table, and the rule that finds them.

number    numbers, also those like 1,000 that must be written in another way; 0.9 of the values
          suffice, and the others are then errors to be corrected
boolean   true and false, yes and no, t and f, y and n
date      dates in one format, such as Nov 23 1994 or 23.11.94; see ``dates``
text      several words per cell, mostly different ones
category  any other strings

Among numbers, dates and booleans, NA, nan, null, None, ? and - are missing values like an empty
cell; a category or a text may be called so.

The rule looks at the training rows alone. A column that cannot help is left out, with a reason: one
without values, one of a single value, and one that looks like the id of a row.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.tables.dates import ISO, find_formats, parse_dates
from hierlearn.errors import DataError, arg, unknown_name
from hierlearn.hierarchy.names import is_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


# No value, where a number is due.
MARKS = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
LARGEST = float(np.finfo(np.float32).max)
KINDS = ("number", "category", "text", "date", "boolean")
MOST = 0.9  # the fraction of the values that must be numbers
ID_ROWS = 20  # fewest rows on which different values look like ids
ID_NAME = re.compile(r"(?:^|[\W_])(?i:id|uuid|guid|index)$|[a-z](?:Id|ID)$|^Unnamed: 0$|^$")
WORDS = 2.0  # words per text, on average
FEW = 256  # more different values than this, of several words, are texts
WRITTEN = re.compile(  # numbers that must be written in another way: 1,000 and 3,5 and $5 and 20%
    r"[-+]?[$€£]? ?(\d{1,3}([,' ]\d{3})+(\.\d+)?|\d+,\d+|\d+(\.\d+)? ?%|[$€£] ?\d+(\.\d+)?)[€%]?"
)
BLANK = re.compile(r"\s")
TRUE, FALSE = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
PAIRS = tuple({yes, no} for yes, no in zip(TRUE, FALSE, strict=True))
NO_VALUE, ONE_VALUE, LIKE_AN_ID = "has no value", "has one value", "looks like an id"


def is_mark(cell: object) -> bool:
    """Whether a cell of numbers, dates or booleans says that there is no value."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MARKS)


def as_float32(values: Any, name: str | None = None) -> Any:
    """Return numbers as files give them, so that rows are the same to the last bit anyhow.

    Arrays of integers and booleans that float32 holds exactly stay as they are, and so does what is
    no array of numbers.

    Args:
        values: (N, D) numbers, or (N,) of one column.
        name: of that column, for errors.
    """
    wide = isinstance(values, np.ndarray) and values.dtype.kind in "fiu"
    if not wide or np.can_cast(values.dtype, np.float32):
        return values
    with np.errstate(over="ignore"):  # the result is checked
        found = values.astype(np.float32)
    wrong = np.argwhere(np.isinf(found) & np.isfinite(values))
    if len(wrong):
        row = int(wrong[0][0])
        column = wrong[0][1] if name is None else repr(name)
        raise DataError(
            f"row {row} (counted from 0), column {column}: {values[tuple(wrong[0])]} does not fit "
            f"into float32, whose largest value is {LARGEST:.1e}; scale the column"
        )
    return found


def parse_numbers(cells: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return numbers, or texts of numbers, as float64, and which of them are missing.

    A cell that is neither is NaN or infinite; parsing ends there, and the cells after it stay 0.
    """
    values, missing = np.zeros(len(cells)), np.zeros(len(cells), dtype=bool)
    try:
        if is_plain("".join(cells)):
            values = np.array([float(cell or "nan") for cell in cells])
            for row in np.flatnonzero(np.isnan(values)).tolist():
                missing[row] = is_mark(cells[row])
            return values, missing
    except TypeError:  # cells that are no texts
        if {*map(type, cells)} <= {int, float, type(None)}:
            with suppress(OverflowError):  # an integer of many digits
                return np.array(cells, dtype=np.float64), np.array([one is None for one in cells])
    except ValueError:  # a text that is no number
        pass
    for row, cell in enumerate(cells):
        missing[row] = is_mark(cell)
        values[row] = np.nan if missing[row] else parse_number(str(cell))
        if not (missing[row] or np.isfinite(values[row])):
            break
    return values, missing


def is_plain(text: str) -> bool:
    """Whether a text is free of what Python alone reads as a number: 1_000, other scripts."""
    return "_" not in text and text.isascii()


def parse_number(text: str) -> float:
    """Return the number in a text, NaN where there is none."""
    try:
        return float(text) if is_plain(text) else float("nan")
    except ValueError:
        return float("nan")


# ---------------------------------------- the kinds of columns


@dataclass(frozen=True)
class FoundKind:
    """The kind of a column.

    Attributes:
        kind: one of KINDS; a date with its format, ``date:%d.%m.%Y``.
        skip: why the column should be left out, an empty string where it should not.
        also: a second format that fits every date as well.
    """

    kind: str
    skip: str = ""
    also: str = ""


def base_kind(kind: str) -> str:
    """Return a kind without the format of its dates."""
    return kind.partition(":")[0]


def date_format(kind: str) -> str:
    return kind.partition(":")[2] or ISO


def check_kind(name: str, kind: Any) -> str:
    """Return the kind that a user gave to a column, or raise."""
    if not isinstance(kind, str) or base_kind(kind) not in KINDS:
        raise DataError(f"column {name!r}: {unknown_name('kind', str(kind), KINDS)}")
    if ":" in kind and base_kind(kind) != "date":
        raise DataError(f"column {name!r}: only a date has a format, not {kind!r}")
    return kind


def as_string(cell: Any) -> str:
    """Return a cell as text; an integer is written alike whatever its type."""
    if is_missing(cell):
        return ""
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        cell = int(cell)
    return str(cell).strip()


def find_kind(name: str, cells: Sequence[Any]) -> FoundKind:
    """Return the kind of a column.

    Args:
        name: its name, by which ids are recognized.
        cells: those of the training rows, as Python values.
    """
    return kind_of(name, count_values(name, cells), len(cells))


def kind_of(name: str, counts: Counter[Any], rows: int) -> FoundKind:
    """Return the kind of a column.

    Args:
        name: its name, by which ids are recognized.
        counts: how often each known value occurs in the training rows.
        rows: how many training rows there are.
    """
    total = sum(counts.values())
    if not total:
        return FoundKind("number", NO_VALUE)
    kind, also, skip = "category", "", ""
    if is_boolean(counts):
        kind = "boolean"
    elif are_numbers(counts):
        kind = "number"
    elif forms := find_formats(one for one in counts if not is_mark(one)):
        kind, also = f"date:{forms[0]}", forms[1] if len(forms) > 1 else ""
    elif is_text(counts, total):
        kind = "text"
    if len(counts) == 1 and total == rows:
        skip = ONE_VALUE
    elif total >= ID_ROWS and len(counts) == total:
        texts = [str(one).strip() for one in counts]
        if kind == "category":  # different strings without blanks name rows
            is_id = all(texts) and BLANK.search("|".join(texts)) is None
        else:  # and integers, where the column is called so
            is_id = kind == "number" and ID_NAME.search(name) is not None
            is_id = is_id and all(parse_number(text).is_integer() for text in texts)
        skip = LIKE_AN_ID if is_id else ""
    return FoundKind(kind, skip, also)


def count_values(name: str, cells: Sequence[Any]) -> Counter[Any]:
    """Return how often each known value occurs; raise on what is no value, such as a list."""
    try:
        counts = Counter(cells)
    except TypeError:
        odd = next(cell for cell in cells if isinstance(cell, (list, dict, set, np.ndarray)))
        raise DataError(
            f"column {name!r} holds {odd!r} ({type(odd).__name__}), not a number, string or date; "
            f"leave it out with {arg('ignore=')}"
        ) from None
    return without_missing(counts)


def without_missing(counts: Counter[Any]) -> Counter[Any]:
    """Return counts of values without those of missing ones."""
    counts.pop("", None)
    if set(map(type, counts)) <= {str}:
        return counts
    for value in [one for one in counts if not isinstance(one, str) and is_missing(one)]:
        del counts[value]
    return counts


def is_boolean(values: Iterable[Any]) -> bool:
    words: set[Any] = set()
    for value in values:
        is_bool = isinstance(value, (bool, np.bool_))
        words.add(is_bool if is_bool or not isinstance(value, str) else value.strip().lower())
        if len(words) > 2:
            return False
    return words <= {True} or any(words <= pair for pair in PAIRS)


def are_numbers(counts: Counter[Any]) -> bool:
    """Whether nearly all values are numbers; marks such as NA do not count against them."""
    numbers = others = 0
    total = sum(counts.values())
    for value, count in counts.items():
        if is_number(value):
            numbers += count
        elif not is_mark(value):
            others += count
            if others > (1 - MOST) * total + 1:  # enough of them, whatever follows
                return False
    return numbers > 0 and numbers >= MOST * (numbers + others)


def is_number(value: Any) -> bool:
    """Whether a value is meant as a number, also where it must be written in another way."""
    if isinstance(value, (bool, np.bool_)):
        return False
    if isinstance(value, str) and value[:1].isalpha() and value[0] not in "nNiI":
        return False  # neither nan nor infinity
    try:
        float(value)
    except OverflowError:  # an integer of many digits, which is refused with its line
        return True
    except (TypeError, ValueError):
        return WRITTEN.fullmatch(str(value).strip()) is not None
    return True


def is_text(counts: Counter[Any], total: int) -> bool:
    """Whether values are texts: several words, and most of them different, or a great many."""
    if 2 * len(counts) <= total and len(counts) <= FEW:
        return False
    words = 0
    if len(counts) == total:  # every value once: words can be counted for many values at a time
        texts = map(str, counts)
        while batch := list(islice(texts, 4096)):
            words += len(" ".join(batch).split())
            if words >= WORDS * total:
                return True
        return False
    for value, count in counts.items():
        words += count * len(str(value).split())
    return words >= WORDS * total


# ---------------------------------------- cells as values


def parse_values(
    cells: Sequence[Any], kind: str, where: Callable[[int], str], remedy: str
) -> NDArray[Any]:
    """Return (N,) values of a column that holds no numbers.

    Args:
        cells: Python values.
        kind: category, text, boolean, or date with its format.
        where: words the place of a row, for errors.
        remedy: what to do about a cell that is not of the kind.
    """
    base = base_kind(kind)
    if base == "date":
        form = date_format(kind)
        dates = parse_dates(cells, form)
        reason = f"is not a date of the form {form}; {remedy}"
        check_values(np.isnat(dates), cells, where, reason)
        return dates
    if base == "boolean":
        words = {cell: parse_boolean(cell) for cell in {c for c in cells if isinstance(c, str)}}
        values = [words[c] if isinstance(c, str) else parse_boolean(c) for c in cells]
        booleans = np.array(values, dtype=np.float32)
        reason = f"is neither true nor false; {remedy}"
        check_values(np.isnan(booleans), cells, where, reason)
        return booleans
    found = np.empty(len(cells), dtype=object)
    found[:] = [cell.strip() if isinstance(cell, str) else as_string(cell) for cell in cells]
    return found


def check_values(
    failed: NDArray[np.bool_], cells: Sequence[Any], where: Callable[[int], str], reason: str
) -> None:
    """Raise on the first cell that has a value, but not one of the kind."""
    for row in np.flatnonzero(failed).tolist():
        if not (is_missing(cells[row]) or is_mark(cells[row])):
            raise DataError(f"{where(row)}: {cells[row]!r} {reason}")


def parse_boolean(cell: Any) -> float:
    """Return 1 or 0; NaN where a cell is neither true nor false."""
    if isinstance(cell, (bool, np.bool_)):
        return float(cell)
    word = str(cell).strip().lower()
    if word in (*TRUE, "1", "1.0"):
        return 1.0
    return 0.0 if word in (*FALSE, "0", "0.0") else float("nan")
