"""The commands of the lab: compare, rank, noise, paper, bench, demo and cafa."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.cli.generate import MAIN, STUDIES, add_command
from hierlearn.lab.commands import bench, cafa, compare, demo, noise, paper, rank

if TYPE_CHECKING:
    import typer


def add_commands(app: typer.Typer) -> None:
    """Add the commands of the lab to the command line."""
    add_command(app, "demo", demo.demo, "demo", "demo --out mine --svg demo.svg", panel=MAIN)
    add_command(
        app,
        "compare",
        compare.compare,
        "compare",
        "compare rows.csv --label class --methods bce,hxe:alpha=0.3,hcl --seeds 5",
        "compare --suite clus --data-dir DATA --out clus",
        panel=STUDIES,
    )
    add_command(
        app,
        "paper",
        paper.paper,
        "paper --data-dir DATA",
        "paper --data-dir DATA --seeds 3 --device cpu --out mine",
        panel=STUDIES,
    )
    add_command(
        app,
        "noise",
        noise.noise,
        "noise synthetic --methods bce,hcl --rates 0,0.2,0.4",
        "noise rows.csv --label class --kinds labels --draws 5",
        panel=STUDIES,
    )
    add_command(
        app,
        "rank",
        rank.rank,
        "rank study-a study-b study-c --metric hit@1",
        "rank study-a study-b study-c --out ranks --force",
        panel=STUDIES,
    )
    add_command(
        app,
        "bench",
        bench.bench,
        "bench",
        "bench rows.csv",
        "bench rows.csv --label class --recipe hcl --batch-size 512 --json times.json",
        "bench --hierarchy tree.csv --losses hcl,hxe --batch-size 64",
        panel=STUDIES,
    )
    app.add_typer(cafa.app, name="cafa", rich_help_panel=STUDIES)
