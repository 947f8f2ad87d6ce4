"""Commands made from descriptions: one option per field of Settings, Plan and Protocol.

``described`` turns the fields of a dataclass into options and ``takes`` gives them to a function
that has ``**options``. Values that were not given arrive as None, so that a configuration file, a
recipe or the dataclass itself can fill them in; ``--help`` shows the defaults, and the names of a
registry, which are looked up only then.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from hierlearn.registry import CONSTANTS, parse_pairs
from hierlearn.training.fields import Setting, settings_of

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
HELD = "\x00"  # a hyphen at which no line is broken
KINDS = {int: "<int>", float: "<float>", str: "<text>", Path: "<path>"}
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
        help = one.description.help
        more: dict[str, Any] = {"panel": one.description.panel or panel}
        if one.kind is dict:
            parameters.append(option(option_name(one), PAIRS, help, **more))
            continue
        default = defaults.get(one.name, one.default)
        if one.description.registry:
            default = FROM_RECIPE if default is None else default
        if default not in (None, ""):
            default = (
                {True: "on", False: "off"}.get(default, default) if one.kind is bool else default
            )
            help = f"{help} [default: {default}]"
        if one.literals:
            more["metavar"] = f"[{'|'.join(one.literals)}]"
        if one.optional and one.kind in (int, float):
            more |= {"parser": or_none(one.kind), "metavar": f"<{one.kind.__name__}|none>"}
        # A boolean is on, off, or not given.
        made = option(option_name(one), one.kind, help, **more, default=None, names=[])
        parameters.append(made.replace(annotation=Annotated[made.annotation, one]))
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
        made.settings = {
            one.name: extra
            for one in options
            for extra in one.annotation.__metadata__
            if isinstance(extra, Setting) and extra.description.registry
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

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, then the options."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, one in self.commands.items():
            first = " ".join((one.help or "").split("\n\n")[0].split())
            panel = getattr(one, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name, first))
        params: Any = self.get_params(ctx)
        panels["Options"] = [one.get_help_record(ctx) for one in params]
        write_panels(formatter, panels)


class Command(TyperCommand):
    """A command with panels of options and examples in its help."""

    def __init__(self, *arguments: Any, help: str | None = None, **more: Any) -> None:
        text, _, examples = inspect.cleandoc(help or "").partition("\n\nExamples:\n")
        self.examples = [line.strip() for line in examples.splitlines()]
        super().__init__(*arguments, help=text, **{**more, "rich_markup_mode": None})

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless it would overwrite what it should not."""
        check_outputs(self.params, ctx.params)
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the first line, which releases of typer write differently."""
        del ctx
        arguments = [one for one in self.params if one.param_type_name == "argument"]
        names = [((one.name or "").upper(), one.required) for one in arguments]
        return ["[OPTIONS]", *(name if needed else f"[{name}]" for name, needed in names)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options and examples; names of a registry are looked up here."""
        settings: dict[str, Setting] = getattr(self.callback, "settings", {})
        panels: dict[str, list[tuple[str, str]]] = {}
        for one in cast("Any", self.get_params(ctx)):
            name, text = one.get_help_record(ctx)
            panel = getattr(one, "rich_help_panel", None) or "Options"
            if one.param_type_name == "argument":
                name, panel = one.name.upper() + "..." * (one.nargs != 1), "Arguments"
            if one.name in settings:
                known = f"One of {', '.join(settings[one.name].choices())}. [default"
                text = text.replace("[default", known, 1)
            panels.setdefault(panel, []).append((name, " ".join(text.split())))
        write_panels(formatter, panels)
        with formatter.section("Examples"):
            for example in self.examples:  # a long line is continued as in a shell
                line = f"  $ hierlearn {example}"
                lines = textwrap.wrap(line, formatter.width - 6, break_on_hyphens=False)
                formatter.write(" \\\n      ".join(lines) + "\n")


def write_panels(formatter: Any, panels: Mapping[str, list[tuple[str, str]]]) -> None:
    """Write names and their descriptions under headings; no name is broken at its hyphens."""
    for panel, records in panels.items():
        with formatter.section(panel):
            formatter.write_dl([(name, text.replace("-", HELD)) for name, text in records])
    formatter.buffer[:] = [part.replace(HELD, "-") for part in formatter.buffer]


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
