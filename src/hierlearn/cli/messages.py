"""Errors in the terms of the command line: where the library says ``epochs``, ``--epochs``.

The library names arguments, as a Python user knows them. A command-line user reads options: names
with an underscore, names that start a sentence about their value, and keywords such as
``force=True`` are shown as they are typed. Names in quotes are the user's own and stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import PAIRS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERBS = "must|needs|names|takes"


def option_names(command: Any) -> dict[str, str]:
    """Return how the options of a command, and of the commands below it, are written."""
    found: dict[str, str] = {}
    for one in getattr(command, "commands", {}).values():
        found |= option_names(one)
    for parameter in command.params:
        long = [name for name in parameter.opts if name.startswith("--")]
        if long:
            found[parameter.name] = long[0]
            if parameter.metavar == PAIRS:  # --loss-option gives an entry of loss_options
                found[f"{parameter.name}s"] = long[0]
    return found


def in_option_names(message: str, options: Mapping[str, str]) -> str:
    """Return a message with arguments written as options."""
    if not options:
        return message
    known = alternatives(options)
    named = alternatives(name for name in options if "_" in name)

    def write(match: re.Match[str]) -> str:
        value = match.groupdict().get("value")
        return options[match["name"]] + (f" {value}" if value and value != "True" else "")

    message = re.sub(rf"(?<!['\w.-])(?P<name>{known})=(?P<value>True|\d[\w.]*)", write, message)
    message = re.sub(rf"(?<!['\w.-])(?P<name>{known})=(?![\w'\"\[{{(])", write, message)
    message = re.sub(rf"^(?P<name>{known})(?= (?:{VERBS})\b)", write, message)
    if not named:
        return message
    return re.sub(rf"(?<!['\w./-])(?P<name>{named})(?!['\w=])", write, message)


def alternatives(names: Iterable[str]) -> str:
    """Return a pattern of names, the longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
