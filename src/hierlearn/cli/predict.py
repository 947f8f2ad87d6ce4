"""``hierlearn predict`` and ``explain``: a decision per row of a table, and what it rests on."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import TABLE, dashed, options, takes
from hierlearn.cli.rows import check_goes_with, check_not_given
from hierlearn.errors import HierlearnError, plural, unknown_name
from hierlearn.registry import find_entry_point, parse_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.answers import Layout


TABLES = "CSV, TSV, JSON lines (all also .gz) or Parquet file, or - for CSV on standard output"
RISK = "Risk control"  # a panel of --help
RISK_OPTIONS = options(
    RISK,
    risk=(float, "Fraction of wrong answers to allow: 0.05."),
    calibrate=(str, "Labeled rows that were used neither to train nor to select the model."),
    calibrate_rows=(str, "Split of --calibrate to use, or all."),
)
ENGINES, FORMATS = ("ray",), ("parquet", "csv", "tsv")
NOT_LONG = ("decoder", "decoder_option", "threshold", "risk", "by_level", "explain")
ZERO_SHOT = options(
    "Zero-shot",
    zero_shot=(bool, "Predict by the titles of classes, without a model."),
    encoder=(str, "Sentence encoder: hf:PATH,pooling=cls."),
    hierarchy=(Path, "File of the taxonomy, with titles or names."),
    template=(str, "Sentence of a class: 'a photo of {title}'; {path} is its path of titles."),
    temperature=(
        float,
        "What similarities are divided by: less makes answers surer; 0.05 by default.",
    ),
    inner_titles=(bool, "Titles of inner classes count, too."),
)


@takes(
    *options(out=(TABLE, f"{TABLES} to write.", {"default": ...})),
    *shared.DECIDING,
    *RISK_OPTIONS,
    *options(
        rows=(str, "Split of a named dataset, or all."),
        explain=(int, "Add columns of this many remembered rows behind an answer.", {"min": 1}),
    ),
    *options(
        "What is written",
        keep=(str, "Columns of the input to copy: id,name; or all."),
        by_level=(bool, "Add the class, title and probability of every level."),
        top=(int, "Add this many of the most probable terminal classes.", {"min": 1}),
        scores=(bool, "Add the probability of every class."),
        layout=(
            str,
            "Of --top and --scores: wide, one row per input row; or long, one row per class.",
            {"metavar": "[wide|long]"},
        ),
        escape_formulas=(
            bool,
            "Put ' before texts of a CSV file that a spreadsheet would run as a formula.",
        ),
    ),
    *ZERO_SHOT,
    *options(
        "On a cluster",
        engine=(
            str,
            "Predict on Ray; --out may be a folder of parts, and the data a folder of tables.",
            {"metavar": "[ray]"},
        ),
        address=(str, "Cluster to use: auto, or ray://host:port; one is started here if none."),
        workers=(int, "Workers: one per GPU or core if none.", {"min": 1}),
        gpus_per_worker=(
            float,
            "GPUs of a worker: 1 if none is given and there are any.",
            {"min": 0},
        ),
        part_rows=(int, "Rows of a part, about: 131072 if none.", {"min": 1}),
        part_format=(
            str,
            "Format of the parts where --out is a folder; parquet if none.",
            {"metavar": f"[{'|'.join(FORMATS)}]"},
        ),
    ),
    *shared.LOADING,
    *(one for one in shared.SOURCE if one.name != "hierarchy"),  # the model has its own
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

    Examples:
        predict model new.csv --out answers.csv
        predict model new.csv --out answers.csv --risk 0.05 --calibrate fresh.csv
        predict --zero-shot --encoder hf:PATH --hierarchy tree.json new.csv --text title --out a.csv
    """
    from hierlearn.cli.memory import check_memory, evidence_note
    from hierlearn.cli.output import advise, working
    from hierlearn.cli.rows import load_model
    from hierlearn.errors import plural
    from hierlearn.files.locations import is_standard, without_secrets
    from hierlearn.pipeline.answers import (
        AnswerFormatter,
        answer_file,
        kept_names,
        label_sep_of,
        neighbor_names,
    )
    from hierlearn.pipeline.predict import Predictor, predict_chunks
    from hierlearn.terminal import Console, print_plain

    out, on_engine = options["out"], options["engine"] is not None
    check_engine(options)
    data = checked_rows(model, data, options)
    check_used(data, options)
    console = Console(stderr=is_standard(out))
    loaded = zero_shot_model(options) if options["zero_shot"] else load_model(model, options)
    alone, neighbors = "", options["explain"] or 0
    if neighbors:
        check_memory(loaded, model)
        neighbor_names(loaded, neighbors)  # raises where an answer rests on fewer
        alone = evidence_note(loaded)
    layout = choose_layout(loaded, options)
    total = None
    if on_engine:
        streams, note = find_entry_point("hierlearn.engines", "open")(loaded, data, options)
        chunks: Any = streams[0]
    else:
        chunks, total, note = open_chunks(loaded, data, options)
    made, reason = choose_decoder(loaded, options)
    for line in filter(None, (note, "" if layout.long else reason, alone)):
        print_plain(console, line)
    ids = ("id",) if getattr(chunks, "id_column", None) is not None else ()
    join = label_sep_of(loaded, options.get("label_sep"))
    formatter = AnswerFormatter(loaded, made, join, layout, neighbors)
    names, keep = (*ids, *formatter.names), getattr(chunks, "keep", ())
    written: Any
    if on_engine:
        predictor = Predictor(
            model.absolute(),
            decoder=made,
            label_sep=join,
            device=options["device"],
            trust=options["trust"],
            missing=loaded.missing,
            layout=layout,
            neighbors=neighbors,
        )
        write = find_entry_point("hierlearn.engines", "predict")
        written = write(loaded, predictor, streams, names, options)
    else:
        advise(f"{shown_output(out)} was not written; run the same command again")
        with (
            answer_file(out, names, keep, escape=options["escape_formulas"]) as written,
            working("predicting", total) as advance,
        ):
            path = Path(without_secrets(data))
            for columns, kept in predict_chunks(formatter, chunks, path):
                written.append(columns, kept)
                advance(written.rows)
    if layout.long:
        print_plain(console, f"scores of {plural(written.rows, 'row')}")
    else:
        print_answers(console, written)
    renamed = [(old, new) for new, old in kept_names(keep, names).items() if old != new]
    if renamed:
        pairs = ", ".join(f"{old} as {new}" for old, new in renamed)
        print_plain(console, f"kept under another name, as the answers have it: {pairs}")
    if written.formulas:
        cells = f"{plural(written.formulas, 'text')} that a spreadsheet would run as a formula"
        escape = "escape with --escape-formulas before you open the file in one"
        escaped = options["escape_formulas"]
        print_plain(console, f"escaped {cells}" if escaped else f"{cells}; {escape}")
    print_plain(console, f"wrote {shown_output(out)}")


