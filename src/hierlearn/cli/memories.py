"""What the commands on the memory of a model share: reading the model, and where to write it."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import flag
from hierlearn.cli.outputs import FOLDER, output
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.memory_folder import MemoryFolder

WRITING = [
    output("out", "Folder of the changed model.", "--out", "-o", kind=FOLDER),
    flag("in_place", "Replace the files of the model itself."),
    flag("force", "Replace a model in --out."),
]


def load_with_memory(folder: Path, options: Mapping[str, Any]) -> Pipeline:
    """Read a model folder; raise on a model without a memory."""
    from hierlearn.cli.interrupts import advise
    from hierlearn.pipeline import Pipeline
    from hierlearn.training.processes import find_device

    advise(f"{folder} is unchanged; run the same command again")
    device = find_device(options["device"])
    loaded = Pipeline.load(folder, device=device, trust=options["trust"])
    check_memory(loaded, folder)
    return loaded


def locked_in_place(folder: Path, options: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Let no other process change a model that is read and then replaced in place."""
    from hierlearn.files.locks import locked

    return locked(folder) if options["in_place"] and folder.is_dir() else nullcontext()


@contextmanager
def change_in_place(folder: Path, options: Mapping[str, Any]) -> Iterator[MemoryFolder]:
    """Open a model folder whose memory is changed without reading it."""
    from hierlearn.cli.interrupts import advise
    from hierlearn.pipeline.memory_folder import MemoryFolder
    from hierlearn.training.processes import find_device

    advise(f"{folder} is unchanged; run the same command again")
    device = find_device(options["device"])
    with MemoryFolder.open(folder, device=device, trust=options["trust"]) as memory:
        yield memory


def check_memory(model: Pipeline, folder: Path) -> None:
    """Raise on a model without a memory, and say how to train one that has it."""
    from hierlearn.networks.memories import memory_heads

    if not memory_heads(model.network):
        raise HierlearnError(
            f"{folder} has no memory: its answers come from weights, not from rows; train it again "
            f"with what is new, or train a model that remembers rows and classes without training, "
            f"with --recipe neighbors, or --head neighbors"
        )


def evidence_note(model: Pipeline) -> str:
    """Say whose evidence is shown where a memory answers together with other heads.

    A model whose answers come from another kind of head alone raises.
    """
    from hierlearn.networks.ensemble import head_names
    from hierlearn.pipeline.explain import shares_of

    shares = shares_of(model)
    if model.network_spec is not None and model.network_spec.parts:
        total = sum(shares.values())
        if total > 1 - 1e-9:
            return ""
        return (
            f"the answers are a blend: {total:.0%} of each comes from remembered rows, whose "
            f"weights sum to that"
        )
    names, (shown, *_) = head_names(model.network), shares
    if len(names) < 2 or model.answer == shown:
        return ""
    return (
        f"the answers are the {model.answer} of the heads {', '.join(names)}; the rows are the "
        f"evidence of the memory {shown} alone"
    )


def check_destination(folder: Path, options: Mapping[str, Any]) -> None:
    """Raise where the changed model cannot be written, before any work is done.

    Args:
        folder: of the model.
        options: those of ``WRITING``.
    """
    from hierlearn.files.outputs import check_writable
    from hierlearn.pipeline.folder import FILES, check_free

    out = options["out"]
    if out is not None and options["in_place"]:
        raise HierlearnError("--out and --in-place are given; leave one of them out")
    if options["in_place"]:
        if options["force"]:
            raise HierlearnError("--force goes with --out; leave it out")
        check_writable(folder / FILES[2])
    elif out is not None:
        if out.exists() and folder.exists() and out.samefile(folder):
            raise HierlearnError(f"{out} is the model itself; give --in-place to replace it")
        try:
            check_free(out, options["force"])
        except HierlearnError as error:
            if options["force"] or not out.is_dir():
                raise
            raise HierlearnError(
                f"{out} exists; give --force to replace the model in it, or name another folder"
            ) from error
        check_writable(out / FILES[2])
    else:
        raise HierlearnError(
            "say where the changed model goes: --out FOLDER for a new one, or --in-place"
        )


def write_changed(model: Pipeline, folder: Path, options: Mapping[str, Any]) -> Path:
    """Write a changed model where the options say, and return its folder.

    In place all files are written beside the old ones first; these are replaced afterwards.
    """
    from hierlearn.pipeline.train import save_into

    if options["in_place"]:
        save_into(model, folder)
        return folder
    out: Path = options["out"]
    model.save(out, force=options["force"])
    return out


def read_columns(
    path: Path, names: Sequence[str], example: str
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line and the cells of some columns of a CSV or TSV file.

    Upper and lower case of the header mean the same.

    Args:
        path: the file.
        names: the columns, which it must have.
        example: the header and a line of such a file, for the error.
    """
    from hierlearn.errors import DataError, quoted
    from hierlearn.files import read_rows

    header, rows = read_rows(path)
    lower = [name.lower() for name in header]
    missing = [name for name in names if lower.count(name) != 1]
    if missing:
        raise DataError(
            f"{path} needs the columns {' and '.join(names)}, such as {example!r}; its first line "
            f"has {quoted(header)}"
        )
    places = [lower.index(name) for name in names]
    for line, cells in rows:
        yield line, tuple(cells[place] for place in places)
