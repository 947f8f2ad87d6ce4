"""``hierlearn remap``: a model moved to another taxonomy, with the labels that it remembers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli import shared
from hierlearn.cli.generate import flag, option, takes
from hierlearn.cli.memories import WRITING, read_columns
from hierlearn.errors import DataError, LabelError, place, plural, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hierlearn.hierarchy import Hierarchy

OPTIONS = [
    option("hierarchy", str, ..., "File of the new taxonomy, or the name of a dataset."),
    option(
        "map",
        Path,
        None,
        "CSV or TSV with the columns old and new: several lines split a class, an empty new "
        "removes it. Classes that keep their name need no line.",
    ),
    option(
        "labels",
        Path,
        None,
        "CSV or TSV with the columns id and label: new labels of single rows, such as those of a "
        "class that is split.",
    ),
    flag("dry_run", "Only count, also classes without a place; write nothing."),
    option("label_sep", str, None, "Separator of several labels in a cell; ; if none."),
    option("form", str, None, "What an ambiguous --hierarchy holds: nested, parents, ..."),
    option("sep", str, None, "Separator of the names of a path; that of the model if none."),
    option("root", str, None, "The id that stands for the implicit root."),
    option("title_column", str, None, "Column of titles of a CSV or TSV file; title if none."),
    option("language", str, None, "Language of the titles in an RDF file, such as de."),
]


@takes(*OPTIONS, *WRITING, shared.TRUST, shared.DEVICE, shared.DATA_DIR)
def remap(model: shared.ModelFolder, **options: Any) -> None:
    """Move a model to another taxonomy: classes renamed, moved, merged, split, removed, new.

    The labels of the remembered rows follow. Nothing is trained.
    """
    from hierlearn.cli.memories import check_destination, locked_in_place
    from hierlearn.cli.sources import check_goes_with, check_not_given
    from hierlearn.terminal import Console, print_plain

    if options["labels"] is None:
        check_goes_with({"label_sep": options["label_sep"]}, "--labels")
    if options["dry_run"]:
        unused = {name: options[name] for name in ("out", "in_place", "force")}
        check_not_given("--dry-run", "a count that writes nothing", unused)
    else:
        check_destination(model, options)
    with locked_in_place(model, options):
        for line in move_model(model, options):
            print_plain(Console(), line)


def move_model(model: Path, options: Mapping[str, Any]) -> Iterator[str]:
    """Move a model, print the counts, and yield what else to say."""
    from hierlearn.cli.memories import load_with_memory, write_changed
    from hierlearn.cli.sources import open_hierarchy
    from hierlearn.memory.taxonomy import unplaced
    from hierlearn.pipeline.predictor import label_sep_of
    from hierlearn.pipeline.remember import remap as move
    from hierlearn.terminal import Console

    dry_run = options["dry_run"]
    loaded = load_with_memory(model, options)
    old = loaded.hierarchy
    names = ("data_dir", "form", "sep", "root", "title_column", "language")
    reading = {name: options[name] for name in names}
    if reading["sep"] is None and old.sep != "/":
        reading["sep"] = old.sep
    new = open_hierarchy(options["hierarchy"], **reading)
    mapping = {} if options["map"] is None else read_map(options["map"], old, new)
    join = label_sep_of(loaded, options.get("label_sep"))
    labels = {} if options["labels"] is None else read_labels(options["labels"], new, join)
    found = move(loaded, new, mapping, labels, dry_run=dry_run)
    print_counts(Console(), found)
    lost = unplaced(old, new, mapping) if dry_run else []
    if lost:
        yield (
            f"{plural(len(lost), 'class has', 'classes have')} no place in the new taxonomy: "
            f"{quoted(lost, most=10)}; before anything is moved, give each a line in --map, with "
            f"an empty new name to send its rows to the parent"
        )
    yield f"fingerprint {old.fingerprint[:16]} -> {new.fingerprint[:16]}"
    if dry_run:
        yield "nothing was written: --dry-run"
        return
    yield f"wrote {write_changed(loaded, model, options)}"


def read_map(path: Path, old: Hierarchy, new: Hierarchy) -> dict[str, list[str]]:
    """Return where classes go, by full names; none where a class is removed.

    Args:
        path: the file.
        old: the hierarchy of the model.
        new: the hierarchy that replaces it.
    """
    found: dict[str, list[str]] = {}
    first: dict[str, int] = {}  # where each class is named first
    for line, (before, after) in read_columns(path, ("old", "new"), "old,new"):
        if not before:
            raise DataError(f"{place(path, line, 'old')}: the class is missing; write its name")
        name = named(old, before, path, line, "old")
        ends = found.setdefault(name, [])
        if name in first and not (after and ends):
            raise DataError(
                f"{place(path, line)}: {name!r} is removed and has a new name in lines "
                f"{first[name]} and {line}; keep one of them"
                if after or ends
                else f"{place(path, line)}: {name!r} is removed in line {first[name]} already"
            )
        first.setdefault(name, line)
        if after:
            ends.append(named(new, after, path, line, "new"))
    return found


def read_labels(path: Path, new: Hierarchy, label_sep: str) -> dict[str, list[str]]:
    """Return the new labels of single rows by id; several lines of an id are several labels."""
    found: dict[str, list[str]] = {}
    for line, (one, cell) in read_columns(path, ("id", "label"), "id,label"):
        labels = [part.strip() for part in cell.split(label_sep) if part.strip()]
        if not one or not labels:
            missing = "label" if one else "id"
            raise DataError(f"{place(path, line, missing)}: the cell is empty; write the {missing}")
        found.setdefault(one, []).extend(named(new, label, path, line, "label") for label in labels)
    return found


def named(hierarchy: Hierarchy, label: str, path: Path, line: int, column: str) -> str:
    """Return the full name of a class; raise with the place of an unknown one."""
    try:
        return hierarchy.names[hierarchy.index(label)]
    except LabelError as error:
        which = "the model" if column == "old" else "the new hierarchy"
        raise LabelError(f"{place(path, line, column)}: no class of {which}: {error}") from None


def print_counts(console: Any, counts: dict[str, int]) -> None:
    """Print how many classes and rows change."""
    from hierlearn.terminal import Table

    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in counts.items():
        if name == "rows":
            table.add_section()
        table.add_row(name, f"{count:,}")
    console.print(table)
