"""``hierlearn explain``: what the answers of a model rest on; see reasons.py for words."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import described, option, takes
from hierlearn.cli.outputs import TABLE, output
from hierlearn.cli.predict import FORMATS, shown_output
from hierlearn.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.explain import Evidence

NAMES = (
    "row",
    "answer",
    "title",
    "probability",
    "rank",
    "weight",
    "id",
    "labels",
    "titles",
    "text",
)
WIDEST = 80  # characters of a text on the terminal
WIDEST_TITLE = 40  # of a title behind a label
OPTIONS = [
    option("count", int, 3, "Rows, or words and cells, of every answer, at most.", min=1),
    option("limit", int, 5, "Rows to show on the terminal.", min=1),
    output("out", f"{FORMATS}, for all rows.", "--out", "-o", kind=TABLE),
    *(
        one
        for one in described(Plan, "", decoder="that of the model")
        if one.name in ("decoder", "decoder_option")
    ),
    option("threshold", float, None, "Threshold of the decoder, such as stop."),
    option("rows", str, None, "Split of a named dataset, or all."),
]
COLUMNS = ("features", "embeddings", "text", "id_column", "label_sep", "dataset_option", "data_dir")
SOURCE = [one for one in shared.SOURCE if one.name in COLUMNS]


@takes(*OPTIONS, shared.MISSING, shared.FORCE, shared.TRUST, shared.DEVICE, *SOURCE)
def explain(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA + " No labels are needed.")],
    **options: Any,
) -> None:
    """Show what the answers rest on.

    Of a model with a memory: the training rows that an answer was taken from; their weights sum to
    1. Of other models of texts and tables: the words or cells without which the answer would be
    less probable. With --out, one line per answer and row, word or cell.
    """
    from hierlearn.cli.calibrate import choose_decoder
    from hierlearn.cli.memories import check_memory, evidence_note
    from hierlearn.cli.predict import open_chunks
    from hierlearn.cli.reasons import explain_by_parts
    from hierlearn.cli.show import working
    from hierlearn.cli.sources import check_goes_with
    from hierlearn.datasets.tables.write import check_ending, table_writer
    from hierlearn.files.standard import is_standard
    from hierlearn.networks.memories import memory_heads
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.pipeline.predict import explain_chunks
    from hierlearn.pipeline.predictor import label_sep_of
    from hierlearn.pipeline.reasons import has_parts
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.processes import find_device

    out, count, limit = (options[name] for name in ("out", "count", "limit"))
    if out is None:
        check_goes_with({"force": options["force"]}, "--out")
    else:
        check_ending(out)
    device = find_device(options["device"])
    loaded = Pipeline.load(model, device=device, trust=options["trust"])
    loaded.missing = checked_missing(options["missing"])
    if not memory_heads(loaded.network) and has_parts(loaded):
        explain_by_parts(loaded, data, options)
        return
    check_memory(loaded, model)
    chunks, total, note = open_chunks(loaded, data, options)
    made, reason = choose_decoder(loaded, options)
    remembered = rows_of(loaded)
    console = Console(stderr=out is not None and is_standard(out))
    memory = f"{reason}; {len(remembered):,} remembered rows{numbered(loaded)}"
    for line in filter(None, (note, memory, evidence_note(loaded))):
        print_plain(console, line)
    join = label_sep_of(loaded, options.get("label_sep"))
    hierarchy = loaded.hierarchy
    absent = {
        "text": remembered.texts is None,
        **dict.fromkeys(("title", "titles"), not hierarchy.has_titles),
    }
    names = [name for name in NAMES if not absent.get(name, False)]
    writer: Any = nullcontext() if out is None else table_writer(out, names)
    some = first_rows(chunks, limit) if out is None else chunks
    done = 0
    with writer as append, working("explaining", limit if out is None else total) as advance:
        for chunk, columns, found in explain_chunks(
            loaded, made, some, Path(data), join, count=count
        ):
            for row in range(min(len(found), limit - done)):
                print_plain(console, "", headline(chunk, columns, row, join))
                for line in evidence_lines(found[row], join, hierarchy):
                    print_plain(console, line)
            if append is not None:
                append(long_columns(chunk, columns, found, join, hierarchy))
            done += len(found)
            advance(done)
    if out is not None:
        answers = f"{done:,} answers with up to {count} rows each"
        print_plain(console, "", f"wrote {shown_output(out)}, {answers}")


def headline(chunk: Chunk, columns: dict[str, list[Any]], row: int, join: str) -> str:
    """Return which row it is, its answer and the probability."""
    which = f"line {chunk.lines[row]}" if chunk.ids is None else str(chunk.ids[row])
    answer = columns["path"][row] or "no class is probable enough"
    if title_of(columns, row).replace(join, ""):
        answer += f" ({shorten(title_of(columns, row))})"
    return f"{which}: {answer}{shown_probability(columns['probability'][row])}"


def numbered(model: Pipeline) -> str:
    """Say what ids are where the table of the training had no column of them."""
    known = model.config.get("columns", {})
    is_table = "label" in known or "levels" in known
    return (
        ", named by their place in the table, from 0"
        if is_table and "id_column" not in known
        else ""
    )


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


def title_of(columns: dict[str, list[Any]], row: int) -> str:
    """Return the title of an answer, of each class of a set; nothing where no class has one."""
    return str(columns["title"][row]) if "title" in columns else ""


def shown_probability(value: Any) -> str:
    """Word the probability of a class, or of each class of a set."""
    if isinstance(value, float):
        return f", probability {value:.3f}"
    return f", probability {value}" if value else ""


def evidence_lines(found: list[Evidence], label_sep: str, hierarchy: Hierarchy) -> Iterator[str]:
    """Yield one line per remembered row: weight, labels with titles, id, text."""
    from hierlearn.hierarchy.titles import with_title

    labels = [
        label_sep.join(with_title(hierarchy, label, WIDEST_TITLE) for label in one.labels)
        or "(no label)"
        for one in found
    ]
    wide, wide_id = max(map(len, labels), default=0), max((len(one.id) for one in found), default=0)
    for one, label in zip(found, labels, strict=True):
        text = "" if one.text is None or one.text == one.id else f"  {shorten(one.text)}"
        yield f"  {one.weight:.3f}  {label:{wide}}  id {one.id:{wide_id}}{text}".rstrip()


def shorten(text: str) -> str:
    """Return a text in one line that is short enough for a terminal."""
    from hierlearn.hierarchy.titles import shorten as cut

    return cut(" ".join(text.split()), WIDEST)


def answer_columns(
    chunk: Chunk, columns: dict[str, list[Any]], places: list[tuple[int, int]]
) -> dict[str, list[Any]]:
    """Return the columns of answers, once for each row and rank of what explains it."""
    numbers = chunk.lines if chunk.ids is None else chunk.ids
    return {
        "row": [numbers[row] for row, _ in places],
        "answer": [columns["path"][row] for row, _ in places],
        "title": [title_of(columns, row) for row, _ in places],
        "probability": [columns["probability"][row] for row, _ in places],
        "rank": [rank for _, rank in places],
    }


def long_columns(
    chunk: Chunk,
    columns: dict[str, list[Any]],
    found: list[list[Evidence]],
    label_sep: str,
    hierarchy: Hierarchy,
) -> dict[str, list[Any]]:
    """Return one row per answer and remembered row, as columns by name."""
    from hierlearn.hierarchy.titles import joined_titles

    every = [(row, rank, one) for row, own in enumerate(found) for rank, one in enumerate(own, 1)]
    return {
        **answer_columns(chunk, columns, [(row, rank) for row, rank, _ in every]),
        "weight": [one.weight for _, _, one in every],
        "id": [one.id for _, _, one in every],
        "labels": [label_sep.join(one.labels) for _, _, one in every],
        "titles": [joined_titles(hierarchy, one.labels, label_sep) for _, _, one in every],
        "text": [one.text for _, _, one in every],
    }
