"""``hierlearn predict``: the decisions of a model, one per row of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import described, option, takes
from hierlearn.options import parse_pairs
from hierlearn.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hierlearn.datasets.streaming import Chunk
    from hierlearn.decoding import Decoder
    from hierlearn.pipeline import Pipeline

RISK = "Risk control"  # a panel of --help
OPTIONS = [
    option("out", Path, ..., "CSV, TSV or Parquet file to write.", "--out", "-o"),
    *(
        one
        for one in described(Plan, "", decoder="that of the model")
        if one.name in ("decoder", "decoder_option")
    ),
    option("threshold", float, None, "Threshold of the decoder, such as stop."),
    option("risk", float, None, "Fraction of wrong answers to allow: 0.05.", panel=RISK),
    option(
        "calibrate",
        str,
        None,
        "Labeled rows that were used neither to train nor to select the model.",
        panel=RISK,
    ),
    option("calibrate_rows", str, None, "Split of --calibrate to use, or all.", panel=RISK),
    option("rows", str, None, "Split of a named dataset, or all."),
    option(
        "explain", int, None, "Add columns of this many remembered rows behind an answer.", min=1
    ),
]
SOURCE = [one for one in shared.SOURCE if one.name != "hierarchy"]  # the model has its own


@takes(*OPTIONS, shared.FORCE, shared.TRUST, shared.DEVICE, *SOURCE)
def predict(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA + " No labels are needed.")],
    **options: Any,
) -> None:
    """Predict on a table of any size; columns path, class, probability, level, stopped.

    Where classes have titles, the column title follows class. With a column of ids, these come
    first; --explain adds the remembered rows behind an answer.
    """
    from rich.console import Console

    from hierlearn.cli.memories import check_memory, evidence_note
    from hierlearn.cli.show import print_plain, working
    from hierlearn.datasets.writing import check_ending, table_writer
    from hierlearn.files import check_new
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.predict import answer_names, neighbor_names, predict_chunks
    from hierlearn.training.processes import find_device

    out = options["out"]
    check_ending(out)
    check_new(out, options["force"], inputs=[data])
    console = Console()
    device = find_device(options["device"])
    loaded = Pipeline.load(model, device=device, trust=options["trust"])
    shown: tuple[str, ...] = ()
    alone = ""
    if options["explain"] is not None:
        check_memory(loaded, model)
        shown, alone = neighbor_names(loaded, options["explain"]), evidence_note(loaded)
    chunks, total, note = open_chunks(loaded, data, options)
    made, reason = choose_decoder(loaded, options)
    for line in filter(None, (note, reason, alone)):
        print_plain(console, line)
    join = label_sep_of(loaded, options)
    done = stopped = 0
    ids = ("id",) if getattr(chunks, "id_column", None) is not None else ()
    with (
        table_writer(out, (*ids, *answer_names(loaded), *shown)) as append,
        working("predicting", total) as advance,
    ):
        for columns in predict_chunks(
            loaded, made, chunks, Path(data), join, neighbors=options["explain"] or 0
        ):
            append(columns)
            done += len(columns["path"])
            stopped += sum(columns["stopped"])
            advance(done)
    print_answers(console, done, stopped)
    print_plain(console, f"wrote {out}")


def label_sep_of(model: Pipeline, options: Mapping[str, Any]) -> str:
    """Return what joins several labels: given, or as in training."""
    known: str = model.config.get("columns", {}).get("label_sep", ";")
    return options.get("label_sep") or known


def open_chunks(
    model: Pipeline, data: str, options: Mapping[str, Any]
) -> tuple[Iterable[Chunk], int | None, str]:
    """Return the rows to predict on, how many if that is known, and a note about them."""
    from hierlearn.cli.model_rows import is_table, open_stream, pick_rows
    from hierlearn.cli.sources import check_not_given, open_dataset
    from hierlearn.datasets.streaming import Chunk
    from hierlearn.errors import quoted

    if is_table(data):
        wrong = ("dataset_option", "rows", "data_dir")
        check_not_given(data, "a file", {name: options[name] for name in wrong if options[name]})
        stream = open_stream(model, data, options)
        ignored = f"ignored columns: {quoted(stream.ignored)}" if stream.ignored else ""
        return stream, stream.rows, ignored
    check_not_given(data, "no table", {"id_column": options["id_column"]})
    named = {name: options[name] for name in ("dataset_option", "data_dir")}
    picked, which = pick_rows(open_dataset(data, named), options["rows"])
    inputs: Any = picked.inputs
    return [Chunk(inputs, range(1, len(picked) + 1))], len(picked), f"{which} rows of {data}"


def choose_decoder(model: Pipeline, options: Mapping[str, Any]) -> tuple[Decoder, str]:
    """Return the decoder of the options, and one sentence about it."""
    from hierlearn.decoding import DECODERS
    from hierlearn.errors import HierlearnError

    name, threshold, risk, source = (
        options.get(one) for one in ("decoder", "threshold", "risk", "calibrate")
    )
    chosen = parse_pairs(options["decoder_option"] or (), "--decoder-option")
    if threshold is not None:
        if "threshold" in chosen:
            raise HierlearnError("--threshold is given twice; leave it out of --decoder-option")
        chosen["threshold"] = threshold
    if risk is None:
        if source is not None or options.get("calibrate_rows") is not None:
            raise HierlearnError("--calibrate goes with --risk; say how many errors to allow")
        made = model.make_decoder(name, **chosen)
        return made, summary_of(made, name or model.decoder)
    if "threshold" in chosen:
        raise HierlearnError("--risk finds the threshold itself; leave --threshold out")
    if source is None:
        raise HierlearnError(
            "--risk needs --calibrate DATA: labeled rows that were used neither to train nor to "
            "select the model, because the guarantee rests on them"
        )
    able = [one for one, decoder in DECODERS.items() if hasattr(decoder, "calibrate")]
    name = name or able[0]
    made = model.make_decoder(name, **chosen)
    if not hasattr(made, "calibrate"):
        raise HierlearnError(
            f"decoder {name} cannot be calibrated; --risk takes {' or '.join(able)}"
        )
    return calibrated(model, made, name, options)


def calibrated(
    model: Pipeline, decoder: Any, name: str, options: Mapping[str, Any]
) -> tuple[Decoder, str]:
    """Return the decoder whose threshold keeps the risk on new rows."""
    from hierlearn.cli.model_rows import is_table, open_labeled, pick_rows
    from hierlearn.cli.show import working
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.pipeline.evaluate import check_hierarchy

    source, risk = options["calibrate"], options["risk"]
    if is_table(source):  # options of the dataset to predict on are not for it
        options = {**options, "dataset_option": None, "data_dir": None, "id_column": None}
    dataset = open_labeled(model, source, options)
    check_hierarchy(model, dataset)
    picked, _ = pick_rows(dataset, options["calibrate_rows"], "--calibrate-rows")
    with working("calibrating"):
        probabilities = model.probabilities(picked.inputs)
    targets = Labels(picked.labels, model.hierarchy).targets()
    made: Decoder = decoder.calibrate(probabilities, targets, risk)
    wrong = "have a label outside the answer" if made.answers == "candidates" else "are wrong"
    return made, (
        f"{summary_of(made, name)}, found on {len(picked):,} rows of {source}: at most a fraction "
        f"{risk:.3g} of new answers {wrong}, if the rows are drawn alike and those were not used "
        f"to train or select the model"
    )


def summary_of(decoder: Any, name: str) -> str:
    """Name a decoder and its threshold."""
    threshold = getattr(decoder, "threshold", None)
    return f"decoder {name}" + ("" if threshold is None else f" at threshold {threshold:.4g}")


def print_answers(console: Any, rows: int, stopped: int) -> None:
    """Print the table that the command ends with."""
    from rich.table import Table

    table = Table()
    for column in ("rows", "stopped early", "share"):
        table.add_column(column, justify="right")
    table.add_row(f"{rows:,}", f"{stopped:,}", f"{stopped / max(rows, 1):.1%}")
    console.print(table)