def checked_rows(model: Path, data: str | None, options: Mapping[str, Any]) -> str:
    """Return the rows of the arguments; raise on options that only zero-shot takes, or lacks."""
    if not options["zero_shot"]:
        check_goes_with(options, [one.name for one in ZERO_SHOT[1:]], "--zero-shot")
        if data is None:
            raise HierlearnError(
                "there are no rows to predict on; write: predict MODEL DATA, or predict "
                "--zero-shot DATA"
            )
        return data
    for name, what in (("encoder", "hf:PATH"), ("hierarchy", "FILE")):
        if options[name] is None:
            raise HierlearnError(f"--zero-shot needs {dashed(name)} {what}")
    if options["explain"] is not None:
        raise HierlearnError("--zero-shot remembers no rows to explain by; leave --explain out")
    if data is not None:
        raise HierlearnError(
            f"--zero-shot needs no model, only rows; leave out {str(model)!r} or {data!r}"
        )
    return str(model)  # the first argument is the rows


def zero_shot_model(options: dict[str, Any]) -> Pipeline:
    """Return the pipeline of the titles of a hierarchy."""
    from hierlearn.cli.rows import open_hierarchy
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.pipeline.zero_shot import zero_shot_pipeline
    from hierlearn.training.processes import find_device

    device = find_device(options["device"])
    names = ("template", "temperature", "inner_titles")
    given = {name: options[name] for name in names if options[name] is not None}
    hierarchy = open_hierarchy(str(options["hierarchy"]), sep=options.get("sep"))
    options["hierarchy"] = None  # it is that of the model now
    pipeline = zero_shot_pipeline(hierarchy, options["encoder"], device=device, **given)
    pipeline.missing = checked_missing(options["missing"])
    return pipeline


