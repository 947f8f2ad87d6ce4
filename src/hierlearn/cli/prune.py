"""``hierlearn prune`` and ``hierlearn restrict``: a part of a taxonomy.

What is written remembers the classes that were removed: rows keep their labels, and those of a
removed class count for its nearest ancestors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import option, takes
from hierlearn.cli.outputs import output
from hierlearn.errors import HierlearnError, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from hierlearn.hierarchy import Hierarchy

READING = ("data_dir", "form", "sep", "root", "title_column", "relationships", "language")
PART = [
    option("namespace", str, None, "Only classes of this namespace: a,b,c."),
    option("below", str, None, "Only this class and what lies below it: a,b,c."),
    option("depth", int, None, "Only the classes of this many levels.", min=1),
]
OUT = output("out", "JSON file of what is left.", "--out", "-o", default=...)
TAXONOMY = [
    option("relationships", str, None, "Lines of an OBO file to follow; is_a,part_of if none."),
    option("form", str, None, "What an ambiguous file holds: nested, parents, ..."),
    option("root", str, None, "The id that stands for the implicit root."),
    option("title_column", str, None, "Column of titles of a CSV or TSV file; title if none."),
    option("language", str, None, "Language of the titles in an RDF file, such as de."),
]
Source = Annotated[str, typer.Argument(help="Name of a dataset or a hierarchy file.")]
SEP = [one for one in shared.COLUMNS if one.name == "sep"]
COLUMNS = [one for one in shared.COLUMNS if one.name not in ("sep", "hierarchy")]


@takes(
    option("data", str, ..., "Labeled rows: a file of any table format."),
    option("min_rows", int, 1, "Fewest training rows of a class, descendants included.", min=1),
    *PART,
    OUT,
    shared.FORCE,
    *COLUMNS,
    *SEP,
    *TAXONOMY,
    shared.DATA_DIR,
)
def prune(source: Source, **options: Any) -> None:
    """Leave out the classes of a taxonomy that have too few rows."""
    from hierlearn.cli.sources import open_dataset
    from hierlearn.datasets.dataset import training_counts

    hierarchy = open_taxonomy(source, options)
    part = chosen_part(hierarchy, options)
    given = {**options, "hierarchy": part, "data_dir": None, "sep": None}
    dataset = open_dataset(options["data"], given)
    if dataset.hierarchy != part:
        raise HierlearnError(
            f"{options['data']} has a hierarchy of its own, which is not that of {source}; prune "
            f"takes CSV, TSV and Parquet files"
        )
    counts = training_counts(dataset)
    least = options["min_rows"]
    if not (counts >= least).any():
        raise HierlearnError(
            f"no class has --min-rows {least}; the most frequent has {int(counts.max()):,}"
        )
    write(part.prune(least, counts), hierarchy, options, counts=counts)


@takes(*PART, OUT, shared.FORCE, *SEP, *TAXONOMY, shared.DATA_DIR)
def restrict(source: Source, **options: Any) -> None:
    """Keep a part of a taxonomy: a namespace, a branch, the upper levels."""
    hierarchy = open_taxonomy(source, options)
    write(chosen_part(hierarchy, options), hierarchy, options)


def open_taxonomy(source: str, options: Mapping[str, Any]) -> Hierarchy:
    """Open the hierarchy that the options describe."""
    from hierlearn.cli.sources import open_hierarchy, split_names

    reading = {name: options.get(name) for name in READING}
    if reading["relationships"] is not None:
        reading["relationships"] = split_names(reading["relationships"])
    return open_hierarchy(source, **reading)


def chosen_part(hierarchy: Hierarchy, options: Mapping[str, Any]) -> Hierarchy:
    """Return the part of a hierarchy that --namespace, --below and --depth leave."""
    import numpy as np

    from hierlearn.cli.sources import split_names

    keep = np.ones(len(hierarchy), dtype=bool)
    if options["namespace"] is not None:
        keep &= flags(
            hierarchy, (hierarchy.in_namespace(one) for one in split_names(options["namespace"]))
        )
    if options["below"] is not None:
        tops = [hierarchy.index(one) for one in split_names(options["below"])]
        keep &= flags(hierarchy, ([top, *hierarchy.descendants(top)] for top in tops))
    if options["depth"] is not None:
        keep &= hierarchy.levels <= options["depth"]
    if keep.all():
        return hierarchy
    if not keep.any():
        raise HierlearnError(
            "no class is left; choose other values of --namespace, --below and --depth"
        )
    return hierarchy.restrict(np.flatnonzero(keep).tolist())


def flags(hierarchy: Hierarchy, groups: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return (C,) which classes are in any of some groups of numbers."""
    import numpy as np

    found = np.zeros(len(hierarchy), dtype=bool)
    for numbers in groups:
        found[np.asarray(numbers, dtype=np.int64)] = True
    return found


def write(
    part: Hierarchy, whole: Hierarchy, options: Mapping[str, Any], counts: Any = None
) -> None:
    """Write what is left, and print how much that is."""
    from hierlearn.cli.show import print_levels
    from hierlearn.files.writing import atomic_write
    from hierlearn.terminal import Console, print_plain

    console = Console()
    print_levels(console, part)
    kept = plural(len(part), "class", "classes")
    print_plain(console, f"kept {kept} of {len(whole):,}, {part.depth} of {whole.depth} levels")
    if counts is not None:
        print_plain(
            console, f"{int((counts == 0).sum()):,} of {len(counts):,} classes had no training row"
        )
    out = options["out"]
    with atomic_write(out) as file:
        file.write(part.to_json() + "\n")
    print_plain(
        console, f"wrote {out}; give it as --hierarchy: rows keep the labels that they have"
    )
