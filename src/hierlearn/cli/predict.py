"""``hierlearn predict``: the decisions of a model, one per row of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared
from hierlearn.cli.calibrate import RISK_OPTIONS, choose_decoder
from hierlearn.cli.engines import ENGINE_OPTIONS, GROUP, check_engine, ending_of
from hierlearn.cli.generate import described, option, takes
from hierlearn.cli.layout import LAYOUT_OPTIONS, choose_layout, formula_note, renamed
from hierlearn.cli.outputs import TABLE, output
from hierlearn.cli.zero_shot import (
    ZERO_SHOT_OPTIONS,
    check_zero_shot,
    rows_and_model,
    zero_shot_model,
)
from hierlearn.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.pipeline import Pipeline

FORMATS = "CSV, TSV, JSON lines (all also .gz) or Parquet file, or - for CSV on standard output"
OPTIONS = [
    output("out", f"{FORMATS} to write.", "--out", "-o", default=..., kind=TABLE),
    *(
        one
        for one in described(Plan, "", decoder="that of the model")
        if one.name in ("decoder", "decoder_option")
    ),
    option("threshold", float, None, "Threshold of the decoder, such as stop."),
    *RISK_OPTIONS,
    option("rows", str, None, "Split of a named dataset, or all."),
    option(
        "explain", int, None, "Add columns of this many remembered rows behind an answer.", min=1
    ),
]
SOURCE = [one for one in shared.SOURCE if one.name != "hierarchy"]  # the model has its own


@takes(
    *OPTIONS,
    *LAYOUT_OPTIONS,
    *ZERO_SHOT_OPTIONS,
    *ENGINE_OPTIONS,
    shared.MISSING,
    shared.FORCE,
    shared.TRUST,
    shared.DEVICE,
    *SOURCE,
)
def predict(
    model: Annotated[
        Path, typer.Argument(help="Folder of a trained model; left out with --zero-shot.")
    ],
    data: Annotated[
        Optional[str], typer.Argument(help=shared.DATA + " No labels are needed.")
    ] = None,
    **options: Any,
) -> None:
    """Predict on a table of any size; columns path, class, probability, level, stopped.

    Where classes have titles, the column title follows class. Ids and the columns of --keep come
    first; --by-level, --top, --scores and --explain add columns.
    """
    from hierlearn.cli.interrupts import advise
    from hierlearn.cli.memories import check_memory, evidence_note
    from hierlearn.cli.show import working
    from hierlearn.files.locations import without_secrets
    from hierlearn.files.standard import is_standard
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.answer_file import answer_file
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.pipeline.predict import answer_names, neighbor_names, predict_chunks
    from hierlearn.pipeline.predictor import Predictor, label_sep_of
    from hierlearn.registry import find_entry_point
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.processes import find_device

    out = options["out"]
    check_engine(options)
    check_zero_shot(options)
    folder, data = rows_and_model(model, data, options)
    check_used(data, options)
    console = Console(stderr=is_standard(out))
    device = find_device(options["device"])
    if folder is None:
        loaded = zero_shot_model(options, device)
        options["hierarchy"] = None  # it is that of the model now
    else:
        loaded = Pipeline.load(folder, device=device, trust=options["trust"])
    loaded.missing = checked_missing(options["missing"])
    shown: tuple[str, ...] = ()
    alone = ""
    if options["explain"] is not None:
        assert folder is not None  # zero-shot refuses it
        check_memory(loaded, folder)
        shown, alone = neighbor_names(loaded, options["explain"]), evidence_note(loaded)
    layout = choose_layout(loaded, options)
    on_engine = options["engine"] is not None
    total = None
    if on_engine:
        streams, note = find_entry_point(GROUP, "open")(loaded, data, options)
        chunks: Any = streams[0]
    else:
        chunks, total, note = open_chunks(loaded, data, options)
    made, reason = choose_decoder(loaded, options)
    for line in filter(None, (note, "" if layout.long else reason, alone)):
        print_plain(console, line)
    ids = ("id",) if getattr(chunks, "id_column", None) is not None else ()
    own = () if layout.long else answer_names(loaded)
    names = (*ids, *own, *layout.names(loaded), *shown)
    join, neighbors = label_sep_of(loaded, options.get("label_sep")), options["explain"] or 0
    keep = getattr(chunks, "keep", ())
    written: Any
    if on_engine:
        assert folder is not None  # an engine refuses zero-shot
        predictor = Predictor(
            folder.absolute(),
            decoder=made,
            layout=layout,
            neighbors=neighbors,
            label_sep=join,
            device=options["device"],
            trust=options["trust"],
            missing=loaded.missing,
        )
        write = find_entry_point(GROUP, "predict")
        written = write(loaded, predictor, streams, names, options)
    else:
        advise(f"{shown_output(out)} was not written; run the same command again")
        with (
            answer_file(out, names, keep, escape=options["escape_formulas"]) as written,
            working("predicting", total) as advance,
        ):
            for columns, kept in predict_chunks(
                loaded,
                made,
                chunks,
                Path(without_secrets(data)),
                join,
                neighbors=neighbors,
                layout=layout,
            ):
                written.append(columns, kept)
                advance(written.rows)
    print_answers(console, written, decided=not layout.long)
    for line in filter(None, (renamed(keep, names), formula_note(written, options))):
        print_plain(console, line)
    print_plain(console, f"wrote {shown_output(out)}")


def shown_output(out: Path) -> str:
    """Return what to call the file that is written."""
    from hierlearn.files.standard import is_standard

    return "standard output" if is_standard(out) else str(out)


def check_used(data: str, options: Mapping[str, Any]) -> None:
    """Raise on options of a table that no table here needs."""
    from hierlearn.cli.model_rows import ANNOTATIONS, is_table
    from hierlearn.cli.sources import check_goes_with, check_not_given

    if ending_of(options) not in (".csv", ".tsv"):
        check_goes_with({"escape_formulas": options["escape_formulas"]}, "a CSV or TSV file")
    calibrate = options["calibrate"]
    if calibrate is not None and is_table(calibrate):
        return  # they describe its rows
    of_labels = ("label", "levels", "split", "sep", "unknown", *ANNOTATIONS)
    labels = {name: options[name] for name in of_labels}
    check_goes_with(labels, "a table in --calibrate")
    if not is_table(data) and options["engine"] is None:
        inputs = ("features", "text", "image", "embeddings")
        names = (*inputs, "ignore", "column_kind", "delimiter")
        check_not_given(data, "no table", {name: options[name] for name in names})


def open_chunks(
    model: Pipeline, data: str, options: Mapping[str, Any]
) -> tuple[Iterable[Chunk], int | None, str]:
    """Return the rows to predict on, how many if that is known, and a note about them."""
    from hierlearn.cli.image_rows import open_image_stream
    from hierlearn.cli.model_rows import is_table, open_stream, pick_rows, reads_images
    from hierlearn.cli.sources import check_not_given, open_dataset
    from hierlearn.datasets.images.read import is_images
    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.errors import quoted

    if reads_images(model) and (is_table(data) or is_images(data)):
        images = open_image_stream(model, data, options)
        return images, images.rows, ""
    if is_table(data):
        wrong = ("dataset_option", "rows", "data_dir")
        check_not_given(data, "a file", {name: options[name] for name in wrong if options[name]})
        stream = open_stream(model, data, options)
        ignored = f"ignored columns: {quoted(stream.ignored)}" if stream.ignored else ""
        return stream, stream.rows, ignored
    wrong = ("id_column", "keep", "skip_broken")
    check_not_given(data, "no table", {name: options.get(name) for name in wrong})
    named = {name: options[name] for name in ("dataset_option", "data_dir")}
    picked, which = pick_rows(open_dataset(data, named), options["rows"])
    inputs: Any = picked.inputs
    return [Chunk(inputs, range(1, len(picked) + 1))], len(picked), f"{which} rows of {data}"


def print_answers(console: Any, written: Any, *, decided: bool) -> None:
    """Print the table that the command ends with.

    Args:
        console: where to.
        written: what counted the answers.
        decided: whether there are answers, and not only scores.
    """
    from hierlearn.errors import plural
    from hierlearn.terminal import Table, print_plain

    rows = written.rows
    if not decided:
        print_plain(console, f"scores of {plural(rows, 'row')}")
        return
    none, partial = written.unanswered, written.stopped - written.unanswered
    table = Table()
    table.add_column("rows", justify="right")
    counts = {"complete": rows - written.stopped, "partial": partial, "no answer": none}
    for column in counts:
        table.add_column(column, justify="right")
    shares = (f"{count:,} ({count / max(rows, 1):.1%})" for count in counts.values())
    table.add_row(f"{rows:,}", *shares)
    console.print(table)
