"""The command line: ``hierlearn ...``. Thin; torch and data are imported where they are used."""

from __future__ import annotations

import io
import re
import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn import __version__
from hierlearn.cli import evaluate, explain, memory, predict, taxonomy, train
from hierlearn.cli.errors import (
    Terminated,
    end,
    find_command,
    is_first_to_say,
    option_names,
    sigterm_raises,
)
from hierlearn.cli.generate import DATA, MAIN, MEMORY, Group, add_commands
from hierlearn.cli.train import ConfigError
from hierlearn.errors import HierlearnError, shorten, worded
from hierlearn.registry import imported, installed
from hierlearn.terminal import complain, show_traceback
from hierlearn.terminal import show_warning as print_warning

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
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_commands(
    app,
    train.train,
    evaluate.evaluate,
    predict.predict,
    explain.explain,
    evaluate.report,
    panel=MAIN,
)
app.add_typer(taxonomy.app, name="data", rich_help_panel=DATA)
add_commands(app, taxonomy.inspect, taxonomy.prune, taxonomy.restrict, panel=DATA)
add_commands(
    app,
    memory.remember,
    memory.forget,
    memory.remap,
    memory.index,
    memory.compact,
    memory.export,
    panel=MEMORY,
)
for place in installed("hierlearn.commands").values():  # those of the lab and the service, too
    imported(place, "commands")(app)


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        print(f"hierlearn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; anywhere on the line.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that come before the command."""
    del debug, version  # main takes --debug off the line, the callback answers --version
    if ctx.invoked_subcommand is None:
        print(GUIDE)


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning as one line: users of a command have no use for its place in our code."""
    if not is_first_to_say(f"{category.__name__}: {message}"):
        return
    shown = format_error(message, sys.argv[1:]) if isinstance(message, Warning) else message
    print_warning(shown, category, *where, **more)


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
    try:
        with sigterm_raises():
            code = commands()(words, standalone_mode=False)
    except UsageError as error:
        sys.exit(report_usage(error))
    except (KeyboardInterrupt, typer.Abort, Terminated) as error:  # releases of typer differ
        sys.exit(end(error))
    except (HierlearnError, OSError) as error:
        if "--debug" in sys.argv:
            sys.exit(crash(error))
        complain_once(format_error(error, words))
        sys.exit(2)
    except Exception as error:  # a fault of ours
        sys.exit(crash(error))
    sys.exit(end(None) if code == INTERRUPTED else code)


def crash(error: Exception) -> int:
    """Print a traceback, and return the exit code of Python."""
    show_traceback(error)
    return 1


def complain_once(message: str) -> None:
    """Print an error; under torchrun one process prints it for all that meet it."""
    if is_first_to_say(message):
        complain(message)


def format_error(error: Exception, words: Sequence[str]) -> str:
    """Return the one line of an error, with options where the library names arguments.

    Args:
        error: what was raised.
        words: the command line.
    """
    if isinstance(error, ConfigError):  # whose keys are named as they stand
        return str(error)
    options = option_names(find_command(commands(), words))
    return worded(" ".join(getattr(error, "message", str(error)).splitlines()), options)


def not_a_number(error: Any, words: Sequence[str]) -> str | None:
    """Return what is wrong where an option takes a number; None where it is something else.

    Args:
        error: of a value that could not be read, in the words of what reads it.
        words: the command line.
    """
    asked = NUMBERS.search(getattr(error, "message", ""))
    if asked is None:
        return None
    kind = "an integer" if asked["kind"].startswith("int") else "a number"
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in getattr(error.param, "opts", ()):
            given = value if equals else next(iter(words[place + 1 :]), "")
            return f"{name} must be {kind}, not {given!r}"
    return None


def report_usage(error: Any) -> int:
    """Print in one line what is wrong, or the help where a command is missing."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
    else:
        message = " ".join(error.format_message().split()).rstrip(".")
        message = not_a_number(error, sys.argv[1:]) or message
        message += "" if message.endswith("?") else ";"
        command = error.ctx.command_path if error.ctx else "hierlearn"
        complain_once(f"{shorten(message)} see {command} --help")
    return 2
