"""The half of ``hierlearn explain`` for models without a memory: words and cells left out."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.reasons import Reason

NAMES = ("row", "answer", "title", "probability", "rank", "part", "effect", "without")
NOTE = (
    "the model answers by weights: shown are the words or cells without which the answer would be "
    "less probable"
)


def explain_by_parts(model: Pipeline, data: str, options: Mapping[str, Any]) -> None:
    """Show which words of texts, or cells of tables, the answers rest on.

    Args:
        model: a model that reads texts or tables.
        data: the rows.
        options: those of the command.
    """
    from hierlearn.cli.calibrate import choose_decoder
    from hierlearn.cli.explain import first_rows, headline
    from hierlearn.cli.predict import open_chunks, shown_output
    from hierlearn.cli.show import working
    from hierlearn.datasets.tables.write import table_writer
    from hierlearn.errors import plural
    from hierlearn.files.standard import is_standard
    from hierlearn.pipeline.predict import answers, first_classes, probability_chunks
    from hierlearn.pipeline.predictor import label_sep_of
    from hierlearn.pipeline.reasons import reasons
    from hierlearn.terminal import Console, print_plain

    out, count, limit = (options[name] for name in ("out", "count", "limit"))
    chunks, total, note = open_chunks(model, data, options)
    decoder, reason = choose_decoder(model, options)
    console = Console(stderr=out is not None and is_standard(out))
    for line in filter(None, (note, f"{reason}; {NOTE}")):
        print_plain(console, line)
    join = label_sep_of(model, options.get("label_sep"))
    names = [name for name in NAMES if name != "title" or model.hierarchy.has_titles]
    writer: Any = nullcontext() if out is None else table_writer(out, names)
    some = first_rows(chunks, limit) if out is None else chunks
    done = 0
    with writer as append, working("explaining", limit if out is None else total) as advance:
        for chunk, p in probability_chunks(model, some, Path(data)):
            columns = answers(p, decoder, model, join)
            found = reasons(model, chunk.inputs, first_classes(p, decoder), count)
            for row in range(min(len(found), limit - done)):
                print_plain(console, "", headline(chunk, columns, row, join))
                for line in reason_lines(found[row]):
                    print_plain(console, line)
            if append is not None:
                append(long_columns(chunk, columns, found))
            done += len(found)
            advance(done)
    if out is not None:
        shown = f"{plural(done, 'answer')} with up to {plural(count, 'part')}"
        print_plain(console, "", f"wrote {shown_output(out)}, {shown}")


def reason_lines(found: Sequence[Reason]) -> list[str]:
    """Return one line per part: what the probability is without it."""
    from hierlearn.cli.explain import shorten

    if not found:
        return ["  no single word or cell makes it more probable"]
    return [
        f"  {one.without:.3f} without {shorten(one.part)} ({-one.effect:+.2g})" for one in found
    ]


def long_columns(
    chunk: Chunk, columns: dict[str, list[Any]], found: Sequence[Sequence[Reason]]
) -> dict[str, list[Any]]:
    """Return one row per answer and part, as columns by name."""
    from hierlearn.cli.explain import answer_columns

    every = [(row, rank, one) for row, own in enumerate(found) for rank, one in enumerate(own, 1)]
    return {
        **answer_columns(chunk, columns, [(row, rank) for row, rank, _ in every]),
        "part": [one.part for _, _, one in every],
        "effect": [one.effect for _, _, one in every],
        "without": [one.without for _, _, one in every],
    }
