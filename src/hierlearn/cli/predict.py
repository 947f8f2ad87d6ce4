"""``hierlearn predict``: the decisions of a model, a row of the table each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hierlearn.datasets.streaming import Chunk
    from hierlearn.decoding import Decoder
    from hierlearn.pipeline import Pipeline

RISK = "A promise on errors"


def predict(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA + " No labels are needed.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The CSV, TSV or Parquet file to write.")
    ],
    decoder: Annotated[
        Optional[str], typer.Option(help="How to decide; by default as the model was made to.")
    ] = None,
    decoder_option: Annotated[
        Optional[list[str]], typer.Option(help="An option of the decoder: spread=0.5.")
    ] = None,
    threshold: Annotated[
        Optional[float], typer.Option(help="The decoder's threshold, as of stop.")
    ] = None,
    risk: Annotated[
        Optional[float],
        typer.Option(help="The share of wrong answers to allow: 0.05.", rich_help_panel=RISK),
    ] = None,
    calibrate: Annotated[
        Optional[str],
        typer.Option(
            help="Labeled rows that were used neither to train nor to select the model.",
            rich_help_panel=RISK,
        ),
    ] = None,
    calibrate_rows: Annotated[
        Optional[str],
        typer.Option(help="The split of --calibrate to use, or all.", rich_help_panel=RISK),
    ] = None,
    rows: Annotated[
        Optional[str], typer.Option(help="The split of a named dataset, or all.")
    ] = None,
    force: shared.Force = False,
    device: shared.Device = "auto",
    set: shared.Set = None,
    label: shared.Label = None,
    levels: shared.Levels = None,
    features: shared.Features = None,
    text: shared.Text = None,
    split: shared.Split = None,
    label_sep: shared.LabelSep = None,
    sep: shared.Sep = None,
    data_dir: shared.DataDir = None,
) -> None:
    """Predict on a table of any size; columns path, class, probability, level, stopped."""
    from rich.console import Console

    from hierlearn.cli.show import print_plain, working
    from hierlearn.datasets.writing import check_ending, table_writer
    from hierlearn.files import check_new
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.predict import NAMES, predict_chunks
    from hierlearn.training.processes import find_device

    check_ending(out)
    check_new(out, force, inputs=[data])
    console = Console()
    loaded = Pipeline.load(model, device=find_device(device))
    words = {
        "label": label,
        "levels": levels,
        "features": features,
        "text": text,
        "split": split,
        "label_sep": label_sep,
        "sep": sep,
        "data_dir": data_dir,
    }
    chunks, total, note = open_chunks(loaded, data, set or (), rows, words)
    made, why = choose_decoder(
        loaded,
        decoder,
        decoder_option or (),
        threshold,
        risk,
        (calibrate, calibrate_rows),
        {**words, "set": set},
    )
    for line in filter(None, (note, why)):
        print_plain(console, line)
    join = label_sep or loaded.config.get("columns", {}).get("label_sep", ";")
    done = stopped = 0
    with table_writer(out, NAMES) as append, working("predicting", total) as advance:
        for columns in predict_chunks(loaded, made, chunks, Path(data), join):
            append(columns)
            done += len(columns["path"])
            stopped += sum(columns["stopped"])
            advance(done)
    print_answers(console, done, stopped)
    print_plain(console, f"wrote {out}")


def open_chunks(
    model: Pipeline, data: str, options: Any, rows: str | None, words: Mapping[str, Any]
) -> tuple[Iterable[Chunk], int | None, str]:
    """Return the rows to predict on, how many if that is known, and what to say of them."""
    from hierlearn.cli.model_rows import is_table, open_stream, pick_rows
    from hierlearn.cli.sources import open_dataset, refuse
    from hierlearn.datasets.streaming import Chunk
    from hierlearn.errors import quoted

    if is_table(data):
        unfit = {"set": options, "rows": rows, "data_dir": words["data_dir"]}
        refuse(data, "a file", {name: value for name, value in unfit.items() if value})
        stream = open_stream(model, data, words)
        ignored = f"ignored columns: {quoted(stream.ignored)}" if stream.ignored else ""
        return stream, stream.rows, ignored
    dataset = open_dataset(data, options, data_dir=words["data_dir"])
    picked, which = pick_rows(dataset, rows)
    inputs: Any = picked.inputs
    return [Chunk(inputs, range(1, len(picked) + 1))], len(picked), f"{which} rows of {data}"


def choose_decoder(
    model: Pipeline,
    name: str | None,
    pairs: Any,
    threshold: float | None,
    risk: float | None,
    calibration: tuple[str | None, str | None],
    words: Mapping[str, Any],
) -> tuple[Decoder, str]:
    """Return the decoder of the options, and how it came about in a sentence."""
    from hierlearn.cli.config import pairs_of
    from hierlearn.errors import HierlearnError

    chosen = pairs_of("decoder-option", pairs)
    if threshold is not None:
        if "threshold" in chosen:
            raise HierlearnError("--threshold is given twice; leave it out of --decoder-option")
        chosen["threshold"] = threshold
    source, rows = calibration
    if risk is None:
        if source is not None or rows is not None:
            raise HierlearnError("--calibrate goes with --risk; say how many errors to allow")
        made = model.make_decoder(name, **chosen)
        return made, told(made, name or model.decoder)
    if "threshold" in chosen:
        raise HierlearnError("--risk finds the threshold itself; leave --threshold out")
    if source is None:
        raise HierlearnError(
            "--risk needs --calibrate DATA: labeled rows that were used neither to train nor to "
            "select the model, because the promise rests on them"
        )
    name = name or "stop"
    made = model.make_decoder(name, **chosen)
    if not hasattr(made, "calibrate"):
        raise HierlearnError(f"decoder {name} makes no promise; --risk takes stop or conformal")
    return calibrated(model, made, name, risk, (source, rows), words)


def calibrated(
    model: Pipeline,
    decoder: Any,
    name: str,
    risk: float,
    calibration: tuple[str, str | None],
    words: Mapping[str, Any],
) -> tuple[Decoder, str]:
    """Return the decoder whose threshold keeps the promise on new rows."""
    from hierlearn.cli.model_rows import is_table, open_labeled, pick_rows
    from hierlearn.cli.show import working
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.pipeline.evaluate import check_hierarchy

    source, rows = calibration
    named = ("set", "data_dir")  # of the dataset to predict on, if it is one
    own = {key: value for key, value in words.items() if key not in named or not is_table(source)}
    dataset = open_labeled(model, source, own.pop("set", None) or (), own)
    check_hierarchy(model, dataset)
    picked, _ = pick_rows(dataset, rows, "--calibrate-rows")
    with working("calibrating"):
        probabilities = model.probabilities(picked.inputs)
    targets = Labels(picked.labels, model.hierarchy).targets()
    made: Decoder = decoder.calibrate(probabilities, targets, risk)
    wrong = "have a label outside the answer" if made.answers == "candidates" else "are wrong"
    return made, (
        f"{told(made, name)}, found on {len(picked):,} rows of {source}: at most a share "
        f"{risk:.3g} of new answers {wrong}, if the rows are drawn alike and those were not used "
        f"to train or select the model"
    )


def told(decoder: Any, name: str) -> str:
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
