"""``key=value`` options: the one parser of the command line, configuration files and studies.

A value is JSON (a number, a string in quotes, a list, ``true``, ``null``), or one of Python's
``None``, ``True`` and ``False``, or ``none``; anything else is a string as it stands.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Iterable

CONSTANTS = {"none": None, "None": None, "True": True, "False": False}


def parse_value(text: str) -> Any:
    """Return the value that a text stands for; the text itself where it is no JSON."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, an integer of thousands of digits, deep lists
        return text


def parse_pair(word: str, what: str, *, as_typed: bool = False) -> tuple[str, str]:
    """Split ``key=value``; dashes of the key become underscores.

    Args:
        word: the pair.
        what: what takes it, for the error: ``--loss-option``, or ``loss hxe``.
        as_typed: leave dashes in keys that are names, such as those of losses.
    """
    key, equals, value = word.partition("=")
    key = key.strip() if as_typed else key.strip().replace("-", "_")
    if not equals or not key:
        raise HierlearnError(f"{what} takes key=value, not {word!r}")
    return key, value.strip()


def split_pairs(words: Iterable[str], what: str, *, as_typed: bool = False) -> dict[str, str]:
    """Return the text of every key; each key is given once."""
    found: dict[str, str] = {}
    for word in words:
        key, value = parse_pair(word, what, as_typed=as_typed)
        if key in found:
            raise HierlearnError(f"{what} gives {key} twice")
        found[key] = value
    return found


def parse_pairs(words: Iterable[str], what: str, *, as_typed: bool = False) -> dict[str, Any]:
    """Return the value of every key; each key is given once."""
    found = split_pairs(words, what, as_typed=as_typed)
    return {key: parse_value(text) for key, text in found.items()}
