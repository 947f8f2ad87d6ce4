"""``hierlearn forget``: rows removed from the memory of a model, by id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli import shared
from hierlearn.cli.generate import option, takes
from hierlearn.cli.memories import WRITING
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = [
    option("id", list[str], None, "Id of a row to forget. Repeatable.", metavar="ID"),
    option("ids", Path, None, "File of ids: text with one id per line, or a table."),
    option("id_column", str, None, "Column of a table in --ids; id if none."),
]


@takes(*OPTIONS, *WRITING, shared.TRUST, shared.DEVICE)
def forget(model: shared.ModelFolder, **options: Any) -> None:
    """Remove rows from the memory of a model; explain shows their ids.

    Weights and vocabulary stay as training learned them. Nothing is trained.
    """
    from hierlearn.cli.memories import check_destination, load_with_memory, write_changed
    from hierlearn.errors import plural
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.remember import forget as remove
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    wanted = wanted_ids(options)
    loaded = load_with_memory(model, options)
    gone = remove(loaded, wanted)
    folder = write_changed(loaded, model, options)
    check_gone(folder, wanted)
    console = Console()
    left = len(rows_of(loaded))
    print_plain(console, f"forgot {plural(gone, 'row')}; the memory has {left:,} now")
    them = "it" if gone == 1 else "them"
    print_plain(
        console,
        f"the memory in {folder} holds no embedding, label, id or text of {them}; weights and "
        f"vocabulary stay as training learned them",
    )
    if not options["in_place"]:
        print_plain(console, f"{model} still remembers {them}; delete it if nobody may")
    print_plain(console, f"wrote {folder}")


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
    from hierlearn.datasets import READERS, open_table
    from hierlearn.datasets.annotations import row_ids
    from hierlearn.files import read_text

    if path.suffix.lower() not in READERS:
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


def check_gone(folder: Path, ids: list[str]) -> None:
    """Read back what was written; raise where an id is still there."""
    from hierlearn.files.reading import LARGE, read_json
    from hierlearn.pipeline.memory_files import MEMORY_FILES

    path = folder / MEMORY_FILES[1]
    left = set(ids).intersection(map(str, read_json(path, LARGE)["ids"]))
    if left:
        raise HierlearnError(f"{path} still has {len(left)} of the ids; forget them again")
