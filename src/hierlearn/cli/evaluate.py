"""``hierlearn evaluate``: the metrics of a model on labeled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hierlearn.cli import shared


def evaluate(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA)],
    metrics: Annotated[
        Optional[str], typer.Option(help="Metrics by name: hit@1,au-prc; else the usual ones.")
    ] = None,
    rows: Annotated[
        Optional[str],
        typer.Option(help="The split to evaluate on, or all; by default test where it is."),
    ] = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", "-o", help="Also write them to this JSON file.")
    ] = None,
    force: shared.Force = False,
    device: shared.Device = "auto",
    set: shared.Set = None,
    label: shared.Label = None,
    levels: shared.Levels = None,
    features: shared.Features = None,
    text: shared.Text = None,
    split: shared.Split = None,
    hierarchy: shared.HierarchyFile = None,
    label_sep: shared.LabelSep = None,
    sep: shared.Sep = None,
    data_dir: shared.DataDir = None,
) -> None:
    """Tell how well a model does on labeled rows; their columns are those of its training."""
    from rich.console import Console

    from hierlearn.cli.model_rows import open_labeled, pick_rows
    from hierlearn.cli.show import print_metrics, print_plain, working
    from hierlearn.cli.sources import split_names
    from hierlearn.files import atomic_write, check_new
    from hierlearn.metrics.registry import check_metrics
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline import evaluate as measure
    from hierlearn.training.processes import find_device

    if out is not None:
        check_new(out, force)
    names = None if metrics is None else check_metrics(split_names(metrics))
    loaded = Pipeline.load(model, device=find_device(device))
    words = {
        "label": label,
        "levels": levels,
        "features": features,
        "text": text,
        "split": split,
        "hierarchy": hierarchy,
        "label_sep": label_sep,
        "sep": sep,
        "data_dir": data_dir,
    }
    dataset = open_labeled(loaded, data, set or (), words)
    if rows is None and "test" in dataset.splits:
        rows = "test"
    picked, which = pick_rows(dataset, rows)
    console = Console()
    with working("evaluating"):
        found = measure(loaded, picked, names)
    print_plain(console, f"{model} on {len(picked):,} rows of {dataset.name} ({which})")
    print_metrics(console, {which: found})
    if out is not None:
        import json

        facts = {
            "model": str(model),
            "data": data,
            "rows": which,
            "count": len(picked),
            "metrics": found,
        }
        with atomic_write(out) as file:
            file.write(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
        print_plain(console, f"wrote {out}")
