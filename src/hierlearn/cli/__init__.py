"""The command line: ``hierlearn ...``. Thin; torch and data are imported where they are used."""

from __future__ import annotations

import io
import re
import sys
import traceback
import warnings
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn import __version__
from hierlearn.cli import evaluate, memory, predict, taxonomy, train
from hierlearn.cli.generate import DATA, MAIN, MEMORY, PAIRS, Group, add_commands
from hierlearn.cli.output import Terminated, end, is_first_to_say, sigterm_raises
from hierlearn.cli.train import ConfigError
from hierlearn.errors import HierlearnError, printable_lines, shorten, worded
from hierlearn.registry import imported, installed
from hierlearn.terminal import complain

if TYPE_CHECKING:
    from collections.abc import Sequence

# Click's error of a wrong command line; newer releases of typer have a copy of click inside.
UsageError: Any = typer.BadParameter.__base__
# How releases of typer say that a text is no number.
NUMBERS = re.compile(r"(?:should be|is not) a valid (?P<kind>integer|number|int|float)")
INTERRUPTED = 130  # what newer releases of typer return after Ctrl-C

DOCS = "Documentation: the folder docs of the source; make docs builds the site."
GUIDE = f"""\
hierlearn {__version__}: classification whose labels form a taxonomy.

See what it does, on rows that come with it, in about a minute:
  $ hierlearn demo

Your own table, with labels such as animal/dog/pug in a column:
  $ hierlearn data describe rows.csv --label class        what is in it
  $ hierlearn train rows.csv --label class --out model    prints what it chose
  $ hierlearn evaluate model labeled.csv                  how good it is
  $ hierlearn predict model new.csv --out answers.csv     one answer per row
  $ hierlearn explain model new.csv                       what it rests on

In Python: from hierlearn import HierarchicalClassifier

All commands: hierlearn --help; the options of one: hierlearn train --help
{DOCS}"""

app = typer.Typer(
    cls=Group,
    name="hierlearn",
    help="Classification whose labels form a taxonomy.",
    epilog=f"Begin with hierlearn alone. {DOCS}",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_commands(
    app,
    train.train,
    evaluate.evaluate,
    predict.predict,
    predict.explain,
    evaluate.report,
    panel=MAIN,
)
app.add_typer(taxonomy.app, name="data", rich_help_panel=DATA)
add_commands(app, taxonomy.inspect, taxonomy.prune, panel=DATA)
add_commands(
    app,
    memory.remember,
    memory.forget,
    memory.remap,
    memory.index,
    memory.export,
    panel=MEMORY,
)
for place in installed("hierlearn.commands").values():  # those of the lab and the service, too
    imported(place, "commands")(app)


@app.callback()
def options(
    ctx: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; anywhere on the line.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version."),
    ] = False,
) -> None:
    """Take the options that come before the command."""
    del debug  # main takes it off the line
    if version:
        print(f"hierlearn {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(GUIDE)


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning as one line: users of a command have no use for its place in our code."""
    del where, more
    if not is_first_to_say(f"{category.__name__}: {message}"):
        return
    shown = format_error(message, sys.argv[1:]) if isinstance(message, Warning) else message
    name = "" if issubclass(category, UserWarning) else f"{category.__name__}: "
    complain(f"{name}{shown}")


@cache
def commands() -> Any:
    """Return the commands as Click runs them, made once: there are hundreds of options."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command line; an error is one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack some letters
    words = [word for word in sys.argv[1:] if word != "--debug"]
    warnings.showwarning = show_warning
    message = ""
    try:
        with sigterm_raises():
            code = commands()(words, prog_name="hierlearn", standalone_mode=False)
    except UsageError as error:
        message = usage_message(error)
    except (KeyboardInterrupt, typer.Abort, Terminated) as error:  # releases of typer differ
        sys.exit(end(error))
    except Exception as error:
        if not isinstance(error, (HierlearnError, OSError)) or "--debug" in sys.argv:
            for line in traceback.format_exception(error):  # a fault of ours, or it was asked for
                print(printable_lines(line), end="", file=sys.stderr)
            sys.exit(1)
        message = format_error(error, words)
    else:
        sys.exit(end(None) if code == INTERRUPTED else code)
    if message and is_first_to_say(message):  # under torchrun one process prints it for all
        complain(message)
    sys.exit(2)


def format_error(error: Exception, words: Sequence[str]) -> str:
    """Return the one line of an error, with options where the library names arguments.

    Args:
        error: what was raised.
        words: the command line.
    """
    if isinstance(error, ConfigError):  # whose keys are named as they stand
        return str(error)
    command = commands()
    for word in words:
        inner = getattr(command, "commands", {})
        if word in inner:
            command = inner[word]
        elif not word.startswith("-"):
            break
    options: dict[str, str] = {}
    for parameter in command.params:
        long = [name for name in parameter.opts if name.startswith("--")]
        if long:
            options[parameter.name] = long[0]
            if parameter.metavar == PAIRS:  # --loss-option gives an entry of loss_options
                options[f"{parameter.name}s"] = long[0]
    return worded(" ".join(getattr(error, "message", str(error)).splitlines()), options)


def usage_message(error: Any) -> str:
    """Return in one line what is wrong; where a command is missing, print the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
        return ""
    message = shorten(" ".join(error.format_message().split()).rstrip("."))
    kind = NUMBERS.search(getattr(error, "message", ""))
    words = sys.argv[1:]
    for place, word in enumerate(words if kind else ()):
        name, equals, value = word.partition("=")
        if name in getattr(error.param, "opts", ()):
            what = "an integer" if kind and kind["kind"].startswith("int") else "a number"
            given = value if equals else next(iter(words[place + 1 :]), "")
            message = shorten(f"{name} must be {what}, not {given!r}")
            break
    command = error.ctx.command_path if error.ctx else "hierlearn"
    return f"{message}{'' if message.endswith('?') else ';'} see {command} --help"
