"""Errors in the terms of the command line: where the library says ``epochs``, ``--epochs``.

The library names arguments, as a Python user knows them. A command-line user reads the options of
the command that was invoked: names with an underscore, names that start a sentence about their
value, and keywords such as ``force=True`` are shown as they are typed. Names in quotes are the
user's own and stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import PAIRS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VERBS = "must|needs|names|takes"


def find_command(group: Any, words: Sequence[str]) -> Any:
    """Return the command that the words of a command line invoke."""
    for word in words:
        commands = getattr(group, "commands", {})
        if word in commands:
            group = commands[word]
        elif not word.startswith("-"):
            break
    return group


def option_names(command: Any) -> dict[str, str]:
    """Return how the options of a command are written."""
    found: dict[str, str] = {}
    for parameter in command.params:
        long = [name for name in parameter.opts if name.startswith("--")]
        if long:
            found[parameter.name] = long[0]
            if parameter.metavar == PAIRS:  # --loss-option gives an entry of loss_options
                found[f"{parameter.name}s"] = long[0]
    return found


def in_option_names(message: str, options: Mapping[str, str]) -> str:
    """Return a message with arguments written as options.

    What follows "cannot be made with" are options of a loss or a network, and stays.
    """
    message, made, rest = message.partition(" cannot be made with ")
    if not options:
        return message + made + rest
    known = alternatives(options)
    named = alternatives(name for name in options if "_" in name)

    def write(match: re.Match[str]) -> str:
        value = match.groupdict().get("value")
        value = value and value.strip("'")
        value = "none" if value == "None" else value
        return options[match["name"]] + (f" {value}" if value and value != "True" else "")

    valued = rf"(?<!['\w.-])(?P<name>{known})=(?P<value>True|None|\d[\w.]*|'[\w-]+')(?! in Python)"
    message = re.sub(valued, write, message)
    message = re.sub(rf"(?<!['\w.-])(?P<name>{known})=(?![\w'\"\[{{(])", write, message)
    message = re.sub(rf"^(?P<name>{known})(?= (?:{VERBS})\b)", write, message)
    if named:
        message = re.sub(rf"(?<!['\w./-])(?P<name>{named})(?!['\w=]|[.]\w)", write, message)
    return message + made + rest


def alternatives(names: Iterable[str]) -> str:
    """Return a pattern of names, the longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