def choose_decoder(model: Pipeline, options: Mapping[str, Any]) -> tuple[Decoder, str]:
    """Return the decoder of the options, and one sentence about it."""
    from hierlearn.cli.output import working
    from hierlearn.cli.rows import label_notes
    from hierlearn.decoding import CALIBRATED, calibratable
    from hierlearn.decoding.guarantees import check_risk
    from hierlearn.pipeline.evaluate import predictions

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
    check_risk(risk)
    if "threshold" in chosen:
        raise HierlearnError("--risk finds the threshold itself; leave --threshold out")
    if source is None:
        raise HierlearnError(
            "--risk needs --calibrate DATA: labeled rows that were used neither to train nor to "
            "select the model, because the guarantee rests on them"
        )
    name = name or CALIBRATED
    decoder: Any = calibratable(model.make_decoder(name, **chosen), name)
    picked, condition = calibration_rows(model, options)
    with working("calibrating"):
        calibration = predictions(model, picked)
    made = decoder.calibrate(calibration.p, calibration.targets, risk)
    wrong = "have a label outside the answer" if made.answers == "candidates" else "are wrong"
    notes = "".join(f"; {note}" for note in label_notes(model, picked))
    return made, (
        f"{summary_of(made, name)}, found on {plural(len(picked), 'row')} of {source}: on average "
        f"over such draws of rows at most a fraction {risk:.3g} of new answers {wrong}, if the "
        f"rows are drawn alike{condition}{notes}"
    )


def calibration_rows(model: Pipeline, options: Mapping[str, Any]) -> tuple[Dataset, str]:
    """Return the rows of --calibrate, and what remains to be assumed of them.

    Rows that the model was trained on raise.
    """
    from hierlearn.cli.rows import is_table, open_labeled, pick_rows, seen_rows

    source = options["calibrate"]
    if is_table(source):  # options of the dataset to predict on are not for it
        options = {**options, "dataset_option": None, "data_dir": None, "id_column": None}
    dataset = open_labeled(model, source, options)
    picked, which = pick_rows(dataset, options["calibrate_rows"], "--calibrate-rows", model)
    overlap = seen_rows(model, picked, selecting=True)
    if overlap is None:
        unknown = " and those were not used to train or select the model, which it cannot tell"
        return picked, unknown
    if not overlap.by_chance:
        name = source if which == "all" else f"{source} ({which})"
        raise HierlearnError(
            f"{overlap.known:,} of the {plural(overlap.rows, 'row')} of {name} were used to train "
            f"or select the model, so they cannot guarantee any risk; calibrate on other rows, "
            f"such as --calibrate-rows test"
        )
    if not overlap.known:
        return picked, ""
    return picked, f"; {overlap.known:,} of those equal a training row, as may happen by chance"


def summary_of(decoder: Any, name: str) -> str:
    threshold = getattr(decoder, "threshold", None)
    return f"decoder {name}" + ("" if threshold is None else f" at threshold {threshold:.4g}")


def choose_layout(model: Pipeline, options: Mapping[str, Any]) -> Layout:
    """Return what is written beside the answers; raise on options that do not go together."""
    from hierlearn.pipeline.answers import Layout, level_column_names

    wanted = options["layout"] or "wide"
    if wanted not in ("wide", "long"):
        raise HierlearnError(unknown_name("layout", wanted, ["wide", "long"]))
    given = [name for name in NOT_LONG if options.get(name) not in (None, False, [])]
    if wanted == "long" and given:
        raise HierlearnError(
            f"--layout long writes the scores of classes and no answers; leave "
            f"{dashed(given[0])} out"
        )
    levels = level_column_names(model) if options["by_level"] else ()
    layout = Layout(levels, options["top"] or 0, options["scores"], wanted == "long")
    layout.check(model)
    return layout


