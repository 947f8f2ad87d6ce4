"""``hierlearn rank``: which loss ranks best over several datasets, and is that more than chance?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared

if TYPE_CHECKING:
    from rich.console import Console


def rank(
    studies: Annotated[
        list[Path], typer.Argument(help="Folders of studies, from hierlearn compare.")
    ],
    metric: Annotated[str, typer.Option(help="To rank by, of the studies.")] = "au-prc",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("ranks"),
    force: shared.Force = False,
) -> None:
    """Rank losses over datasets: Friedman's test, Nemenyi's critical difference and its picture."""
    from rich.console import Console

    from hierlearn.cli.show import print_plain
    from hierlearn.files import check_new
    from hierlearn.reports.critical_difference import critical_difference
    from hierlearn.studies.ranks import notes, publish_ranks, rank_studies

    check_new(out / "ranks.json", force)
    summary = rank_studies(studies, metric)
    written = critical_difference(summary, out) + publish_ranks(summary, out)
    console = Console()
    print_ranks(console, summary)
    for said in (summary["words"], *notes(summary)):
        print_plain(console, said)
    print_plain(console, f"wrote {', '.join(path.name for path in written)} to {out}")


def print_ranks(console: Console, summary: dict[str, Any]) -> None:
    """Print a row a loss, best first: its mean rank, and its figure on each dataset."""
    from rich.table import Table
    from rich.text import Text

    from hierlearn.studies.ranks import rows
    from hierlearn.studies.tables import ARROWS

    arrow = ARROWS[summary["direction"]]
    table = Table(title=f"{summary['metric']} {arrow}", title_justify="left")
    table.add_column("")
    table.add_column("mean rank ↓", justify="right")
    for name in summary["datasets"]:
        table.add_column(Text(name), justify="right")
    for cells in rows(summary):
        table.add_row(*map(Text, cells))
    console.print(table)
