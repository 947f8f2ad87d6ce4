"""Dates in cells: parsed by one format per column, which is found on the training rows.

A format is ``iso`` or one of ``strptime``, such as ``%d.%m.%Y``. Names of months and weekdays are
English, long or short. Of a two-digit year the format also says the century: ``%m/%d/%y since
1945`` reads 45 to 99 as 1945 to 1999, and 00 to 44 as 2000 to 2044. A fraction of a second is
dropped; a time zone may follow any time, and turns it into UTC.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, timezone
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.hierarchy.names import is_missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Dates = NDArray[np.datetime64]

ISO = "iso"  # 2024-01-31, 2024-01-31T12:30:00, 2024-01-31 12:30+02:00
DAYS = (  # where several fit every date, the first is taken: the month before the day after a slash
    *("%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%Y-%m", "%Y/%m", "%m/%Y"),
    *("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%d/%b/%Y", "%d. %b %Y", "%d %b, %Y"),
    *("%b %d, %Y", "%b %d %Y", "%b-%d-%Y", "%Y %b %d", "%Y-%b-%d", "%b %Y", "%b, %Y", "%b-%Y"),
    *("%a, %d %b %Y", "%a %d %b %Y", "%a, %b %d, %Y", "%a %b %d, %Y", "%a %b %d %Y"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y"),
    *("%d %b %y", "%d-%b-%y", "%d/%b/%y", "%b %d, %y", "%b-%y"),
)
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
WHOLE = ("%a %b %d %H:%M:%S %Y",)  # what C and Unix print
SINCE = " since "
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\.?"
ZONE = r"(?:\s*(?P<z>z|utc|gmt|[+-]\d{2}(?::?\d{2})?))?"
PATTERNS = {
    "%Y": r"(?P<Y>\d{4})",
    "%y": r"(?P<y>\d{2})",
    "%m": r"(?P<m>1[0-2]|0?[1-9])",
    "%d": r"(?P<d>3[01]|[12]\d|0?[1-9])",
    "%b": rf"(?P<b>{MONTH})\.?",
    "%B": rf"(?P<b>{MONTH})\.?",
    "%a": WEEKDAY,
    "%A": WEEKDAY,
    "%H": r"(?P<H>2[0-3]|[01]?\d)",
    "%I": r"(?P<I>1[0-2]|0?[1-9])",
    "%M": r"(?P<M>[0-5]?\d)",
    "%S": r"(?P<S>[0-5]?\d)(?:[.,]\d+)?",
    "%f": r"\d{1,9}",
    "%p": r"(?P<p>[ap])\.?m\.?",
    "%z": ZONE,
    "%Z": ZONE,
    "%%": "%",
}
ISO_FORM = rf"(?P<Y>\d{{4}})-(?P<m>\d\d?)-(?P<d>\d\d?)(?:(?:\s+|T){PATTERNS['%H']}:{PATTERNS['%M']}"
ISO_FORM += rf"(?::{PATTERNS['%S']})?{ZONE})?"
SAMPLE = 100  # cells that tell which formats are worth trying
MOST = 0.9  # the fraction of a column's values that must be dates
LONGEST = 40  # characters of a date
PLAUSIBLE = (1000, 2999)  # years of dates that are recognized
LATEST = 2049  # the latest year that two digits are taken for where they could be a century earlier
DEFAULT_SINCE = 1969  # as strptime has it


def parse_dates(cells: Sequence[Any], form: str) -> Dates:
    """Return (N,) dates to the second, in UTC where there is a time zone; NaT where a cell is none.

    Args:
        cells: texts, or dates of Python, NumPy or pandas; an integer is read by its digits.
        form: of the texts.
    """
    plain, _, since = form.partition(SINCE)
    pattern = compiled(plain)
    numbers: dict[Any, int] = {}  # most dates occur again and again
    codes = [numbers.setdefault(cell, len(numbers)) for cell in cells]
    found = np.full(len(numbers), np.datetime64("NaT", "s"))
    matches: dict[int, re.Match[str]] = {}
    for place, value in enumerate(numbers):
        if isinstance(value, Real) and float(value).is_integer():
            value = f"{value:.0f}"  # 20240131, in a column of integers
        if not isinstance(value, str):
            if not is_missing(value):
                found[place] = as_date(value)
        elif pattern is None:
            with suppress(ValueError):
                found[place] = as_date(datetime.strptime(value.strip(), plain))
        elif (match := pattern.fullmatch(value.strip())) is not None:
            matches[place] = match
    if pattern is not None and matches:
        groups = zip(*(match.groups() for match in matches.values()), strict=True)
        parts = dict(zip(pattern.groupindex, groups, strict=True))
        found[list(matches)] = assembled(parts, int(since) if since.isdigit() else DEFAULT_SINCE)
    return found[np.array(codes, dtype=np.int64)]


def as_date(cell: Any) -> np.datetime64:
    """Return a date of Python, NumPy or pandas to the second; NaT for anything else."""
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(timezone.utc).replace(tzinfo=None)
    is_date = isinstance(cell, (date, np.datetime64))
    found: Any = np.array(cell if is_date else "NaT", dtype="datetime64[s]")[()]
    return found  # type: ignore[no-any-return]


@lru_cache(maxsize=1000)
def compiled(plain: str, *, timed: bool = False) -> re.Pattern[str] | None:
    """Return the pattern of a format; None where it needs ``strptime``.

    Args:
        plain: the format.
        timed: let any time follow.
    """
    if plain == ISO:
        return re.compile(ISO_FORM, re.IGNORECASE | re.ASCII)
    found, last = "", max(plain.rfind(one) for one in ("%H", "%I", "%M", "%S", "%p"))
    named = "%b" in plain or "%B" in plain
    for match in re.finditer(r"(?P<lead>\s*)(?:(?P<part>%.)|(?P<other>[^%\s]))", plain):
        part, lead = match["part"], match["lead"]
        if part is not None and part not in PATTERNS:
            return None
        if lead and part in ("%H", "%I"):
            found += r"(?:,?\s+|T)"
        elif lead:
            found += r"\s*" if part == "%p" else r"\s+"
        found += re.escape(match["other"]) if part is None else PATTERNS[part]
        if part == "%d" and named:
            found += "(?:st|nd|rd|th)?"
        if match.start("part") == last >= 0 and "%z" not in plain.lower():
            found += ZONE
    if timed:
        found += r"(?:(?:,?\s+|T)\d.*)?"
    try:
        pattern = re.compile(found, re.IGNORECASE | re.ASCII)
    except re.error:  # a directive that occurs twice
        return None
    has_day = {"Y", "y"} & {*pattern.groupindex} and {"m", "b"} & {*pattern.groupindex}
    return pattern if has_day else None


def assembled(parts: Mapping[str, Sequence[str | None]], since: int) -> Dates:
    """Return the dates of what directives matched, NaT for a day that its month does not have."""

    def numbers(name: str) -> Any:
        return np.array([int(one or 0) for one in parts.get(name, (0,))], dtype=np.int64)

    def minutes(zone: str | None) -> int:  # how far it is ahead of UTC
        if zone is None or zone[0] not in "+-":
            return 0
        ahead = int(zone[1:3]) * 60 + int(zone[-2:] if len(zone) > 3 else 0)
        return -ahead if zone[0] == "-" else ahead

    year = since + (numbers("y") - since) % 100 if "y" in parts else numbers("Y")
    month = numbers("m")
    if "b" in parts:
        month = np.array([MONTHS.index(str(one)[:3].lower()) + 1 for one in parts["b"]])
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (numbers("d") - 1 if "d" in parts else 0)
    hour = numbers("H")
    if "I" in parts:
        hour = numbers("I") % 12
    if "p" in parts:
        hour = hour % 12 + 12 * np.array([str(one).lower() == "p" for one in parts["p"]])
    offset = np.array([minutes(one) for one in parts.get("z", (None,))], dtype=np.int64)
    seconds = (hour * 60 + numbers("M") - offset) * 60 + numbers("S")
    dates: Dates = days.astype("datetime64[s]") + seconds
    dates[days.astype("datetime64[M]") != months] = np.datetime64("NaT")
    return dates


# ---------------------------------------- finding a format


def find_formats(cells: Iterable[Any]) -> list[str]:
    """Return the formats that the most of some different values have, at least nine in ten."""
    values = list(cells)
    if not any(isinstance(value, str) for value in values):
        # Dates that are no texts fit every format.
        return [ISO] if values and count_dates(values, ISO) >= MOST * len(values) else []
    sample = values[:SAMPLE]
    texts = [one.strip() for one in sample if isinstance(one, str)]
    odd = sum(len(one) > LONGEST or sum(map(str.isdigit, one)) < 3 for one in texts)
    if len(sample) - odd < MOST * len(sample):
        return []
    found: list[tuple[int, str]] = []
    for form in candidates(texts):
        if count_dates(sample, form) >= MOST * len(sample):
            count = count_dates(values, form)
            if count and count >= MOST * len(values):
                found.append((count, form))
    most = max((count for count, _ in found), default=0)
    return [with_century(form, values) for count, form in found if count == most]


def candidates(texts: Sequence[str]) -> list[str]:
    """Return the formats whose day fits most of a sample; times are told apart later."""
    found = [ISO, *WHOLE]
    for day in DAYS:
        pattern = compiled(day, timed=True)
        assert pattern is not None
        if sum(pattern.fullmatch(text) is not None for text in texts) >= MOST * len(texts):
            found += [day + time for time in TIMES]
    return found


def count_dates(values: Sequence[Any], form: str) -> int:
    """Return how many values are dates of a format, in plausible years."""
    dates = parse_dates(values, form)
    known = dates[~np.isnat(dates)]
    years = known.astype("datetime64[Y]").astype(np.int64) + 1970
    first, last = PLAUSIBLE
    return int(np.count_nonzero(((years >= first) & (years <= last)) | (years == 9999)))


def with_century(form: str, values: Sequence[Any]) -> str:
    """Return a format of two-digit years with the first year that these stand for.

    The years of a column are taken to lie together: the largest gap between them, around the
    century, is where they begin and end. They end in 2049 at the latest, and later rows may lie as
    far before as behind them.

    Args:
        form: any format; one without two-digit years, or with its first year, stays as it is.
        values: those of the training rows.
    """
    if "%y" not in form or SINCE in form:
        return form
    dates = parse_dates(values, form)
    years = dates[~np.isnat(dates)].astype("datetime64[Y]").astype(np.int64) + 1970
    known = np.unique(years % 100)
    if not len(known):
        return form
    gaps = np.diff(np.append(known, known[0] + 100))
    place = int(np.argmax(gaps))
    first = int(known[(place + 1) % len(known)])
    span = 100 - int(gaps[place])
    century = 1900 if 2000 + first + span > LATEST else 2000
    return f"{form}{SINCE}{century + first - (100 - span) // 2}"