def check_engine(options: Mapping[str, Any]) -> None:
    """Raise on an engine that is not known, and on options that do not go together."""
    from hierlearn.datasets.tables.write import check_ending
    from hierlearn.files.locations import is_standard

    out: Path = options["out"]
    if options["engine"] is None:
        of_engine = ("address", "workers", "gpus_per_worker", "part_rows", "part_format")
        check_goes_with(options, of_engine, "--engine ray")
        check_ending(out)
        return
    if options["engine"] not in ENGINES:
        raise HierlearnError(unknown_name("engine", options["engine"], ENGINES))
    if options["zero_shot"]:
        raise HierlearnError("--engine ray reads a model folder; leave --zero-shot out")
    if out.suffix or is_standard(out):
        check_ending(out)
        if out.suffix.lower()[1:] not in FORMATS:
            raise HierlearnError(
                f"--engine ray writes {', '.join(FORMATS)}, not {shown_output(out)}; name such a "
                f"file, or a folder"
            )
        check_goes_with(options, ("part_format",), "a folder in --out")
    elif options["part_format"] not in (None, *FORMATS):
        raise HierlearnError(unknown_name("format", options["part_format"], FORMATS))


def ending_of(options: Mapping[str, Any]) -> str:
    """Return the ending of the files that are written."""
    from hierlearn.datasets.tables.write import written_ending

    return written_ending(options["out"]) or f".{options['part_format'] or FORMATS[0]}"


def shown_output(out: Path) -> str:
    """Return what to call the file that is written."""
    from hierlearn.files.locations import is_standard

    return "standard output" if is_standard(out) else str(out)


def check_used(data: str, options: Mapping[str, Any]) -> None:
    """Raise on options of a table that no table here needs."""
    from hierlearn.cli.rows import ANNOTATIONS, is_table

    if ending_of(options) not in (".csv", ".tsv"):
        check_goes_with(options, ("escape_formulas",), "a CSV or TSV file")
    if options["calibrate"] is not None and is_table(options["calibrate"]):
        return  # they describe its rows
    of_labels = ("label", "levels", "split", "sep", "unknown", *ANNOTATIONS)
    check_goes_with(options, of_labels, "a table in --calibrate")
    if not is_table(data) and options["engine"] is None:
        inputs = ("features", "text", "image", "embeddings")
        check_not_given(data, "no table", options, *inputs, "ignore", "column_kind", "delimiter")


def open_chunks(
    model: Pipeline, data: str, options: Mapping[str, Any]
) -> tuple[Iterable[Chunk], int | None, str]:
    """Return the rows to predict on, how many if that is known, and a note about them."""
    from hierlearn.cli.rows import (
        is_table,
        open_dataset,
        open_image_stream,
        open_stream,
        pick_rows,
        reads_images,
    )
    from hierlearn.datasets.images import is_images
    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.errors import quoted

    if reads_images(model) and (is_table(data) or is_images(data)):
        images = open_image_stream(model, data, options)
        return images, images.rows, ""
    if is_table(data):
        check_not_given(data, "a file", options, "dataset_option", "rows", "data_dir")
        stream = open_stream(model, data, options)
        ignored = f"ignored columns: {quoted(stream.ignored)}" if stream.ignored else ""
        return stream, stream.rows, ignored
    check_not_given(data, "no table", options, "id_column", "keep", "skip_broken")
    named = {name: options[name] for name in ("dataset_option", "data_dir")}
    picked, which = pick_rows(open_dataset(data, named), options["rows"])
    inputs: Any = picked.inputs
    return [Chunk(inputs, range(1, len(picked) + 1))], len(picked), f"{which} rows of {data}"


def print_answers(console: Any, written: Any) -> None:
    """Print how many answers are complete."""
    from hierlearn.terminal import print_table

    rows, none = written.rows, written.unanswered
    counts = (rows - written.stopped, written.stopped - none, none)
    shares = [f"{count:,} ({count / max(rows, 1):.1%})" for count in counts]
    heads = ["rows", "complete", "partial", "no answer"]
    print_table(console, heads, [[f"{rows:,}", *shares]], left=0)


