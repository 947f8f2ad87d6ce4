"""Commands made from descriptions: one option per field of Settings, Plan and Protocol.

``described`` turns the fields of a dataclass into options and ``takes`` gives them to a function
that has ``**options``. Values that were not given arrive as None, so that a configuration file, a
recipe or the dataclass itself can fill them in; ``--help`` shows the defaults and the names of a
registry, which are looked up only then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from hierlearn.cli import help as help_
from hierlearn.options import CONSTANTS, parse_pairs
from hierlearn.training.fields import settings_of

if TYPE_CHECKING:
    from hierlearn.training.fields import Setting


Function = TypeVar("Function", bound=Callable[..., Any])
NAMES_AS_KEYS = ("joint", "column_kind", "encoder")  # options whose keys are names: soft-labels=3
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
        more.setdefault("metavar", help_.KINDS.get(kind))
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
    found = []
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
        found.append(with_default(made, one, defaults.get(one.name, one.default)))
    return found


def with_default(parameter: Parameter, one: Setting, default: Any) -> Parameter:
    """Keep beside an option what ``--help`` shows of it."""
    return parameter.replace(annotation=Annotated[parameter.annotation, (one, default)])


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
    found: dict[str, Any] = {}
    for name in options if names is None else names:
        value = options.get(name)
        if value is None or value == []:
            continue
        if isinstance(value, list) and name not in LISTS:
            value = parse_pairs(value, dashed(name), as_typed=name in NAMES_AS_KEYS)
        found[name] = None if value is NONE else str(value) if isinstance(value, Path) else value
    return found


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
        rows = [(one, one.help or "") for one in params]
        parts = [
            help_.usage(self, ctx),
            *help_.paragraphs(self.help or ""),
            *help_.command_sections(self),
            *help_.option_sections(rows),
        ]
        if self.epilog:
            parts += help_.paragraphs(self.epilog)
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
        parts = [help_.usage(self, ctx), *help_.paragraphs(self.help or "")]
        if arguments:
            lines = [help_.entry(*help_.argument(one)) for one in arguments]
            parts.append("\n".join([help_.heading("Arguments"), *lines]))
        parts += [*help_.option_sections(rows), help_.example_section(self.examples)]
        formatter.write("\n\n".join(parts) + "\n")


def explained(parameter: Any, one: Setting | None, default: Any) -> str:
    """Return the text of an option: its help, the choices of its setting, its default."""
    parts = [parameter.help or ""]
    if one is not None and one.description.registry:
        parts.append(f"One of {', '.join(one.choices())}.")
        default = FROM_RECIPE if default is None else default
    parts.append(help_.shown_default(parameter, default))
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
    from hierlearn.cli.show import writes
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
    found = set()
    for one in inspect.signature(function, eval_str=True).parameters.values():
        extra = getattr(one.annotation, "__metadata__", ())
        is_written = any(getattr(each, "metavar", "") in WRITTEN for each in extra)
        if one.name in SOURCES or ("pathlib" in str(one.annotation) and not is_written):
            found.add(one.name)
    return sorted(found)
