"""A hook of mkdocs: the page of the command line shows what ``--help`` of every command prints."""

from __future__ import annotations

import os
from typing import Any

PAGE = "reference/command-line.md"
PLACE = "<!-- the help of every command -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with a section for every command."""
    if page.file.src_uri != PAGE:
        return markdown
    if PLACE not in markdown:
        raise ValueError(f"{PAGE} needs the line {PLACE}")
    return markdown.replace(PLACE, "\n\n".join(sections()))


def sections() -> list[str]:
    """Return a heading and the help of every command, in the order of ``hierlearn --help``."""
    import typer
    from typer.testing import CliRunner

    from hierlearn.cli import app

    def shown(words: tuple[str, ...]) -> str:
        found = CliRunner().invoke(app, [*words, "--help"], prog_name="hierlearn")
        return f"## {' '.join(('hierlearn', *words))}\n\n```text\n{found.output.strip()}\n```"

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        parts = [shown(())]
        for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
            below = getattr(command, "commands", None)
            parts += [shown((name, one)) for one in below] if below else [shown((name,))]
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return parts
