"""``hierlearn data``: list, describe and fetch datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hierlearn.cli import shared

app = typer.Typer(
    help="List, describe and fetch datasets.", no_args_is_help=True, add_completion=False
)


@app.command("list")
def list_datasets(data_dir: shared.DataDir = None) -> None:
    """List the named datasets, and which are at hand."""
    import sys

    from rich.console import Console
    from rich.table import Table

    from hierlearn.cli.sources import check_data_dir
    from hierlearn.datasets.clus import CLUS_SETS, locate_clus, no_folder, own_folders
    from hierlearn.datasets.registry import DATASETS, DEFAULT

    check_data_dir(data_dir)
    for origin, folder in own_folders().items():
        if not folder.is_dir():
            print(f"hierlearn: {no_folder(origin, folder)}", file=sys.stderr)
    table = Table()
    for column in ("name", "what", "at hand", "download"):
        table.add_column(column)
    for entry in DATASETS.values():
        at_hand, download = "yes", ""
        if entry.origin == "files":
            one = CLUS_SETS[entry.name]
            at_hand = "yes" if locate_clus(entry.name, data_dir) else "no"
            size = "" if one.size is None else f"{one.size / 1e6:.1f} MB, "
            download = size + ("verified" if one.has_checksum else "needs --trust")
        name = f"{entry.name} (default)" if entry.name == DEFAULT else entry.name
        table.add_row(name, entry.description, at_hand, download)
    Console().print(table)


@app.command("describe")
def describe_dataset(
    source: Annotated[str, typer.Argument(help=shared.DATA)] = "icd10cm",
    option: shared.Set = None,
    label: shared.Label = None,
    levels: shared.Levels = None,
    features: shared.Features = None,
    text: shared.Text = None,
    split: shared.Split = None,
    hierarchy: shared.HierarchyFile = None,
    label_sep: shared.LabelSep = None,
    sep: shared.Sep = None,
    data_dir: shared.DataDir = None,
    out: Annotated[
        Optional[Path], typer.Option(help="Also write facts, hierarchy and drawing here.")
    ] = None,
) -> None:
    """Tell the facts of a dataset that decide how to learn from it."""
    from rich.console import Console

    from hierlearn.cli.show import print_facts, print_plain
    from hierlearn.cli.sources import open_dataset
    from hierlearn.datasets import describe
    from hierlearn.files import atomic_write, check_writable

    names = ("facts.json", "hierarchy.json", "hierarchy.svg")
    check_writable(*(out / name for name in names if out is not None))
    dataset = open_dataset(
        source,
        option or (),
        data_dir=data_dir,
        label=label,
        levels=levels,
        features=features,
        text=text,
        split=split,
        hierarchy=hierarchy,
        label_sep=label_sep,
        sep=sep,
    )
    facts = describe(dataset)
    console = Console()
    print_facts(console, facts)
    if out is not None:
        import json

        with atomic_write(out / "facts.json") as file:
            file.write(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
        with atomic_write(out / "hierarchy.json") as file:
            file.write(dataset.hierarchy.to_json() + "\n")
        dataset.hierarchy.to_svg(out / "hierarchy.svg", depth=2, breadth=6)
        print_plain(console, f"wrote {', '.join(names)} to {out}")


@app.command("fetch")
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="The dataset; see hierlearn data list.")],
    data_dir: shared.DataDir = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Accept files whose checksum is not recorded.")
    ] = False,
) -> None:
    """Download a benchmark into the cache, verified, unless it is at hand."""
    from rich.console import Console

    from hierlearn.cli.show import print_plain
    from hierlearn.cli.sources import open_named

    dataset = open_named(name, data_dir=data_dir, trust=trust)
    print_plain(Console(), f"{name}: {len(dataset):,} rows are ready")
