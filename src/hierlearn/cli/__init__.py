"""The command line: ``hierlearn ...``. Thin; torch and data are imported where they are used."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Annotated, Any

import typer

from hierlearn import __version__
from hierlearn.cli import (
    bench,
    compare,
    data,
    evaluate,
    export,
    inspect,
    noise,
    predict,
    rank,
    report,
    train,
)
from hierlearn.errors import HierlearnError

# Click's error of a wrong command line; newer releases of typer have a copy of click inside.
UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="hierlearn",
    help="Classification whose labels form a taxonomy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("bench")(bench.bench)
app.command("compare")(compare.compare)
app.command("inspect")(inspect.inspect)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.command("report")(report.report)
app.command("rank")(rank.rank)
app.command("noise")(noise.noise)
app.add_typer(data.app, name="data")


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        print(f"hierlearn {__version__}")
        raise typer.Exit


@app.callback()
def options(
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


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning as one line: users of a command have no use for its place in our code."""
    del where, more
    name = "" if issubclass(category, UserWarning) else f"{category.__name__}: "
    print(f"hierlearn: {name}{message}", file=sys.stderr)


def main() -> None:
    """Run the command line; an error is one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack some letters
    words = [word for word in sys.argv[1:] if word != "--debug"]
    warnings.showwarning = show_warning
    try:
        code = app(words, standalone_mode=False)
    except UsageError as error:
        sys.exit(refuse_words(error))
    except typer.Abort:  # Ctrl-C, in older releases of typer
        sys.exit(130)
    except (HierlearnError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        message = str(error).replace("\n", " ")
        print(f"hierlearn: {message}", file=sys.stderr)
        sys.exit(2)
    sys.exit(code)


def refuse_words(error: Any) -> int:
    """Tell in one line what the parser minds, or show the help where a command is missing."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), end="")  # empty where rich has printed the help already
    else:
        message = " ".join(error.format_message().split()).rstrip(".")
        message += "" if message.endswith("?") else ";"
        command = error.ctx.command_path if error.ctx else "hierlearn"
        print(f"hierlearn: {message} see {command} --help", file=sys.stderr)
    return 2
