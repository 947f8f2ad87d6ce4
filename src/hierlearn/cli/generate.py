"""Commands made from descriptions: one option per field of Settings, Plan and Protocol.

``described`` turns the fields of a dataclass into options and ``takes`` gives them to a function
that has ``**options``. Values that were not given arrive as None, so that a configuration file, a
recipe or the dataclass itself can fill them in; ``--help`` shows the defaults and the names of a
registry, which are looked up only then.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from hierlearn.registry import CONSTANTS, parse_pairs
from hierlearn.training.fields import settings_of

if TYPE_CHECKING:
    from hierlearn.training.fields import Setting


Function = TypeVar("Function", bound=Callable[..., Any])
NAMES_AS_KEYS = ("joint", "column_kind")  # options whose keys are names: soft-labels=3
LISTS = ("dataset_option", "ignore")  # options whose words are no pairs, or read elsewhere
FILE, FOLDER = "<file>", "<folder>"  # the metavar of an option that is written
TABLE = "<file or ->"  # the same, which may be standard output
WRITTEN = (FILE, FOLDER, TABLE)
SOURCES = ("data", "source", "calibrate", "hierarchy")  # names of datasets, or paths
OF_REPORT = "folder"  # which report also writes into, and checks itself
PAIRS = "KEY=VALUE"  # the metavar of an option that may be repeated
FROM_RECIPE = "from the recipe"  # the default of a name that is not given
NONE = type("None_", (), {"__repr__": lambda _: "none"})()  # given as "none", unlike not given


def dashed(name: str) -> str:
    """Return how an option is written: ``--batch-size``."""
    return "--" + name.replace("_", "-")


def option(name: str, kind: Any, help: str, panel: str | None = None, **more: Any) -> Parameter:
    """Return an option of a command.

    Args:
        name: the name of its value.
        kind: its type; ``bool`` for a flag, ``PAIRS`` for one that is given as ``key=value`` once
            per key, ``FILE``, ``FOLDER`` or ``TABLE`` for what the command writes.
        help: one sentence.
        panel: its heading in ``--help``.
        more: ``default``, which is ``...`` where it must be given, and what typer.Option takes.
    """
    names = [dashed(name)] if kind is bool else ["--out", "-o"] if name == "out" else []
    names = more.pop("names", names)
    default = more.pop("default", False if kind is bool else None)
    if kind in WRITTEN:
        kind, more["metavar"] = Path, kind
    elif kind == PAIRS:
        kind, more["metavar"], help = list[str], PAIRS, f"{help} Repeatable."
    elif kind is not bool:
        more.setdefault("metavar", KINDS.get(kind))
    info = typer.Option(*names, help=help, rich_help_panel=panel, **more)
    plain: Any = Optional[kind] if default is None else kind
    default = Parameter.empty if default is ... else default
    annotation: Any = Annotated[plain, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options(panel: str | None = None, /, **described: tuple[Any, ...]) -> list[Parameter]:
    """Return the options of a panel by name: the kind, the help, and a dictionary of more."""
    return [
        option(name, kind, help, panel, **(more[0] if more else {}))
        for name, (kind, help, *more) in described.items()
    ]


def option_name(one: Setting) -> str:
    """Return the option of a setting: ``loss_options`` is given as ``--loss-option``."""
    return one.name.removesuffix("s") if one.kind is dict else one.name


def described(cls: type, panel: str, *, study: bool = False, **defaults: Any) -> list[Parameter]:
    """Return the options of a dataclass made with ``setting``.

    Args:
        cls: the dataclass.
        panel: the heading in ``--help``, unless a field names its own.
        study: only those of a study.
        defaults: what ``--help`` shows instead of the defaults of the dataclass.
    """
    parameters = []
    for one in settings_of(cls).values():
        if study and not one.description.study:
            continue
        more: dict[str, Any] = {"panel": one.description.panel or panel}
        if one.kind is dict:
            made = option(option_name(one), PAIRS, one.description.help, **more)
        else:
            if one.literals:
                more["metavar"] = f"[{'|'.join(one.literals)}]"
            if one.optional and one.kind in (int, float):
                more |= {"parser": or_none(one.kind), "metavar": f"<{one.kind.__name__}|none>"}
            more |= {"default": None, "names": []}  # a boolean is on, off, or not given
            made = option(option_name(one), one.kind, one.description.help, **more)
        for_help = (one, defaults.get(one.name, one.default))
        parameters.append(made.replace(annotation=Annotated[made.annotation, for_help]))
    return parameters


def or_none(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return what reads a number, or "none"."""

    def read(text: str) -> Any:
        if text in CONSTANTS and CONSTANTS[text] is None:
            return NONE
        try:
            return kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is neither a number nor none") from None

    return read


