r"""Printable: names and texts from outside as a terminal can show them, without acting on them.

A class name may hold escape codes that color, clear or retitle a terminal, marks that reverse the
direction of what follows, or a newline that forges a line. They are shown as Python writes them:
``\x1b[31m``, ``\u202e``, ``\n``. Letters of every script stay.
"""

from __future__ import annotations

import re

# Control codes (C0, DEL, C1), separators of lines, embeddings, overrides and isolates of
# bidirectional text, and halves of surrogate pairs, which stand for bytes that are no UTF-8.
UNSAFE = "\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
IN_LINES = re.compile(f"[{UNSAFE}]")
IN_A_LINE = re.compile(f"[\n{UNSAFE}]")


def printable(text: object) -> str:
    """Return one line that a terminal shows and does not act on."""
    return IN_A_LINE.sub(escaped, str(text))


def printable_lines(text: object) -> str:
    """Return text whose line breaks are meant, as a terminal shows it."""
    return IN_LINES.sub(escaped, str(text))


def escaped(match: re.Match[str]) -> str:
    """Return a character as Python writes it in a string."""
    return match[0].encode("unicode_escape").decode("ascii")
