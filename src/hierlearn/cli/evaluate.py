"""``hierlearn evaluate``: the metrics of a model on labeled rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FILE, dashed, options, takes
from hierlearn.cli.predict import RISK_OPTIONS, choose_decoder
from hierlearn.errors import HierlearnError, plural
from hierlearn.terminal import Text, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.pipeline import Pipeline
    from hierlearn.terminal import Console

    Figures = Mapping[str, Any]


@takes(
    *options(
        metrics=(str, "Metrics by name: hit@1,au-prc; or all; the usual ones if none."),
        rows=(str, shared.ROWS),
        out=(FILE, "Also write the metrics to this JSON file."),
    ),
    *shared.DECIDING,
    *RISK_OPTIONS,
    *shared.LOADING,
    *shared.SOURCE,
)
def evaluate(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA)],
    **options: Any,
) -> None:
    """Compute the metrics of a model on labeled rows; their columns are those of its training.

    They are about the answers that predict writes with the same options.

    Examples:
        evaluate model rows.csv
        evaluate model rows.csv --rows valid --metrics hit@1,au-prc --out metrics.json
    """
    from hierlearn.cli.output import working, write_json
    from hierlearn.cli.rows import (
        check_goes_with,
        label_notes,
        load_model,
        open_labeled,
        rows_to_evaluate,
        seen_rows,
        split_names,
    )
    from hierlearn.metrics.measure import check_metrics
    from hierlearn.pipeline import evaluate as measure
    from hierlearn.terminal import Console, print_plain

    out, metrics, rows = (options[name] for name in ("out", "metrics", "rows"))
    if out is None:
        check_goes_with(options, ("force",), "--out")
    names: Any = "all" if metrics == "all" else None
    if metrics not in (None, "all"):
        names = check_metrics(split_names(metrics))
    loaded = load_model(model, options)
    dataset = open_labeled(loaded, data, options)
    picked, which = rows_to_evaluate(loaded, dataset, rows)
    console = Console()
    decoder, reason = choose_decoder(loaded, options)
    with working("evaluating"):
        figures = measure(loaded, picked, names, decoder=decoder)
    overlap = seen_rows(loaded, picked)
    print_plain(console, f"{model} on {plural(len(picked), 'row')} of {dataset.name} ({which})")
    if overlap is not None and overlap.known:
        counts = f"{overlap.known:,} of {plural(overlap.rows, 'row')}"
        held = 0 if loaded.seen is None or picked is not dataset else len(loaded.seen.held_out)
        hint = f"; --rows valid are the {held:,} that were held out" if held else ""
        print_plain(
            console,
            f"{counts} equal a training row, as may happen by chance"
            if overlap.by_chance
            else f"warning: the model was trained on {counts}, so the figures are too good for new "
            f"rows{hint}",
        )
    risk = [] if options["risk"] is None else [reason]
    for note in (*risk, *label_notes(loaded, picked)):
        print_plain(console, note)
    print_metrics(console, {which: figures}, loaded, given=names is not None)
    if out is not None:
        summary = {
            "model": str(model),
            "data": data,
            "rows": which,
            "count": len(picked),
            "trained_on": None if overlap is None else overlap.known,
            "metrics": figures,
        }
        write_json(out, summary)
        print_plain(console, f"wrote {out}")


def print_metrics(
    console: Console, figures: Mapping[str, Figures], model: Pipeline, *, given: bool = False
) -> None:
    """Print one row per metric, one column per split; nothing where there is none.

    Args:
        console: where to.
        figures: the metrics of each split.
        model: the model, which knows its levels by name.
        given: whether the metrics were named, and each is printed, whatever it says.
    """
    from hierlearn.metrics.measure import figure_lines
    from hierlearn.pipeline.answers import level_names

    if not figures:
        return
    levels = level_names(model.config, model.hierarchy.depth)
    rows = [
        [Text(label), better, *texts]
        for label, better, texts in figure_lines([*figures.values()], levels, every=given)
    ]
    print_table(console, ["metric", "better", *map(Text, figures)], rows, left=2)


NAME = "report.html"
OF_MODELS = ("data", "rows", "missing", "trust", *(one.name for one in shared.SOURCE))


@takes(
    *options(
        data=(str, "Labeled rows to report a model on: a dataset, or a file."),
        rows=(str, shared.ROWS),
        out=(FILE, "Page to write; report.html in the folder if none."),
    ),
    *shared.LOADING,
    *shared.SOURCE,
)
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a study, or of a trained model.")],
    **options: Any,
) -> None:
    """Write the page of a study, or of a model on labeled rows: one file, no network.

    Examples:
        report model --data rows.csv
        report model --data rows.csv --rows valid --out page.html
        report study
    """
    from hierlearn.cli.output import working
    from hierlearn.cli.rows import check_goes_with
    from hierlearn.files.writing import check_output, check_writable
    from hierlearn.registry import find_entry_point
    from hierlearn.terminal import Console, print_plain

    of_model = is_model(folder, options)
    out = options["out"]
    if out is None:
        check_goes_with(options, ("force",), "--out")
        out = folder / NAME  # a report of the same folder, so it may be replaced
        check_writable(out)
    else:
        given = [one for one in (options["data"], options["hierarchy"]) if one is not None]
        read = [one for one in folder.iterdir() if one.name != NAME]
        check_output(out, options["force"], inputs=[*given, *read])
    with working("reporting"):
        write = report_model if of_model else find_entry_point("hierlearn.reports", "study")
        written = write(folder, out, options)
    print_plain(Console(), f"wrote {', '.join(map(str, written))}")


def is_model(folder: Path, options: Mapping[str, Any]) -> bool:
    """Whether a folder is a model rather than a study; raise on options of the other kind."""
    if (folder / "study.json").is_file():
        wrong = [name for name in OF_MODELS if options.get(name)]
        wrong += ["device"] if options["device"] != "auto" else []
        if wrong:
            raise HierlearnError(
                f"{folder} is a study, which holds its rows; leave {dashed(wrong[0])} out"
            )
        return False
    if not (folder / "config.json").is_file():
        raise HierlearnError(
            f"{folder} is neither a study nor a model; name a folder from hierlearn compare or "
            f"hierlearn train"
        )
    if options["data"] is None:
        raise HierlearnError(f"{folder} is a model; name labeled rows to report on with --data")
    return True


def report_model(folder: Path, out: Path, options: Mapping[str, Any]) -> list[Path]:
    """Write the page of a model."""
    from hierlearn.cli.rows import (
        label_notes,
        load_model,
        open_labeled,
        rows_to_evaluate,
        seen_rows,
    )
    from hierlearn.reports import write_model_report
    from hierlearn.terminal import Console, print_plain

    loaded = load_model(folder, options)
    dataset = open_labeled(loaded, options["data"], options)
    picked, which = rows_to_evaluate(loaded, dataset, options["rows"])
    for note in label_notes(loaded, picked):
        print_plain(Console(), note)
    overlap = seen_rows(loaded, picked)
    known = None if overlap is None or overlap.by_chance else overlap.known
    return [write_model_report(loaded, picked, out, split=which, trained_on=known, every=dataset)]
