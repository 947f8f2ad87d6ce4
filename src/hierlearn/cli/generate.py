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
PAIRS = "KEY=VALUE"  # the metavar of an option that may be repeated
FROM_RECIPE = "from the recipe"  # the default of a name that is not given
NONE = type("None_", (), {"__repr__": lambda _: "none"})()  # given as "none", unlike not given


def dashed(name: str) -> str:
    """Return how an option is written: ``--batch-size``."""
    return "--" + name.replace("_", "-")


def option(name: str, kind: Any, default: Any, help: str, *names: str, **more: Any) -> Parameter:
    """Return an option of a command.

    Args:
        name: the name of its value.
        kind: its type, without Optional.
        default: the value where it is not given; ``...`` where it must be.
        help: one sentence.
        names: how it is written, where not after its name.
        more: what typer.Option takes, and ``panel``.
    """
    if kind is not bool:
        more.setdefault("metavar", help_.KINDS.get(kind))
    info = typer.Option(*names, help=help, rich_help_panel=more.pop("panel", None), **more)
    plain: Any = Optional[kind] if default is None else kind
    annotation: Any = Annotated[plain, info]
    default = Parameter.empty if default is ... else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def flag(name: str, help: str, **more: Any) -> Parameter:
    """Return an option that is there or not."""
    return option(name, bool, False, help, dashed(name), **more)


def pairs(name: str, help: str, **more: Any) -> Parameter:
    """Return an option that is given as ``key=value``, once per key."""
    return option(name, list[str], None, f"{help} Repeatable.", metavar=PAIRS, **more)


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
            made = pairs(option_name(one), one.description.help, **more)
        else:
            if one.literals:
                more["metavar"] = f"[{'|'.join(one.literals)}]"
            if one.optional and one.kind in (int, float):
                more |= {"parser": or_none(one.kind), "metavar": f"<{one.kind.__name__}|none>"}
            made = option(option_name(one), one.kind, None, one.description.help, **more)
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

    @property
    def examples(self) -> tuple[str, ...]:
        """The command lines below the help, without ``hierlearn``."""
        return tuple(getattr(self.callback, "examples", ()))

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless it would overwrite what it should not."""
        from hierlearn.cli.outputs import check_outputs

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


def add_command(
    app: typer.Typer,
    name: str,
    function: Callable[..., None],
    *examples: str,
    panel: str | None = None,
) -> None:
    """Add a command.

    Args:
        app: what gets it.
        name: its name.
        function: what it calls.
        examples: command lines below its help, without ``hierlearn``.
        panel: the heading that it is listed under.
    """
    made: Any = function
    made.examples = examples
    app.command(name, cls=Command, rich_help_panel=panel)(function)
