"""``hierlearn forget``: rows removed from the memory of a model, by id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli import shared
from hierlearn.cli.generate import flag, option, takes
from hierlearn.cli.memories import WRITING
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = [
    option("id", list[str], None, "Id of a row to forget. Repeatable.", metavar="ID"),
    option("ids", Path, None, "File of ids: text with one id per line, or a table."),
    option("id_column", str, None, "Column of a table in --ids; id if none."),
    flag("erase", "Remove the rows from the files at once, not with the next compact."),
]


@takes(*OPTIONS, *WRITING, shared.TRUST, shared.DEVICE)
def forget(model: shared.ModelFolder, **options: Any) -> None:
    """Remove rows from the memory of a model; explain shows their ids.

    Weights and vocabulary stay as training learned them. Nothing is trained.
    """
    from hierlearn.cli.memories import check_destination
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    if options["erase"] and not options["in_place"]:
        raise HierlearnError("--erase goes with --in-place: a new folder never holds the rows")
    wanted = wanted_ids(options)
    lines = (in_folder if options["in_place"] else in_copy)(model, wanted, options)
    for line in lines:
        print_plain(Console(), line)


def in_folder(model: Path, ids: list[str], options: Mapping[str, Any]) -> list[str]:
    """Forget rows of a model in place, and return what to say; its memory is not read."""
    from hierlearn.cli.memories import change_in_place

    with change_in_place(model, options) as memory:
        gone = memory.forget(ids, erase=options["erase"])
        left = len(memory)
        if memory.find(ids)[1].any():
            raise HierlearnError(f"{model} still has some of the ids; forget them again")
    if options["erase"]:
        return [forgot(gone, left), holds_nothing(model, gone), f"wrote {model}"]
    later = (
        f"the files of {model} hold {'it' if gone == 1 else 'them'} until hierlearn compact, or "
        f"forget --erase; nothing reads {'it' if gone == 1 else 'them'} any more"
    )
    return [forgot(gone, left), later, f"wrote {model}"]


def in_copy(model: Path, ids: list[str], options: Mapping[str, Any]) -> list[str]:
    """Write a model without some rows into another folder, and return what to say."""
    from hierlearn.cli.memories import load_with_memory, write_changed
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.remember import forget as remove

    loaded = load_with_memory(model, options)
    gone = remove(loaded, ids)
    folder = write_changed(loaded, model, options)
    them = "it" if gone == 1 else "them"
    return [
        forgot(gone, len(rows_of(loaded))),
        holds_nothing(folder, gone),
        f"{model} still remembers {them}; delete it if nobody may",
        f"wrote {folder}",
    ]


def forgot(gone: int, left: int) -> str:
    """Say how many rows were forgotten."""
    from hierlearn.errors import plural

    return f"forgot {plural(gone, 'row')}; the memory has {left:,} now"


def holds_nothing(folder: Path, gone: int) -> str:
    """Say what of the rows is left."""
    return (
        f"the memory in {folder} holds no embedding, label, id or text of "
        f"{'it' if gone == 1 else 'them'}; weights and vocabulary stay as training learned them"
    )


def wanted_ids(options: Mapping[str, Any]) -> list[str]:
    """Return the ids that the options name."""
    path, found = options["ids"], list(options["id"] or ())
    if options["id_column"] is not None and (path is None or path.suffix.lower() == ".txt"):
        raise HierlearnError("--id-column goes with a table in --ids; leave it out")
    if path is not None:
        found += read_ids(path, options["id_column"])
    if not found:
        raise HierlearnError("name the rows to forget by --id, or in a file by --ids")
    return list(dict.fromkeys(found))


def read_ids(path: Path, column: str | None) -> list[str]:
    """Return the ids in a text file or a table; of a table with one column, that one."""
    from hierlearn.datasets import open_table
    from hierlearn.datasets.labels import row_ids
    from hierlearn.datasets.tables.readers import table_ending
    from hierlearn.files import read_text

    if path.suffix.lower() == ".txt" or table_ending(path) is None:
        lines = (line.strip() for line in read_text(path).splitlines())
        return [line for line in lines if line]
    table = open_table(path)
    if column is None:
        column = table.columns[0] if len(table.columns) == 1 else "id"
        if column not in table.columns:
            raise HierlearnError(
                f"{path} has the columns {', '.join(table.columns)}; say which has the ids with "
                f"--id-column"
            )
    table.check_columns([column])
    return row_ids(table.read([column]), column)
