"""``hierlearn remember``: labeled rows, and even new classes, added to a model without training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import option, takes
from hierlearn.cli.memories import WRITING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.remember import Growth

OPTIONS = [option("rows", str, None, "Split to remember, or all.")]


@takes(*OPTIONS, *WRITING, shared.TRUST, shared.DEVICE, *shared.SOURCE)
def remember(
    model: shared.ModelFolder,
    data: Annotated[str, typer.Argument(help=shared.DATA)],
    **options: Any,
) -> None:
    """Add labeled rows to the memory of a model, and the classes that they bring.

    A label whose path is new becomes a class below its parent. Nothing is trained. With --in-place
    the rows are written beside those of before, in as little time as they need alone.
    """
    from hierlearn.cli.memories import check_destination
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    lines = (into_folder if options["in_place"] else into_copy)(model, data, options)
    for line in lines:
        print_plain(Console(), line)


def into_folder(model: Path, data: str, options: Mapping[str, Any]) -> list[str]:
    """Add rows to a model in place, and return what to say; its memory is not read."""
    from hierlearn.cli.memories import change_in_place
    from hierlearn.cli.show import working

    with change_in_place(model, options) as memory:
        picked, hierarchy, name = pick_new_rows(memory.pipeline, data, options)
        ids = picked.ids
        known = memory.find(ids or ())[1]
        again = [one for one, has in zip(ids or (), known, strict=True) if has]
        with working("remembering"):
            growth = memory.remember(picked.inputs, picked.labels, hierarchy=hierarchy, ids=ids)
        new = memory.pipeline.hierarchy
    return [*report(growth, picked, name, new, again), wrote(model, growth)]


def into_copy(model: Path, data: str, options: Mapping[str, Any]) -> list[str]:
    """Write a model with more rows into another folder, and return what to say."""
    from hierlearn.cli.memories import load_with_memory, write_changed
    from hierlearn.cli.show import working
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.remember import remember as add

    loaded = load_with_memory(model, options)
    picked, hierarchy, name = pick_new_rows(loaded, data, options)
    known = {str(one) for one in rows_of(loaded).ids}
    again = [one for one in picked.ids or () if one in known]
    with working("remembering"):
        growth = add(loaded, picked.inputs, picked.labels, hierarchy=hierarchy, ids=picked.ids)
    folder = write_changed(loaded, model, options)
    return [*report(growth, picked, name, loaded.hierarchy, again), wrote(folder, growth)]


def pick_new_rows(
    model: Pipeline, data: str, options: Mapping[str, Any]
) -> tuple[Dataset, Hierarchy | None, str]:
    """Return the rows to remember, the hierarchy of --hierarchy, and what the rows are called."""
    from hierlearn.cli.model_rows import pick_rows

    dataset, hierarchy = open_new_rows(model, data, options)
    picked, which = pick_rows(dataset, options["rows"])
    check_complete(model, picked, data if which == "all" else f"the split {which} of {data}")
    return picked, hierarchy, data if which == "all" else f"{data} of the split {which}"


def report(
    growth: Growth, picked: Dataset, name: str, hierarchy: Hierarchy, again: Sequence[str]
) -> list[str]:
    """Say what was remembered.

    Args:
        growth: how much.
        picked: the rows.
        name: what they are called.
        hierarchy: with the new classes.
        again: the ids that remembered rows had already.
    """
    from hierlearn.errors import plural

    lines = [f"remembered {plural(growth.rows, 'row')} of {name}"]
    lines.append(new_classes(growth.classes, hierarchy))
    unlabeled = sum(not labels for labels in picked.labels)
    if unlabeled:
        lines.append(f"{plural(unlabeled, 'row')} without a label: examples of no class")
    if growth.known:
        lines.append(
            f"{plural(growth.known, 'row')} remembered already, with the same id, label and "
            f"values: left out"
        )
    if len(again) > growth.known:
        lines.append(
            f"{plural(len(again) - growth.known, 'row')} with the id of another row that was "
            f"remembered already; both are kept, and forget removes both"
        )
    return lines


def wrote(folder: Path, growth: Growth) -> str:
    """Say where the model is, and how much it remembers."""
    from hierlearn.errors import plural

    return f"wrote {folder}, which remembers {plural(growth.total, 'row')} now"


def open_new_rows(
    model: Pipeline, source: str, options: Mapping[str, Any]
) -> tuple[Dataset, Hierarchy | None]:
    """Open labeled rows whose labels the hierarchy of the model may lack.

    Returns:
        The rows, and the hierarchy of --hierarchy if it was given.
    """
    from hierlearn.cli.model_rows import check_sep, is_table, open_labeled_table
    from hierlearn.cli.sources import open_dataset
    from hierlearn.hierarchy import Hierarchy

    check_sep(model, options.get("sep"))
    hierarchy = None
    if options["hierarchy"] is not None:
        hierarchy = Hierarchy.read(options["hierarchy"], sep=model.hierarchy.sep)
    rest = {name: value for name, value in options.items() if name not in ("hierarchy", "sep")}
    if is_table(source):
        return open_labeled_table(model, source, rest, hierarchy), hierarchy
    return open_dataset(source, rest), hierarchy


def check_complete(model: Pipeline, dataset: Dataset, name: str) -> None:
    """Raise on a missing value in a column that had none in training."""
    from hierlearn.pipeline.missing import MissingCells

    cells = MissingCells(model, learns=True)
    cells.add(dataset.inputs, lambda row, column: f"{name}, row {row + 1}, column {column!r}")


def new_classes(names: tuple[str, ...], hierarchy: Hierarchy, most: int = 20) -> str:
    """List the new classes, with their titles."""
    from hierlearn.hierarchy.titles import with_title

    if not names:
        return "no new class"
    shown = ", ".join(with_title(hierarchy, name) for name in names[:most])
    more = "" if len(names) <= most else f" and {len(names) - most:,} more"
    return f"{len(names):,} new {'class' if len(names) == 1 else 'classes'}: {shown}{more}"
