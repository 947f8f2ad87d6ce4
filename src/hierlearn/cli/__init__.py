"""The command line: ``hierlearn ...``. Thin; torch and data are imported where they are used."""

from __future__ import annotations

import sys

import typer

from hierlearn.cli import data, inspect
from hierlearn.errors import HierlearnError

app = typer.Typer(
    name="hierlearn",
    help="Classification whose labels form a taxonomy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("inspect")(inspect.inspect)
app.add_typer(data.app, name="data")


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Take the options that come before the command."""
    del debug  # read from the arguments by main, which also sees errors of the parser


def main() -> None:
    """Run the command line; an error is one line on standard error and exit code 2."""
    try:
        app()
    except (HierlearnError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        message = str(error).replace("\n", " ")
        print(f"hierlearn: {message}", file=sys.stderr)
        sys.exit(2)
