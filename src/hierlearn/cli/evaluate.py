"""``hierlearn evaluate``: the metrics of a model on labeled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import option, takes

OPTIONS = [
    option("metrics", str, None, "Metrics by name: hit@1,au-prc; the usual ones if none."),
    option("rows", str, None, "Split to evaluate on, or all; test if there is one."),
    option("out", Path, None, "Also write the metrics to this JSON file.", "--out", "-o"),
]


@takes(*OPTIONS, shared.FORCE, shared.TRUST, shared.DEVICE, *shared.SOURCE)
def evaluate(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA)],
    **options: Any,
) -> None:
    """Compute the metrics of a model on labeled rows; their columns are those of its training."""
    from rich.console import Console

    from hierlearn.cli.model_rows import open_labeled, pick_rows
    from hierlearn.cli.show import print_metrics, print_plain, working
    from hierlearn.cli.sources import split_names
    from hierlearn.files import atomic_write, check_new
    from hierlearn.metrics.registry import check_metrics
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline import evaluate as measure
    from hierlearn.training.processes import find_device

    out, metrics, rows = (options[name] for name in ("out", "metrics", "rows"))
    if out is not None:
        check_new(out, options["force"])
    names = None if metrics is None else check_metrics(split_names(metrics))
    device = find_device(options["device"])
    loaded = Pipeline.load(model, device=device, trust=options["trust"])
    dataset = open_labeled(loaded, data, options)
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

        summary = {
            "model": str(model),
            "data": data,
            "rows": which,
            "count": len(picked),
            "metrics": found,
        }
        with atomic_write(out) as file:
            file.write(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        print_plain(console, f"wrote {out}")
