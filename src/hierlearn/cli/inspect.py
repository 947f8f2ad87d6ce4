"""``hierlearn inspect``: look at a taxonomy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer


def inspect(
    source: Annotated[
        str, typer.Argument(help="A dataset's name or a hierarchy file.")
    ] = "icd10cm",
    depth: Annotated[Optional[int], typer.Option(help="Fold what lies deeper.")] = 3,
    breadth: Annotated[int, typer.Option(help="Children to show of a class.")] = 8,
    svg: Annotated[Optional[Path], typer.Option(help="Also draw it into this SVG file.")] = None,
    json: Annotated[Optional[Path], typer.Option(help="Also write it to this JSON file.")] = None,
    data_dir: Annotated[Optional[Path], typer.Option(help="Folder of benchmark files.")] = None,
    form: Annotated[
        Optional[str], typer.Option(help="What an ambiguous file holds: nested, parents, ...")
    ] = None,
    sep: Annotated[str, typer.Option(help="What joins the names of a path.")] = "/",
    root: Annotated[
        Optional[str], typer.Option(help="The id that stands for the implicit root.")
    ] = None,
) -> None:
    """Draw a taxonomy and tell its facts."""
    from rich.console import Console

    from hierlearn.cli.show import print_levels, print_plain
    from hierlearn.cli.sources import open_hierarchy
    from hierlearn.files import atomic_write

    hierarchy = open_hierarchy(source, data_dir=data_dir, form=form, sep=sep, root=root)
    drawing = hierarchy.draw(depth=depth, breadth=breadth)
    console = Console()
    print_plain(console, drawing)
    print_levels(console, hierarchy)
    if svg is not None:
        hierarchy.to_svg(svg, depth=depth, breadth=breadth)
        print_plain(console, f"wrote {svg}")
    if json is not None:
        with atomic_write(json) as file:
            file.write(hierarchy.to_json() + "\n")
        print_plain(console, f"wrote {json}")