def takes(*options: Parameter) -> Callable[[Function], Function]:
    """Give options to a function that takes them as ``**options``."""

    def decorate(function: Function) -> Function:
        own = [
            one
            for one in inspect.signature(function, eval_str=True).parameters.values()
            if one.kind is not Parameter.VAR_KEYWORD
        ]
        made: Any = function
        made.__signature__ = inspect.Signature([*own, *options])
        made.__annotations__ = {one.name: one.annotation for one in (*own, *options)}
        made.shown = {
            one.name: extra
            for one in options
            for extra in one.annotation.__metadata__
            if isinstance(extra, tuple)
        }
        return function

    return decorate


def given(options: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the options that were given, of some names, with ``key=value`` parsed."""
    values: dict[str, Any] = {}
    for name in options if names is None else names:
        value = options.get(name)
        if value is None or value == []:
            continue
        if isinstance(value, list) and name == "encoder":
            from hierlearn.backbones import parse_encoders  # which imports torch

            value = parse_encoders(value, dashed(name))
        elif isinstance(value, list) and name not in LISTS:
            value = parse_pairs(value, dashed(name), as_typed=name in NAMES_AS_KEYS)
        values[name] = None if value is NONE else str(value) if isinstance(value, Path) else value
    return values


def given_fields(cls: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass that options give, under the names of the fields."""
    return {
        one.name: options[option_name(one)]
        for one in settings_of(cls).values()
        if option_name(one) in options
    }


# ---------------------------------------- help


# Headings of hierlearn --help.
MAIN, DATA, MEMORY, STUDIES = "Main commands", "Data", "A trained model", "Studies"


class Group(TyperGroup):
    """A group of commands, listed under headings."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        params: Any = self.get_params(ctx)
        panels: dict[str, list[str]] = {}
        for name, one in self.commands.items():
            panel = getattr(one, "rich_help_panel", None) or "Commands"
            first = " ".join((one.help or "").split("\n\n")[0].split())
            panels.setdefault(panel, []).append(entry(name, first))
        parts = [
            usage(self, ctx),
            *paragraphs(self.help or ""),
            *sections(panels),
            *option_sections((one, one.help or "") for one in params),
            *paragraphs(self.epilog or ""),
        ]
        formatter.write("\n\n".join(parts) + "\n")


class Command(TyperCommand):
    """A command whose help looks up defaults and choices when it is shown."""

    def __init__(self, *arguments: Any, help: str | None = None, **more: Any) -> None:
        text, _, examples = inspect.cleandoc(help or "").partition("\n\nExamples:\n")
        self.examples = [line.strip() for line in examples.splitlines()]
        super().__init__(*arguments, help=text, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless it would overwrite what it should not."""
        check_outputs(self.params, ctx.params)
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        shown = getattr(self.callback, "shown", {})
        params = self.get_params(ctx)
        arguments = [one for one in params if one.param_type_name == "argument"]
        rows = [
            (one, explained(one, *shown.get(one.name, (None, one.default))))
            for one in params
            if one.param_type_name != "argument"
        ]
        parts = [usage(self, ctx), *paragraphs(self.help or "")]
        if arguments:
            lines = [entry(*argument(one)) for one in arguments]
            parts.append("\n".join([heading("Arguments"), *lines]))
        examples = [heading("Examples")]
        for example in self.examples:  # a long line is continued as in a shell
            lines = wrapped(f"hierlearn {example}", width() - 6)
            examples.append("  $ " + " \\\n      ".join(lines))
        parts += [*option_sections(rows), "\n".join(examples)]
        formatter.write("\n\n".join(parts) + "\n")


def explained(parameter: Any, one: Setting | None, default: Any) -> str:
    """Return the text of an option: its help, the choices of its setting, its default."""
    parts = [parameter.help or ""]
    if one is not None and one.description.registry:
        parts.append(f"One of {', '.join(one.choices())}.")
        default = FROM_RECIPE if default is None else default
    parts.append(shown_default(parameter, default))
    return " ".join(part for part in parts if part)


def add_commands(app: typer.Typer, *functions: Callable[..., None], panel: str = "") -> None:
    """Add commands to a group, each named after its function.

    Args:
        app: the group.
        functions: what the commands call.
        panel: the heading that they are listed under.
    """
    for one in functions:
        app.command(one.__name__.strip("_"), cls=Command, rich_help_panel=panel or None)(one)


# ---------------------------------------------------------------------- what a command writes


def check_outputs(params: Iterable[Any], values: Mapping[str, Any]) -> None:
    """Raise on an output that is an input, that exists, or that cannot be written.

    An option of kind ``FILE``, ``FOLDER`` or ``TABLE`` is written; every other option or argument
    that is a path, and every name in ``SOURCES``, is read.

    Args:
        params: of the command.
        values: of the options and arguments by name; None or absent where not given.
    """
    from hierlearn.cli.output import writes
    from hierlearn.files.locations import is_standard
    from hierlearn.files.writing import WriteError, check_output, check_output_folder

    if not writes():
        return
    outputs: list[tuple[str, Path]] = []
    inputs: list[Path] = []
    for one in params:
        value = values.get(one.name)
        if one.metavar in WRITTEN:
            if value is not None and not (one.metavar == TABLE and is_standard(value)):
                outputs.append((one.metavar, Path(value)))
        elif one.name != OF_REPORT and not (one.name == "model" and "in_place" in values):
            # Commands with --in-place may replace the model, and say how.
            every = value if isinstance(value, (list, tuple)) else [value]
            inputs += [Path(x) for x in every if isinstance(x, Path) or (one.name in SOURCES and x)]
    known: list[Path] = []
    for kind, path in outputs:
        holds_parts = values.get("engine") is not None and not path.suffix
        check = check_output_folder if kind == FOLDER or holds_parts else check_output
        check(path, bool(values.get("force")), inputs)
        if any(path.absolute() == other.absolute() for other in known):
            raise WriteError(f"two options write to {path}; name another file for one of them")
        known.append(path)


def input_names(function: Any) -> list[str]:
    """Return the names of the parameters of a command that are read."""
    names = set()
    for one in inspect.signature(function, eval_str=True).parameters.values():
        extra = getattr(one.annotation, "__metadata__", ())
        is_written = any(getattr(each, "metavar", "") in WRITTEN for each in extra)
        if one.name in SOURCES or ("pathlib" in str(one.annotation) and not is_written):
            names.add(one.name)
    return sorted(names)


# ---------------------------------------------------------------------- what --help prints
#
# For 80 columns: options stand in a column of their own; a long one is followed by its help on the
# next line, so that the text always has most of the width.

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
    return f"{heading('Usage')} {ctx.command_path} {' '.join(words)}"


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
    return sections(panels)


def sections(panels: Mapping[str, list[str]]) -> list[str]:
    """Return panels of lines under their headings."""
    return ["\n".join([heading(panel), *lines]) for panel, lines in panels.items()]
