"""``hierlearn inspect``: look at a taxonomy."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import option, takes
from hierlearn.cli.outputs import output

OPTIONS = [
    option("depth", int, 2, "Fold what lies deeper; 0: nothing.", min=0),
    option("breadth", int, 8, "Children to show of a class; 0: all of them.", min=0),
    output("svg", "Also draw it into this SVG file."),
    output("json", "Also write it to this JSON file."),
    option("form", str, None, "What an ambiguous file holds: nested, parents, ..."),
    option("sep", str, None, "Separator of the names of a path; / if none."),
    option("root", str, None, "The id that stands for the implicit root."),
    option("title_column", str, None, "Column of titles of a CSV or TSV file; title if none."),
    option("language", str, None, "Language of the titles in an RDF file, such as de."),
    option("relationships", str, None, "Lines of an OBO file to follow; is_a,part_of if none."),
]


@takes(*OPTIONS, shared.FORCE, shared.DATA_DIR)
def inspect(
    source: Annotated[
        str, typer.Argument(help="Name of a dataset or a hierarchy file.")
    ] = "icd10cm",
    **options: Any,
) -> None:
    """Draw a taxonomy and count its classes."""
    from hierlearn.cli.prune import open_taxonomy
    from hierlearn.cli.show import print_levels
    from hierlearn.files.writing import atomic_write
    from hierlearn.terminal import Console, print_plain

    depth, breadth = options["depth"] or None, options["breadth"] or None
    svg, json = options["svg"], options["json"]
    hierarchy = open_taxonomy(source, options)
    console = Console()
    print_plain(console, *hierarchy.draw(depth=depth, breadth=breadth).split("\n"))
    print_levels(console, hierarchy)
    if svg is not None:
        hierarchy.to_svg(svg, depth=depth, breadth=breadth)
        print_plain(console, f"wrote {svg}")
    if json is not None:
        with atomic_write(json) as file:
            file.write(hierarchy.to_json() + "\n")
        print_plain(console, f"wrote {json}")