# ---------------------------------------------------------------------- hierlearn explain

WIDEST = 80  # characters of a text on the terminal
WIDEST_TITLE = 40  # of a title behind a label
COLUMNS = ("features", "embeddings", "text", "id_column", "label_sep", "dataset_option", "data_dir")


@takes(
    *options(
        count=(
            int,
            "Rows, or words and cells, of every answer, at most.",
            {"default": 3, "min": 1},
        ),
        limit=(int, "Rows to show on the terminal.", {"default": 5, "min": 1}),
        out=(TABLE, f"{TABLES}, for all rows."),
    ),
    *shared.DECIDING,
    *options(rows=(str, "Split of a named dataset, or all.")),
    *shared.LOADING,
    *(one for one in shared.SOURCE if one.name in COLUMNS),
)
def explain(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA + " No labels are needed.")],
    **options: Any,
) -> None:
    """Show what the answers rest on.

    Of a model with a memory: the training rows that an answer was taken from; their weights sum to
    1. Of other models of texts and tables: the words or cells without which the answer would be
    less probable. With --out, one line per answer and row, word or cell.

    Examples:
        explain model new.csv
        explain model new.csv --count 10 --out evidence.csv
    """
    from hierlearn.cli.memory import check_memory, evidence_note
    from hierlearn.cli.output import working
    from hierlearn.cli.rows import check_goes_with, load_model
    from hierlearn.datasets.tables.write import check_ending, table_writer
    from hierlearn.errors import plural
    from hierlearn.files.locations import is_standard
    from hierlearn.networks.memories import memory_heads
    from hierlearn.pipeline.answers import AnswerFormatter, first_classes, label_sep_of
    from hierlearn.pipeline.explain import explain as evidence_for
    from hierlearn.pipeline.explain import has_parts, reasons, rows_of
    from hierlearn.pipeline.predict import probability_chunks
    from hierlearn.terminal import Console, print_plain

    out, count, limit = (options[name] for name in ("out", "count", "limit"))
    if out is None:
        check_goes_with(options, ("force",), "--out")
    else:
        check_ending(out)
    loaded = load_model(model, options)
    by_parts = not memory_heads(loaded.network) and has_parts(loaded)
    if not by_parts:
        check_memory(loaded, model)
    chunks, total, note = open_chunks(loaded, data, options)
    decoder, reason = choose_decoder(loaded, options)
    join, hierarchy = label_sep_of(loaded, options.get("label_sep")), loaded.hierarchy
    some = first_rows(chunks, limit) if out is None else chunks
    names = ["row", "answer", "title", "probability", "rank"]
    absent = [] if hierarchy.has_titles else ["title", "titles"]
    formatter = AnswerFormatter(loaded, decoder, join)
    evidence: Any
    if by_parts:
        notes = [
            note,
            f"{reason}; the model answers by weights: shown are the words or cells without which "
            f"the answer would be less probable",
        ]
        names += ["part", "effect", "without"]
    else:
        remembered, known = rows_of(loaded), loaded.config.get("columns", {})
        by_place = ("label" in known or "levels" in known) and "id_column" not in known
        named = ", named by their place in the table, from 0" if by_place else ""
        memory = f"{reason}; {len(remembered):,} remembered rows{named}"
        notes = [note, memory, evidence_note(loaded)]
        names += ["weight", "id", "labels", "titles", "text"]
        absent += [] if remembered.texts is not None else ["text"]
    console = Console(stderr=out is not None and is_standard(out))
    for line in filter(None, notes):
        print_plain(console, line)
    names = [name for name in names if name not in absent]
    writer: Any = nullcontext() if out is None else table_writer(out, names)
    done = 0
    with writer as append, working("explaining", limit if out is None else total) as advance:
        for chunk, p in probability_chunks(loaded, some, Path(data)):
            columns = formatter(p)
            if by_parts:
                evidence = [*reasons(loaded, chunk.inputs, first_classes(p, decoder), count)]
            else:
                evidence = [*evidence_for(loaded, chunk.inputs, count)]
            for row in range(min(len(evidence), limit - done)):
                lines = evidence_lines(evidence[row], by_parts, join, hierarchy)
                print_plain(console, "", headline(chunk, columns, row, join), *lines)
            if append is not None:
                append(long_columns(names, chunk, columns, evidence, join, hierarchy))
            done += len(evidence)
            advance(done)
    if out is not None:
        each = plural(count, "part") if by_parts else f"{count} rows each"
        shown = f"{plural(done, 'answer') if by_parts else f'{done:,} answers'} with up to {each}"
        print_plain(console, "", f"wrote {shown_output(out)}, {shown}")


