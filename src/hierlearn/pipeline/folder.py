"""The folder of a model: its files, whether they are intact, and how they are replaced.

A new model is written into a hidden folder first. Renaming that folder to ``NEXT`` is the moment
from which the new model counts: its files then take the place of the old ones, the configuration
last, and whoever finds the folder ``NEXT`` completes that. So at any moment the folder holds the
old model or the new one. A training that replaces a model keeps its log and its checkpoints in
``TRAINING`` until then.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from hierlearn.errors import HierlearnError, arg
from hierlearn.files.locks import WAIT, BusyError, locked
from hierlearn.files.reading import read_json
from hierlearn.files.records import read_log
from hierlearn.files.tensors import CheckpointError
from hierlearn.files.writing import (
    HIDDEN,
    STRAY,
    WriteError,
    atomic_write,
    check_output_folder,
    is_empty,
    new_folder,
    remove,
    remove_strays,
    rename,
    sync_folder,
    uninterrupted,
)
from hierlearn.pipeline.memory_files import OLD, OWN
from hierlearn.pipeline.seen_rows import ROWS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Read = TypeVar("Read")

TRIES = 100  # to read a model that others replace
FORMAT = "hierlearn.model"
VERSION = 2
FILES = ("model.safetensors", "hierarchy.json", "config.json", "README.md")
WORK = "blend"  # folder of what a run with effort "best" has trained so far
NEXT, TRAINING = f"{HIDDEN}next", f"{HIDDEN}training"
SWAP = "swap.json"  # in NEXT: what else belongs to the replacement
# By which the folder of a training is recognized, and all that a training leaves in it.
OURS = ("config.json", "checkpoints", "log.jsonl")
TEXTS = ("run.yaml", "log.jsonl", "skipped-labels.csv")  # of a training
FOLDERS = {  # of a training, with the names of the files in them
    "checkpoints": re.compile(r"step-\d+\.safetensors"),
    "tensorboard": re.compile(r"events\.out\.tfevents\..+"),
    WORK: re.compile(r"run\.json|.+\.safetensors"),
}


def check_free(folder: Path, force: bool) -> None:
    """Raise on a folder that is not empty, unless it is a model to be replaced.

    Args:
        folder: where a model should go.
        force: whether a model there may be replaced.
    """
    check_output_folder(folder, force=False)
    if is_empty(folder):
        return
    if not force:
        raise HierlearnError(
            f"{folder} exists; pass {arg('force', True)} to replace the model in it, or "
            f"{arg('resume', True)} to resume"
        )
    if not is_model(folder) and not is_training(folder):
        raise HierlearnError(f"{folder} holds no model, so it is not replaced; name another")


def is_model(folder: Path) -> bool:
    """Whether the configuration in a folder says that a model of hierlearn is there."""
    try:
        config = read_json(folder / FILES[2])
    except HierlearnError:
        return (folder / NEXT / SWAP).is_file()  # of a first model, whose files are being renamed
    return isinstance(config, dict) and config.get("format") == FORMAT


def is_training(folder: Path) -> bool:
    """Whether a folder holds a training that was not finished, and nothing else."""
    for path in folder.iterdir():
        if STRAY.fullmatch(path.name) or path.name in (TRAINING, NEXT):
            continue
        if path.name in FOLDERS and path.is_dir() and not path.is_symlink():
            own = FOLDERS[path.name]
            held = [one.name for one in path.iterdir()]
            if not all(own.fullmatch(one) or STRAY.fullmatch(one) for one in held):
                return False
        elif path.name == "run.yaml" and path.is_file():
            if not path.read_bytes().startswith(b"# hierlearn"):
                return False
        elif path.name == TEXTS[2] and path.is_file() and (folder / "run.yaml").is_file():
            continue
        elif path.name == "log.jsonl" and path.is_file():
            if not is_log(path):
                return False
        else:
            return False
    return True


def is_log(path: Path) -> bool:
    """Whether a file is empty, or the log of a training."""
    try:
        records: list[Any] = read_log(path)
    except (OSError, ValueError):
        return False
    ours = all(isinstance(one, dict) and "epoch" in one and "loss" in one for one in records)
    return ours and bool(records or not path.stat().st_size)


# ---------------------------------------- training in a folder


@contextmanager
def held_for_training(folder: Path, *, force: bool, resume: bool) -> Iterator[Path]:
    """Yield where a training writes its log and checkpoints; no other one trains there meanwhile.

    Args:
        folder: of the model.
        force: whether a model there may be replaced.
        resume: whether what is there goes on; otherwise it begins from the start.

    Raises:
        BusyError: if another process trains into the folder.
    """
    is_new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            try:
                # A model may be changed for a moment; what is no model yet is held by a training.
                with locked(folder, WAIT if is_model(folder) else 0.0):
                    if training_folder(folder) != folder:
                        with locked(training_folder(folder), 0.0):
                            pass
                    if not resume:
                        begin_training(folder, force)
                    place = training_folder(folder)
                    stack.enter_context(locked(place, 0.0))
            except BusyError:
                raise BusyError(
                    f"another process trains into {folder}; wait until it has ended, or name "
                    f"another folder"
                ) from None
            yield place
    finally:
        if is_new:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def begin_training(folder: Path, force: bool) -> None:
    """Prepare a folder for a training from the start; a model that is there stays until the end.

    Args:
        folder: of the model.
        force: whether a model there may be replaced.
    """
    check_free(folder, force)
    if not folder.is_dir():
        return
    complete_swap(folder)
    remove_strays(folder)
    shutil.rmtree(folder / TRAINING, ignore_errors=True)
    if is_model(folder):
        (folder / TRAINING).mkdir()
    else:
        remove_training(folder)


def training_folder(folder: Path) -> Path:
    """Return where a training writes its log and checkpoints: in the folder, or hidden in it."""
    hidden = folder / TRAINING
    return hidden if hidden.is_dir() else folder


def can_resume(folder: Path) -> bool:
    """Whether a training in a folder has left what another one can go on from."""
    place = training_folder(folder)
    return any(
        path.suffix == ".safetensors" and not path.name.startswith(HIDDEN)
        for name in ("checkpoints", WORK)
        for path in (place / name).glob("*")
    )


def is_finished(folder: Path) -> bool:
    """Whether the model in a folder is complete, and no training is about to replace it."""
    complete_swap(folder)
    return (folder / FILES[2]).is_file() and not (folder / TRAINING).is_dir()


def remove_training(folder: Path) -> None:
    """Remove what a training leaves in a folder: only files that it writes."""
    for name in TEXTS:
        remove(folder / name)
    for name in FOLDERS:
        remove_folder(folder / name)


def remove_folder(folder: Path) -> None:
    """Remove the files of a training in one of its folders, and the folder if it is empty then."""
    if not folder.is_dir() or folder.is_symlink():
        return
    remove_strays(folder)
    for path in list(folder.iterdir()):
        if FOLDERS[folder.name].fullmatch(path.name):
            remove(path)
    with suppress(OSError):
        folder.rmdir()


# ---------------------------------------- replacing a model


@contextmanager
def replaced_model(
    folder: Path, *, of_training: bool = False, keep_log: bool = True
) -> Iterator[Path]:
    """Yield a hidden folder to write a model into; its files replace those of ``folder``.

    Args:
        folder: of the model.
        of_training: the log and the checkpoints in ``TRAINING`` belong to the new model.
        keep_log: keep the log and the checkpoints that are in the folder.

    Raises:
        WriteError: if a file cannot be written; a model in the folder is as it was.
    """
    is_new = not (folder / FILES[2]).is_file()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder), new_folder(folder) as hidden:
            complete_swap(folder)
            yield hidden
            with atomic_write(hidden / SWAP) as file:
                moved = training_files(folder / TRAINING) if of_training else []
                file.write(json.dumps({"of_training": moved, "keep_log": keep_log}))
            rename(hidden, folder / NEXT)
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error)
        old = "" if is_new else "the model that was there is intact; "
        again = f"resume with {arg('resume', True)}" if of_training else "try again"
        raise WriteError(
            f"cannot write the model into {folder}: {reason}; {old}free disk space and {again}"
        ) from error
    complete_swap(folder)


def complete_swap(folder: Path) -> None:
    """Complete a replacement that was interrupted; nothing where there is none."""
    hidden = folder / NEXT
    if not hidden.is_dir() or hidden.is_symlink():
        return
    try:
        with locked(folder), uninterrupted():
            if hidden.is_dir():  # nobody else has completed it meanwhile
                swap(folder, hidden)
    except OSError as error:
        raise WriteError(
            f"{folder}: the replacement of its model was interrupted, and cannot be completed "
            f"({error.strerror or error}); run the command as a user who may write there"
        ) from error


def read_model(folder: Path, read: Callable[[], Read]) -> Read:
    """Return what a function reads from a model folder, again where that changes meanwhile.

    Args:
        folder: of the model.
        read: what to call; it raises CheckpointError where files do not fit each other.
    """
    for _ in range(TRIES):
        before = version_of(folder)
        try:
            return read()
        except CheckpointError:
            if before is None:
                raise
            complete_swap(folder)
            if version_of(folder) == before:
                raise
    return read()


def version_of(folder: Path) -> tuple[int, int] | None:
    """Return what tells one configuration of a folder from the next; None where there is none."""
    try:
        found = (folder / FILES[2]).stat()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return found.st_ino, found.st_mtime_ns


def swap(folder: Path, hidden: Path) -> None:
    """Move the files of a new model into the folder, the configuration last; then clean up.

    Every step may have been done before, by a process that was killed or by one that runs now.
    """
    rest = read_swap(hidden / SWAP)
    if rest is None:  # all files are in place
        shutil.rmtree(hidden, ignore_errors=True)
        return
    written = [path.name for path in hidden.iterdir() if is_own(path.name)]
    for name in sorted(written, key=lambda one: one == FILES[2]):
        if name == FILES[2]:
            move_training(folder, rest)
        with suppress(FileNotFoundError):
            rename(hidden / name, folder / name)
    config = json.loads((folder / FILES[2]).read_text(encoding="utf-8"))
    for path in list(folder.iterdir()):
        if is_own(path.name) and path.name not in (*FILES, *config["files"]):
            remove(path)  # of what the model held before; no configuration lists it now
    remove(hidden / SWAP)
    shutil.rmtree(hidden, ignore_errors=True)
    sync_folder(folder)


def move_training(folder: Path, rest: dict[str, Any]) -> None:
    """Let the log and the checkpoints of the new model replace those of the old one."""
    hidden = folder / TRAINING
    if not rest["keep_log"]:
        remove_training(folder)
        shutil.rmtree(hidden, ignore_errors=True)
    if not rest["of_training"] or not hidden.is_dir():
        return
    for name in rest["of_training"]:
        (folder / name).parent.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            rename(hidden / name, folder / name)
    for name, own in FOLDERS.items():
        for path in list((folder / name).glob("*")):
            if own.fullmatch(path.name) and f"{name}/{path.name}" not in rest["of_training"]:
                remove(path)  # of the old training
    shutil.rmtree(hidden, ignore_errors=True)


def training_files(folder: Path) -> list[str]:
    """Return the files of a training in its hidden folder, without those of unfinished work."""
    names = [name for name in TEXTS if (folder / name).is_file()]
    for name, own in FOLDERS.items():
        if name != WORK:
            paths = sorted((folder / name).glob("*"))
            names += [f"{name}/{path.name}" for path in paths if own.fullmatch(path.name)]
    return names


def read_swap(path: Path) -> dict[str, Any] | None:
    """Return what else belongs to a replacement; None where it is complete."""
    try:
        rest = json.loads(path.read_text(encoding="utf-8"))
        own = {f"{name}/" for name in FOLDERS}
        names = [
            name
            for name in rest["of_training"]
            if name in TEXTS or (name.count("/") == 1 and name[: name.index("/") + 1] in own)
        ]
        return {"of_training": names, "keep_log": bool(rest["keep_log"])}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError(f"{path} is damaged; remove {path.parent}") from None


def is_own(name: str) -> bool:
    """Whether a file name is one of those that a model has."""
    return name in (*FILES, ROWS_FILE, OLD) or bool(OWN.fullmatch(name))
