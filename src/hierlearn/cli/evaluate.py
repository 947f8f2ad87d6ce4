"""``hierlearn evaluate``: the metrics of a model on labeled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.calibrate import RISK_OPTIONS
from hierlearn.cli.generate import described, option, takes
from hierlearn.cli.outputs import output
from hierlearn.training.plan import Plan

if TYPE_CHECKING:
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.seen_rows import Overlap

OPTIONS = [
    option("metrics", str, None, "Metrics by name: hit@1,au-prc; or all; the usual ones if none."),
    option("rows", str, None, shared.ROWS),
    output("out", "Also write the metrics to this JSON file.", "--out", "-o"),
    *(
        one
        for one in described(Plan, "", decoder="that of the model")
        if one.name in ("decoder", "decoder_option")
    ),
    option("threshold", float, None, "Threshold of the decoder, such as stop."),
    *RISK_OPTIONS,
]


@takes(*OPTIONS, shared.MISSING, shared.FORCE, shared.TRUST, shared.DEVICE, *shared.SOURCE)
def evaluate(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA)],
    **options: Any,
) -> None:
    """Compute the metrics of a model on labeled rows; their columns are those of its training.

    They are about the answers that predict writes with the same options.
    """
    from hierlearn.cli.calibrate import choose_decoder
    from hierlearn.cli.figures import print_metrics
    from hierlearn.cli.model_rows import label_notes, open_labeled, rows_to_evaluate, seen_rows
    from hierlearn.cli.show import working
    from hierlearn.cli.sources import check_goes_with, split_names
    from hierlearn.errors import plural
    from hierlearn.files.writing import atomic_write
    from hierlearn.metrics.registry import check_metrics
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline import evaluate as measure
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.processes import find_device

    out, metrics, rows = (options[name] for name in ("out", "metrics", "rows"))
    if out is None:
        check_goes_with({"force": options["force"]}, "--out")
    names: Any = "all" if metrics == "all" else None
    if metrics not in (None, "all"):
        names = check_metrics(split_names(metrics))
    device = find_device(options["device"])
    loaded = Pipeline.load(model, device=device, trust=options["trust"])
    loaded.missing = checked_missing(options["missing"])
    dataset = open_labeled(loaded, data, options)
    picked, which = rows_to_evaluate(loaded, dataset, rows)
    console = Console()
    decoder, reason = choose_decoder(loaded, options)
    with working("evaluating"):
        found = measure(loaded, picked, names, decoder=decoder)
    overlap = seen_rows(loaded, picked)
    print_plain(console, f"{model} on {plural(len(picked), 'row')} of {dataset.name} ({which})")
    if overlap is not None and overlap.known:
        print_plain(console, overlap_note(loaded, overlap, picked is dataset))
    risk = [] if options["risk"] is None else [reason]
    for note in (*risk, *label_notes(loaded, picked)):
        print_plain(console, note)
    print_metrics(console, {which: found}, loaded, given=names is not None)
    if out is not None:
        import json

        summary = {
            "model": str(model),
            "data": data,
            "rows": which,
            "count": len(picked),
            "trained_on": None if overlap is None else overlap.known,
            "metrics": found,
        }
        with atomic_write(out) as file:
            file.write(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        print_plain(console, f"wrote {out}")


def overlap_note(model: Pipeline, overlap: Overlap, is_whole: bool) -> str:
    """Say how many of the rows were trained on, and what that means.

    Args:
        model: the model.
        overlap: how many.
        is_whole: whether these are all rows of the data.
    """
    from hierlearn.errors import plural

    rows = plural(overlap.rows, "row")
    if overlap.by_chance:
        return f"{overlap.known:,} of {rows} equal a training row, as may happen by chance"
    held = 0 if model.seen is None else len(model.seen.held_out)
    hint = f"; --rows valid are the {held:,} that were held out" if is_whole and held else ""
    return (
        f"warning: the model was trained on {overlap.known:,} of {rows}, so the figures are too "
        f"good for new rows{hint}"
    )
