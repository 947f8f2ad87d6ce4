"""The commands of the lab: compare, rank, noise, paper, bench, demo and cafa."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def add_commands(app: typer.Typer) -> None:
    """Add the commands of the lab to the command line."""
    from hierlearn.cli.generate import MAIN, STUDIES
    from hierlearn.cli.generate import add_commands as register
    from hierlearn.lab.commands import bench, cafa, demo, studies

    register(app, demo.demo, panel=MAIN)
    compared = (studies.compare, studies.paper, studies.noise, studies.rank)
    register(app, *compared, bench.bench, panel=STUDIES)
    app.add_typer(cafa.app, name="cafa", rich_help_panel=STUDIES)
