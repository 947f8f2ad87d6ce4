"""What ``--help`` prints: options under headings, with defaults and examples, for 80 columns.

Options stand in a column of their own; a long one is followed by its help on the next line, so that
the text always has most of the width.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDEST = 100  # columns, also where the terminal has more
LEFT = 26  # columns of the options, with the indent
HELD = "\x00"  # a space at which no line is broken
GENERAL = "Options"  # the heading of options without a panel
KINDS = {int: "<int>", float: "<float>", str: "<text>", Path: "<path>"}


def wrapped(text: str, columns: int) -> list[str]:
    """Return the lines of a text; a default in brackets and the value of an option stay whole."""

    def hold(match: re.Match[str]) -> str:
        return match[0].replace(" ", HELD) if len(match[0]) <= columns else match[0]

    whole = re.sub(r"\[[^]]*\]$|--\S+ (?!-)\S+", hold, text)
    lines = textwrap.wrap(whole, columns, break_on_hyphens=False)
    return [line.replace(HELD, " ") for line in lines]


def width() -> int:
    """Return the columns to fill."""
    return min(shutil.get_terminal_size().columns, WIDEST)


def styled(text: str, **style: Any) -> str:
    """Return text in a style, unless colors are not wanted; a pipe gets none anyway."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, **style)


def heading(text: str) -> str:
    """Return the line above a section."""
    return styled(f"{text}:", bold=True)


def entry(left: str, text: str) -> str:
    """Return an option or a command with its description beside it, or below where it is long."""
    columns = width()
    lines = wrapped(text, columns - LEFT) or [""]
    shown = "  " + styled(left, fg="cyan")
    if len(left) + 4 > LEFT:
        lines.insert(0, "")
    first = shown + " " * (LEFT - 2 - len(left)) + lines[0]
    return "\n".join([first.rstrip(), *(" " * LEFT + line for line in lines[1:])])


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring, filled."""
    parts = (" ".join(part.split()) for part in text.strip().split("\n\n"))
    return [textwrap.fill(part, width(), break_on_hyphens=False) for part in parts if part]


def written(parameter: Any) -> str:
    """Return how an option is typed: ``-o, --out <path>``; a flag has no value."""
    names = sorted(parameter.opts, key=len) + list(parameter.secondary_opts)
    line = ", ".join(names) if not parameter.secondary_opts else " / ".join(names)
    if parameter.is_flag or getattr(parameter, "count", False):
        return line
    return f"{line} {parameter.metavar or '<value>'}"


def shown_default(parameter: Any, default: Any) -> str:
    """Return what stands in brackets behind an option.

    Args:
        parameter: the option.
        default: its default value or a phrase about it, None where there is none.
    """
    if parameter.required:
        return "[required]"
    if parameter.multiple or (parameter.is_flag and not parameter.secondary_opts):
        return ""  # nothing is given, and nothing is on
    if isinstance(parameter.show_default, str):
        default = parameter.show_default
    if isinstance(default, bool):
        default = "on" if default else "off"
    low = getattr(parameter, "min", None)  # releases of typer differ in where it is
    low = getattr(getattr(parameter, "type", None), "min", None) if low is None else low
    parts = [] if low is None else [f"at least {low:g}"]
    if default is not None and default != "":
        parts.append(f"default: {default}")
    return f"[{', '.join(parts)}]" if parts else ""


def argument(parameter: Any) -> tuple[str, str]:
    """Return how an argument is typed and what it is."""
    name = parameter.name.upper() + ("..." if parameter.nargs != 1 else "")
    default = f"[default: {parameter.default}]" if parameter.default else ""
    return name, f"{parameter.help} {'[required]' if parameter.required else default}".rstrip()


def usage(command: Any, ctx: Any) -> str:
    """Return the first line."""
    words = ["[OPTIONS]"]
    if hasattr(command, "commands"):
        words.append("COMMAND ...")
    for one in command.params:
        if one.param_type_name == "argument":
            name = argument(one)[0]
            words.append(name if one.required else f"[{name}]")
    path = ctx.command_path.replace("python -m ", "")
    return f"{heading('Usage')} {path} {' '.join(words)}"


def option_sections(rows: Iterable[tuple[Any, str]]) -> list[str]:
    """Return the panels of options, in the order in which they first appear.

    Args:
        rows: every option with its text.
    """
    panels: dict[str, list[str]] = {}
    for one, text in rows:
        panel = getattr(one, "rich_help_panel", None) or GENERAL
        panels.setdefault(panel, []).append(entry(written(one), text))
    if GENERAL in panels and len(panels[GENERAL]) == 1:  # --help alone
        panels[GENERAL] = panels.pop(GENERAL)
    return ["\n".join([heading(panel), *lines]) for panel, lines in panels.items()]


def command_sections(group: Any) -> list[str]:
    """Return the commands of a group under their headings."""
    panels: dict[str, list[str]] = {}
    for name, one in group.commands.items():
        panel = getattr(one, "rich_help_panel", None)
        first = " ".join((one.help or "").split("\n\n")[0].split())
        panels.setdefault(panel or "Commands", []).append(entry(name, first))
    return ["\n".join([heading(panel), *lines]) for panel, lines in panels.items()]


def example_section(examples: Sequence[str]) -> str:
    r"""Return the examples; a line that is too long is continued as in a shell, after a ``\``."""
    lines = [heading("Examples")]
    for example in examples:
        parts = wrapped(f"hierlearn {example}", width() - 6)
        lines.append("  $ " + " \\\n      ".join(parts))
    return "\n".join(lines)
