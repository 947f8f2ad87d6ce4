"""``hierlearn explain``: the rows, words or cells that the answers of a model rest on."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import TABLE, options, takes
from hierlearn.cli.predict import TABLES, shown_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.hierarchy import Hierarchy

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
    from hierlearn.cli.evaluate import choose_decoder
    from hierlearn.cli.memory import check_memory, evidence_note
    from hierlearn.cli.model_rows import load_model
    from hierlearn.cli.predict import open_chunks
    from hierlearn.cli.show import working
    from hierlearn.cli.sources import check_goes_with
    from hierlearn.datasets.tables.write import check_ending, table_writer
    from hierlearn.errors import plural
    from hierlearn.files.locations import is_standard
    from hierlearn.networks.memories import memory_heads
    from hierlearn.pipeline.explain import has_parts, reasons, rows_of
    from hierlearn.pipeline.predict import (
        answers,
        explain_chunks,
        first_classes,
        label_sep_of,
        probability_chunks,
    )
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
    explained: Iterator[tuple[Any, Any, Any]]
    if by_parts:
        notes = [
            note,
            f"{reason}; the model answers by weights: shown are the words or cells without which "
            f"the answer would be less probable",
        ]
        names += ["part", "effect", "without"]
        explained = (
            (
                chunk,
                answers(p, decoder, loaded, join),
                reasons(loaded, chunk.inputs, first_classes(p, decoder), count),
            )
            for chunk, p in probability_chunks(loaded, some, Path(data))
        )
    else:
        remembered, known = rows_of(loaded), loaded.config.get("columns", {})
        by_place = ("label" in known or "levels" in known) and "id_column" not in known
        named = ", named by their place in the table, from 0" if by_place else ""
        memory = f"{reason}; {len(remembered):,} remembered rows{named}"
        notes = [note, memory, evidence_note(loaded)]
        names += ["weight", "id", "labels", "titles", "text"]
        absent += [] if remembered.texts is not None else ["text"]
        explained = explain_chunks(loaded, decoder, some, Path(data), join, count=count)
    console = Console(stderr=out is not None and is_standard(out))
    for line in filter(None, notes):
        print_plain(console, line)
    names = [name for name in names if name not in absent]
    writer: Any = nullcontext() if out is None else table_writer(out, names)
    done = 0
    with writer as append, working("explaining", limit if out is None else total) as advance:
        for chunk, columns, found in explained:
            for row in range(min(len(found), limit - done)):
                print_plain(console, "", headline(chunk, columns, row, join))
                show = reason_lines(found[row]) if by_parts else None
                for line in show or evidence_lines(found[row], join, hierarchy):
                    print_plain(console, line)
            if append is not None:
                append(long_columns(names, chunk, columns, found, join, hierarchy))
            done += len(found)
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
    title = title_of(columns, row)
    if title.replace(join, ""):
        answer += f" ({shorten(title)})"
    p = columns["probability"][row]
    shown = f"{p:.3f}" if isinstance(p, float) else p
    return f"{which}: {answer}" + (f", probability {shown}" if shown else "")


def title_of(columns: dict[str, list[Any]], row: int) -> str:
    """Return the title of an answer, of each class of a set; nothing where no class has one."""
    return str(columns["title"][row]) if "title" in columns else ""


def evidence_lines(found: Sequence[Any], label_sep: str, hierarchy: Hierarchy) -> Iterator[str]:
    """Yield one line per remembered row: weight, labels with titles, id, text."""
    from hierlearn.hierarchy.names import with_title

    labels = [
        label_sep.join(with_title(hierarchy, label, WIDEST_TITLE) for label in one.labels)
        or "(no label)"
        for one in found
    ]
    wide, wide_id = max(map(len, labels), default=0), max((len(one.id) for one in found), default=0)
    for one, label in zip(found, labels, strict=True):
        text = "" if one.text is None or one.text == one.id else f"  {shorten(one.text)}"
        yield f"  {one.weight:.3f}  {label:{wide}}  id {one.id:{wide_id}}{text}".rstrip()


def reason_lines(found: Sequence[Any]) -> list[str]:
    """Return one line per part: what the probability is without it."""
    if not found:
        return ["  no single word or cell makes it more probable"]
    return [
        f"  {one.without:.3f} without {shorten(one.part)} ({-one.effect:+.2g})" for one in found
    ]


def shorten(text: str) -> str:
    """Return a text in one line that is short enough for a terminal."""
    from hierlearn.hierarchy.names import shorten as cut

    return cut(" ".join(text.split()), WIDEST)


def long_columns(
    names: Sequence[str],
    chunk: Chunk,
    columns: dict[str, list[Any]],
    found: Sequence[Sequence[Any]],
    label_sep: str,
    hierarchy: Hierarchy,
) -> dict[str, list[Any]]:
    """Return one row per answer and remembered row, word or cell, as columns by name."""
    from hierlearn.hierarchy.names import joined_titles

    numbers = chunk.lines if chunk.ids is None else chunk.ids
    made: list[dict[str, Any]] = []
    for row, own in enumerate(found):
        for rank, one in enumerate(own, 1):
            cells = dict(vars(one))
            if "labels" in cells:
                cells["titles"] = joined_titles(hierarchy, one.labels, label_sep)
                cells["labels"] = label_sep.join(one.labels)
            cells |= {"row": numbers[row], "answer": columns["path"][row], "rank": rank}
            cells |= {"title": title_of(columns, row), "probability": columns["probability"][row]}
            made.append(cells)
    return {name: [one[name] for one in made] for name in names}
