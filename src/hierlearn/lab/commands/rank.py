"""``hierlearn rank``: which loss ranks best over several datasets, and is that more than chance?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FOLDER, options, takes

if TYPE_CHECKING:
    from hierlearn.terminal import Console


FILES = ("ranks.json", "ranks.md", "critical-difference.png", "critical-difference.svg")
OPTIONS = options(
    metric=(str, "Metric to rank by.", {"default": "au-prc"}),
    out=(FOLDER, "Folder to write.", {"default": Path("ranks")}),
)


@takes(*OPTIONS, shared.FORCE)
def rank(
    studies: Annotated[
        list[Path], typer.Argument(help="Folders of studies, from hierlearn compare.")
    ],
    **options: Any,
) -> None:
    """Rank losses over datasets: Friedman's test, Nemenyi's critical difference and its plot.

    Examples:
        rank study-a study-b study-c --metric hit@1
        rank study-a study-b study-c --out ranks --force
    """
    from hierlearn.files.writing import check_output
    from hierlearn.lab.pages.figures import critical_difference
    from hierlearn.lab.ranks import notes, publish_ranks, rank_studies
    from hierlearn.terminal import Console, print_plain

    out = options["out"]
    for name in FILES:
        check_output(out / name, options["force"])
    summary = rank_studies(studies, options["metric"])
    written = critical_difference(summary, out) + publish_ranks(summary, out)
    console = Console()
    print_ranks(console, summary)
    for text in (summary["verdict"], *notes(summary)):
        print_plain(console, text)
    print_plain(console, f"wrote {', '.join(path.name for path in written)} to {out}")


def print_ranks(console: Console, summary: dict[str, Any]) -> None:
    """Print one row per loss, best first: its mean rank, and its figure on each dataset."""
    from hierlearn.lab.ranks import rows
    from hierlearn.lab.summary import ARROWS
    from hierlearn.terminal import Table, Text

    arrow = ARROWS[summary["direction"]]
    table = Table(title=f"{summary['metric']} {arrow}")
    table.add_column("")
    table.add_column("mean rank ↓", justify="right")
    for name in summary["datasets"]:
        table.add_column(Text(name), justify="right")
    for cells in rows(summary):
        table.add_row(*map(Text, cells))
    console.print(table)
