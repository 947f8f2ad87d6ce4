"""``hierlearn inspect``: look at a taxonomy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer


def inspect(
    source: Annotated[
        str, typer.Argument(help="A dataset's name or a hierarchy file.")
    ] = "icd10cm",
    depth: Annotated[int, typer.Option(min=0, help="Fold what lies deeper; 0: nothing.")] = 2,
    breadth: Annotated[
        int, typer.Option(min=0, help="Children to show of a class; 0: all of them.")
    ] = 8,
    svg: Annotated[Optional[Path], typer.Option(help="Also draw it into this SVG file.")] = None,
    json: Annotated[Optional[Path], typer.Option(help="Also write it to this JSON file.")] = None,
    data_dir: Annotated[Optional[Path], typer.Option(help="Folder of benchmark files.")] = None,
    form: Annotated[
        Optional[str], typer.Option(help="What an ambiguous file holds: nested, parents, ...")
    ] = None,
    sep: Annotated[
        Optional[str], typer.Option(help="What joins the names of a path; by default /.")
    ] = None,
    root: Annotated[
        Optional[str], typer.Option(help="The id that stands for the implicit root.")
    ] = None,
) -> None:
    """Draw a taxonomy and tell its facts."""
    from rich.console import Console

    from hierlearn.cli.show import print_levels, print_plain
    from hierlearn.cli.sources import open_hierarchy
    from hierlearn.files import atomic_write, check_writable

    check_writable(*(path for path in (svg, json) if path is not None))
    hierarchy = open_hierarchy(source, data_dir=data_dir, form=form, sep=sep, root=root)
    console = Console()
    print_plain(console, hierarchy.draw(depth=depth or None, breadth=breadth or None))
    print_levels(console, hierarchy)
    if svg is not None:
        hierarchy.to_svg(svg, depth=depth or None, breadth=breadth or None)
        print_plain(console, f"wrote {svg}")
    if json is not None:
        with atomic_write(json) as file:
            file.write(hierarchy.to_json() + "\n")
        print_plain(console, f"wrote {json}")
