"""The errors of hierlearn and their wording: one sentence that shows both sides and the remedy.

A message marks the arguments that it names: ``f"{arg('epochs')} must be at least 1"``. A Python
user reads them as they are, a user of the command line as options.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


LONGEST = 600  # characters of a message
LONGEST_NAME = 200  # characters of a name that others are compared with
TAIL = 180  # of which the last ones hold the remedy
ARGUMENT = "\ue000"  # stands before and after an argument in a message
# Control codes (C0, DEL, C1), separators of lines, embeddings, overrides and isolates of
# bidirectional text, and halves of surrogate pairs, which stand for bytes that are no UTF-8.
UNSAFE = "\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
IN_LINES = re.compile(f"[{UNSAFE}]")
IN_A_LINE = re.compile(f"[\n{UNSAFE}]")


def shorten(message: str, most: int = LONGEST, tail: int = TAIL) -> str:
    """Return a message without its middle where it is long: a file may hold a name of 1 MB."""
    if len(message) <= most:
        return message
    return f"{message[: most - tail - 5]} ... {message[len(message) - tail :]}"


def arg(name: str, *value: object) -> str:
    """Mark an argument in a message: ``epochs``, ``sep=``, or with its value, ``force=True``."""
    return f"{ARGUMENT}{name}{f'={value[0]!r}' if value else ''}{ARGUMENT}"


def worded(message: str, options: Mapping[str, str] | None = None) -> str:
    """Return a message whose marked arguments are written as options, where these are known.

    Args:
        message: with arguments that ``arg`` has marked.
        options: how arguments are written, such as ``--batch-size`` for ``batch_size``.
    """
    parts = message.split(ARGUMENT)
    for place in range(1, len(parts), 2):
        name, _, value = parts[place].partition("=")
        if options and name in options:
            value = "none" if value == "None" else value.strip("'")
            parts[place] = options[name] + (f" {value}" if value not in ("", "True") else "")
    return shorten("".join(parts))


def shown(value: object, most: int = 60) -> str:
    """Return a value as a message shows it, at most a few words of it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            text = repr(value)
        except ValueError:  # an integer of more digits than Python writes
            text = "a huge integer"
    elif isinstance(value, (str, bytes)):
        text = repr(value[:most]) + ("..." if len(value) > most else "")
    elif isinstance(value, (list, tuple, dict)):
        text = f"{type(value).__name__} of {plural(len(value), 'entry', 'entries')}"
    else:
        text = repr(value)
    return text if len(text) <= most + 5 else f"{text[:most]}..."


class HierlearnError(ValueError):
    """Base of every error that the user can mend; the command line prints it as one line."""

    def __str__(self) -> str:
        """Return the message with the names of arguments, shortened where it quotes much."""
        return worded(super().__str__())

    @property
    def message(self) -> str:
        """The message with its marks, for an error that is made of it."""
        return super().__str__()


class HierarchyError(HierlearnError):
    """The taxonomy itself is unusable: a cycle, a duplicate, an unknown parent."""


class LabelError(HierlearnError):
    """A label is not a class of the hierarchy, or could be several."""


class DataError(HierlearnError):
    """A data file or table does not hold what it should."""


class DownloadError(HierlearnError):
    """A file could not be fetched, or is not the file it claims to be."""


class DataWarning(UserWarning):
    """Data can be read, but perhaps not as it is meant."""

    def __str__(self) -> str:
        """Return the message with the names of arguments, shortened where it quotes much."""
        return worded(super().__str__())

    @property
    def message(self) -> str:
        """The message with its marks."""
        return super().__str__()


def quoted(names: Iterable[object], most: int = 5) -> str:
    """Return ``'a', 'b' and 3 more``: a list short enough for one sentence."""
    shown = [repr(name) for name in names]
    if len(shown) > most:
        return f"{', '.join(shown[:most])} and {len(shown) - most} more"
    return ", ".join(shown)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a clause that names the nearest known names, or an empty string."""
    if len(name) > LONGEST_NAME:  # the comparison takes time quadratic in the lengths
        return ""
    shorter = [one for one in known if len(one) <= LONGEST_NAME]
    near = difflib.get_close_matches(name, shorter, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Word an unknown registry name, with the known ones."""
    known = sorted(known)
    hint = did_you_mean(name, known) or ";"
    return f"unknown {kind} {name!r}{hint} known: {', '.join(known)}"


def place(path: object, line: int | None = None, column: str | int | None = None) -> str:
    """Word a place in a file: ``data.csv, line 3, column 'width'``."""
    text = str(path)
    if line is not None:
        text += f", line {line}"
    if column is not None:
        text += f", column {column!r}"
    return text


def plural(count: int, word: str, many: str | None = None) -> str:
    """Write a count with its noun: 1 epoch, 2 epochs."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


# ---------------------------------------------------------------------- what a terminal can show
#
# A class name may hold escape codes that color, clear or retitle a terminal, marks that reverse the
# direction of what follows, or a newline that forges a line. They are shown as Python writes them:
# ``\x1b[31m``, ``\u202e``, ``\n``. Letters of every script stay.


def printable(text: object) -> str:
    """Return one line that a terminal shows and does not act on."""
    return IN_A_LINE.sub(escaped, str(text))


def printable_lines(text: object) -> str:
    """Return text whose line breaks are meant, as a terminal shows it."""
    return IN_LINES.sub(escaped, str(text))


def escaped(match: re.Match[str]) -> str:
    """Return a character as Python writes it in a string."""
    return match[0].encode("unicode_escape").decode("ascii")