def first_rows(chunks: Iterable[Chunk], limit: int) -> Iterator[Chunk]:
    """Yield the first rows of a table, and read no further than the chunk that has them."""
    from hierlearn.datasets.tables.stream import Chunk

    left = limit
    for chunk in chunks:
        ids = None if chunk.ids is None else chunk.ids[:left]
        yield Chunk(chunk.inputs[:left], chunk.lines[:left], ids)
        left -= min(left, len(chunk.lines))
        if not left:
            return


def headline(chunk: Chunk, columns: dict[str, list[Any]], row: int, join: str) -> str:
    """Return which row it is, its answer and the probability."""
    which = f"line {chunk.lines[row]}" if chunk.ids is None else str(chunk.ids[row])
    answer = columns["path"][row] or "no class is probable enough"
    title = str(columns["title"][row]) if "title" in columns else ""
    if title.replace(join, ""):
        answer += f" ({shorten(title)})"
    p = columns["probability"][row]
    shown = f"{p:.3f}" if isinstance(p, float) else p
    return f"{which}: {answer}" + (f", probability {shown}" if shown else "")


def evidence_lines(
    rows: Sequence[Any], by_parts: bool, label_sep: str, hierarchy: Hierarchy
) -> list[str]:
    """Return one line per part, or per remembered row: weight, labels with titles, id, text."""
    from hierlearn.hierarchy.names import with_title

    if by_parts:
        lines = [
            f"  {one.without:.3f} without {shorten(one.part)} ({-one.effect:+.2g})" for one in rows
        ]
        return lines or ["  no single word or cell makes it more probable"]

    labels = [
        label_sep.join(with_title(hierarchy, label, WIDEST_TITLE) for label in one.labels)
        or "(no label)"
        for one in rows
    ]
    wide, wide_id = max(map(len, labels), default=0), max((len(one.id) for one in rows), default=0)
    lines = []
    for one, label in zip(rows, labels, strict=True):
        text = "" if one.text is None or one.text == one.id else f"  {shorten(one.text)}"
        lines.append(f"  {one.weight:.3f}  {label:{wide}}  id {one.id:{wide_id}}{text}".rstrip())
    return lines


def shorten(text: str) -> str:
    """Return a text in one line that is short enough for a terminal."""
    from hierlearn.hierarchy.names import shorten as cut

    return cut(" ".join(text.split()), WIDEST)


def long_columns(
    names: Sequence[str],
    chunk: Chunk,
    columns: dict[str, list[Any]],
    evidence: Sequence[Sequence[Any]],
    label_sep: str,
    hierarchy: Hierarchy,
) -> dict[str, list[Any]]:
    """Return one row per answer and remembered row, word or cell, as columns by name."""
    from hierlearn.hierarchy.names import joined_titles

    numbers = chunk.lines if chunk.ids is None else chunk.ids
    made: list[dict[str, Any]] = []
    for row, own in enumerate(evidence):
        for rank, one in enumerate(own, 1):
            cells = dict(vars(one))
            if "labels" in cells:
                cells["titles"] = joined_titles(hierarchy, one.labels, label_sep)
                cells["labels"] = label_sep.join(one.labels)
            cells |= {"row": numbers[row], "answer": columns["path"][row], "rank": rank}
            cells |= {
                name: columns[name][row] for name in ("title", "probability") if name in columns
            }
            made.append(cells)
    return {name: [one[name] for one in made] for name in names}
