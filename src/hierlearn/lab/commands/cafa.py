"""``hierlearn cafa``: predictions and figures as the protein function challenge has them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FILE, Group, add_commands, option, options, takes
from hierlearn.errors import HierlearnError, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.lab.cafa import CafaCurve
    from hierlearn.pipeline import Pipeline

app = typer.Typer(
    cls=Group,
    help="Fmax, Smin and predictions of gene, term and score, as in CAFA.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
ROWS = option("rows", str, "Split to use, or all; test if there is one.")
INFORMATION = option(
    "information",
    Path,
    "File of terms and their information content; from the split train if none.",
)
SOURCE = [one for one in shared.SOURCE if one.name != "hierarchy"]  # the model has its own
READ = ("features", "text", "ignore", "column_kind", "id_column", "delimiter")
INPUTS = [one for one in shared.COLUMNS if one.name in READ]  # of rows without labels
Data = Annotated[str, typer.Argument(help=shared.DATA)]


@takes(
    ROWS,
    *options(threshold_from=(str, "Split on whose rows the threshold is found, as valid.")),
    INFORMATION,
    *options(out=(FILE, "Also write the figures to this JSON file.")),
    shared.FORCE,
    shared.TRUST,
    shared.DEVICE,
    *SOURCE,
)
def evaluate(model: shared.ModelFolder, data: Data, **options: Any) -> None:
    """Compute Fmax, weighted Fmax and Smin of a model, per namespace.

    With --threshold-from, also the F1 at the threshold that is best on other rows.

    Examples:
        cafa evaluate model genes.csv --annotations genes.gaf
        cafa evaluate model genes.csv --rows test --threshold-from valid --out figures.json
    """
    from hierlearn.cli.output import write_json
    from hierlearn.cli.rows import pick_rows
    from hierlearn.terminal import Console, print_plain

    out = options["out"]
    loaded, dataset = load(model, data, options)
    rows = options["rows"] or ("test" if "test" in dataset.splits else None)
    picked, which = pick_rows(dataset, rows)
    ic, note = information_of(dataset, which, options["information"], loaded.hierarchy)
    found = curves(loaded, picked, ic)
    best: dict[str, float] = {}
    if options["threshold_from"] is not None:
        other, _ = pick_rows(dataset, options["threshold_from"], "--threshold-from")
        best = {name: one.fmax_threshold for name, one in curves(loaded, other, ic).items()}
    figures = {name: described(one, best.get(name)) for name, one in found.items()}
    console = Console()
    print_plain(console, f"{model} on {len(picked):,} rows of {dataset.name} ({which}); {note}")
    print_figures(console, figures)
    if out is not None:
        summary = {"model": str(model), "data": data, "rows": which, "figures": figures}
        write_json(out, summary)
        print_plain(console, f"wrote {out}")


@takes(
    *options(
        out=(FILE, "File to write: gene, term and score.", {"default": ...}),
        min_score=(float, "Smallest score to write.", {"default": 0.01, "min": 0, "max": 1}),
        max_terms=(int, "Most terms of a gene.", {"default": 1500, "min": 1}),
    ),
    shared.MISSING,
    shared.FORCE,
    shared.TRUST,
    shared.DEVICE,
    *INPUTS,
)
def predict(model: shared.ModelFolder, data: Data, **options: Any) -> None:
    """Write gene, term and score of a table of any size; its ids are those of --id-column.

    Examples:
        cafa predict model new.csv --id-column gene --out scores.tsv
        cafa predict model new.csv --id-column gene --out scores.tsv --force
    """
    from hierlearn.cli.output import working
    from hierlearn.cli.rows import is_table, load_model, open_stream
    from hierlearn.lab.cafa import cafa_writer
    from hierlearn.pipeline.missing import MissingCells, place_of
    from hierlearn.terminal import Console, print_plain

    out = options["out"]
    if not is_table(data):
        raise HierlearnError(f"{data} is no table; give a CSV, TSV or Parquet file with ids")
    loaded = load_model(model, options)
    stream = open_stream(loaded, data, options)
    if stream.id_column is None:
        raise HierlearnError("the column of genes is not known; name it with --id-column")
    cells = MissingCells(loaded)
    genes = lines = 0
    limits = {name: options[name] for name in ("min_score", "max_terms")}
    with (
        cafa_writer(out, loaded.hierarchy, **limits) as append,
        working("predicting", stream.rows) as advance,
    ):
        for chunk in stream:
            where = partial(place_of, Path(data), chunk.lines)
            cells.add(chunk.inputs, where)
            begin = 0
            for p in loaded.stream_probabilities(chunk.inputs):
                lines += append((chunk.ids or ())[begin : begin + len(p)], p)
                begin += len(p)
            genes += begin
            advance(genes)
    cells.warn()
    console = Console()
    print_plain(console, f"{plural(genes, 'gene')}, {plural(lines, 'line')}")
    print_plain(console, f"wrote {out}")


def load(model: Path, data: str, options: Mapping[str, Any]) -> tuple[Pipeline, Dataset]:
    """Return a model and its labeled rows."""
    from hierlearn.cli.rows import load_model, open_labeled
    from hierlearn.pipeline.evaluate import check_hierarchy

    loaded = load_model(model, options)
    dataset = open_labeled(loaded, data, options)
    check_hierarchy(loaded, dataset)
    return loaded, dataset


def information_of(
    dataset: Dataset, which: str, path: Path | None, hierarchy: Hierarchy
) -> tuple[Tensor, str]:
    """Return the information content of classes, and a note about where it comes from."""
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.lab.cafa import information_content, read_information

    if path is not None:
        return read_information(path, hierarchy), f"information content of {path}"
    name = "train" if "train" in dataset.splits else which
    part = dataset if name == "all" else dataset.split(name)
    found = information_content(Labels(part.labels, hierarchy), hierarchy)
    return found, f"information content of {len(part):,} rows ({name})"


def curves(model: Pipeline, rows: Dataset, ic: Tensor) -> dict[str, CafaCurve]:
    from hierlearn.cli.output import working
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.lab.cafa import cafa_curves

    if not len(rows):
        raise HierlearnError("there are no rows to evaluate on")
    with working("predicting"):
        p = model.probabilities(rows.inputs)
        labels = Labels(rows.labels, model.hierarchy)
        return cafa_curves(p, labels, model.label_space, information=ic)


def described(curve: CafaCurve, threshold: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rows": curve.rows,
        "fmax": curve.fmax,
        "fmax_threshold": curve.fmax_threshold,
        "weighted_fmax": curve.weighted_fmax,
        "smin": curve.smin,
        "smin_threshold": curve.smin_threshold,
    }
    if threshold is not None:
        place = int((curve.thresholds - threshold).abs().argmin())
        found |= {"threshold": threshold, "f1": float(curve.f[place])}
    return found


def print_figures(console: Any, figures: Mapping[str, Mapping[str, Any]]) -> None:
    """Print one row per namespace."""
    from hierlearn.terminal import print_table

    names = {"rows": "rows", "fmax": "fmax", "weighted_fmax": "weighted", "smin": "smin"}
    at_another = any("f1" in one for one in figures.values())
    names |= {"f1": "f1", "threshold": "at"} if at_another else {"fmax_threshold": "at"}
    rows = []
    for name, one in figures.items():
        values = [one.get(key) for key in names]
        shown = ["" if v is None else f"{v:,}" if type(v) is int else f"{v:.3f}" for v in values]
        rows.append([name, *shown])
    print_table(console, ["namespace", *names.values()], rows)


add_commands(app, evaluate, predict)
