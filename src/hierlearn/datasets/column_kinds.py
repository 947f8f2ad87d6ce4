"""The kinds of columns of a mixed table, and the rule that finds them.

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
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.cells import is_mark, parse_number
from hierlearn.datasets.dates import ISO, find_formats
from hierlearn.errors import DataError, unknown_name
from hierlearn.hierarchy.names import is_missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """Return the format of the dates of a kind."""
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
    found = FoundKind("category")
    if is_boolean(counts):
        found = FoundKind("boolean")
    elif are_numbers(counts):
        found = FoundKind("number")
    elif forms := find_formats(one for one in counts if not is_mark(one)):
        found = FoundKind(f"date:{forms[0]}", also=forms[1] if len(forms) > 1 else "")
    elif is_text(counts, total):
        found = FoundKind("text")
    if len(counts) == 1 and total == rows:
        return replace(found, skip=ONE_VALUE)
    if total >= ID_ROWS and len(counts) == total and looks_like_id(name, counts, found.kind):
        return replace(found, skip=LIKE_AN_ID)
    return found


def count_values(name: str, cells: Sequence[Any]) -> Counter[Any]:
    """Return how often each known value occurs; raise on what is no value, such as a list."""
    try:
        counts = Counter(cells)
    except TypeError:
        odd = next(cell for cell in cells if isinstance(cell, (list, dict, set, np.ndarray)))
        raise DataError(
            f"column {name!r} holds {odd!r} ({type(odd).__name__}), not a number, string or date; "
            f"leave it out with ignore="
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
    """Whether values are booleans, or words for them."""
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


def looks_like_id(name: str, values: Iterable[Any], kind: str) -> bool:
    """Whether different values name rows: strings without blanks, or integers of such a name."""
    if kind == "category":
        texts = list(map(str.strip, map(str, values)))
        return all(texts) and BLANK.search("|".join(texts)) is None
    if kind != "number" or not ID_NAME.search(name):
        return False
    return all(parse_number(str(value)).is_integer() for value in values)
