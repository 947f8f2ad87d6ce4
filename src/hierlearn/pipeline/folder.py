"""The folder of a model: its files, whether they are intact, and how they are replaced.

A new model is written into a hidden folder first. Renaming that folder to ``NEXT`` is the moment
from which the new model counts: its files then take the place of the old ones, the configuration
last, and whoever finds the folder ``NEXT`` completes that. So at any moment the folder holds the
old model or the new one. A training that replaces a model keeps its log and its checkpoints in
``TRAINING`` until then.

config.json of a model folder: its schema, its checksum and the files that it names.

The last entry of the file is the SHA-256 of everything before it, so a changed bit is noticed; the
other files of the folder are listed with theirs. Only files that hierlearn writes may be listed.

Whether a network that a folder describes is the one whose weights it holds.

A description can ask for more memory than there is. So numbers are compared with the size of the
weights first, and the network is made without memory, on torch's meta device, to compare shapes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import torch

from hierlearn.backbones.backbone import check_numbers
from hierlearn.decoding.scaling import Scaling  # noqa: TC001 (read by the schema)
from hierlearn.errors import DataError, HierlearnError, arg, shown
from hierlearn.files.reading import SMALL, open_regular, parse_json, read_json, read_text
from hierlearn.files.structured import Extra, Range, check, read_log
from hierlearn.files.tensors import CheckpointError
from hierlearn.files.writing import (
    HIDDEN,
    STRAY,
    WAIT,
    BusyError,
    WriteError,
    atomic_write,
    check_output_folder,
    is_empty,
    locked,
    new_folder,
    remove,
    remove_strays,
    rename,
    sync_folder,
    uninterrupted,
)
from hierlearn.networks.build import NetworkSpec, build_network
from hierlearn.networks.heads import HEADS
from hierlearn.pipeline.memory_files import MANIFEST, OWN
from hierlearn.pipeline.seen_rows import ROWS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace

Read = TypeVar("Read")
TRIES = 100  # to read a model that others replace
FORMAT = "hierlearn.model"
VERSION = 3
FILES = ("model.safetensors", "hierarchy.json", "config.json", "README.md")
WORK = "blend"  # folder of what a run with effort "best" has trained so far
NEXT, TRAINING = f"{HIDDEN}next", f"{HIDDEN}training"
SWAP = "swap.json"  # in NEXT: what else belongs to the replacement
# By which the folder of a training is recognized, and all that a training leaves in it.
OURS = ("config.json", "checkpoints", "log.jsonl")
TEXTS = ("run.yaml", "log.jsonl", "skipped-labels.csv")  # of a training
FOLDERS = {  # of a training, with the names of the files in them
    "checkpoints": re.compile(r"step-\d+\.safetensors"),
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
            try:
                records: list[Any] = read_log(path)
            except (OSError, ValueError):
                return False
            if not records and path.stat().st_size:
                return False
            if not all(isinstance(one, dict) and {"epoch", "loss"} <= {*one} for one in records):
                return False
        else:
            return False
    return True


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
                    if not resume:  # a model that is there stays until the end
                        check_free(folder, force)
                        complete_swap(folder)
                        remove_strays(folder)
                        shutil.rmtree(folder / TRAINING, ignore_errors=True)
                        if is_model(folder):
                            (folder / TRAINING).mkdir()
                        else:
                            remove_training(folder)
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
            moved: list[str] = []
            if of_training:  # all but unfinished work
                place = folder / TRAINING
                moved = [name for name in TEXTS if (place / name).is_file()]
                for name, own in FOLDERS.items():
                    found = sorted(one.name for one in (place / name).glob("*"))
                    moved += [
                        f"{name}/{one}" for one in found if name != WORK and own.fullmatch(one)
                    ]
            with atomic_write(hidden / SWAP) as file:
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
    try:
        rest = json.loads((hidden / SWAP).read_text(encoding="utf-8"))
        keep_log = bool(rest["keep_log"])
        moved = [  # the log and the checkpoints of the new model
            name
            for name in rest["of_training"]
            if name in TEXTS or (name.count("/") == 1 and name.partition("/")[0] in FOLDERS)
        ]
    except FileNotFoundError:  # all files are in place
        shutil.rmtree(hidden, ignore_errors=True)
        return
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError(f"{hidden / SWAP} is damaged; remove {hidden}") from None
    written = [path.name for path in hidden.iterdir() if is_own(path.name)]
    for name in sorted(written, key=lambda one: one == FILES[2]):
        if name == FILES[2]:
            move_training(folder, moved, keep_log=keep_log)
        with suppress(FileNotFoundError):
            rename(hidden / name, folder / name)
    config = json.loads((folder / FILES[2]).read_text(encoding="utf-8"))
    for path in list(folder.iterdir()):
        if is_own(path.name) and path.name not in (*FILES, *config["files"]):
            remove(path)  # of what the model held before; no configuration lists it now
    remove(hidden / SWAP)
    shutil.rmtree(hidden, ignore_errors=True)
    sync_folder(folder)


def move_training(folder: Path, moved: list[str], *, keep_log: bool) -> None:
    """Let the log and the checkpoints of the new model replace those of the old one."""
    hidden = folder / TRAINING
    if not keep_log:
        remove_training(folder)
        shutil.rmtree(hidden, ignore_errors=True)
    if not moved or not hidden.is_dir():
        return
    for name in moved:
        (folder / name).parent.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            rename(hidden / name, folder / name)
    for name, own in FOLDERS.items():
        for path in list((folder / name).glob("*")):
            if own.fullmatch(path.name) and f"{name}/{path.name}" not in moved:
                remove(path)  # of the old training
    shutil.rmtree(hidden, ignore_errors=True)


def is_own(name: str) -> bool:
    """Whether a file name is one of those that a model has."""
    return name in (*FILES, ROWS_FILE) or bool(OWN.fullmatch(name))


# ---------------------------------------- config file

KNOWN = (*FILES[:2], ROWS_FILE)
DIGEST = r"[0-9a-f]{64}"
CHECKSUM = re.compile(rf',\n  "sha256": "({DIGEST})"\n}}\n\Z')
BLOCK = 1 << 20  # bytes read at a time
Size = Annotated[int, Range(0, 2**40)]


@dataclass
class DecoderSpec:
    """How decisions are made."""

    name: str
    options: dict[str, Any]


@dataclass
class Roles(Extra):
    """The columns of the table that was trained on."""

    text: str | None = None
    id_column: str | None = None
    label: str | None = None
    label_sep: str | None = None
    levels: str | list[str] | None = None


@dataclass
class Recipe(Extra):
    """The recipe that was trained."""

    name: str | None = None
    because: str | None = None
    loss: str | None = None
    loss_options: dict[str, Any] = field(default_factory=dict)
    joint: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModelConfig(Extra):
    """config.json; ``train`` may add entries of the user."""

    format: Literal["hierlearn.model"]
    version: int
    fingerprint: Annotated[str, Range(64, 64)]
    network: NetworkSpec
    link: str
    decoder: DecoderSpec
    terminals: list[Size]
    preprocessing: dict[str, Any] | None
    files: dict[str, Annotated[str, Range(64, 64)]]
    answer: str = ""
    scaling: Scaling | None = None
    name: str | None = None
    license: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    feature_names: list[str] = field(default_factory=list)
    recipe: Recipe = field(default_factory=Recipe)
    plan: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: Roles = field(default_factory=Roles)
    estimator: dict[str, Any] = field(default_factory=dict)
    next_id: Size = 0


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    held = {key: value for key, value in config.items() if key != "sha256"}
    body = json.dumps(held, indent=2, ensure_ascii=False).removesuffix("\n}")
    with atomic_write(path) as file:
        file.write(f'{body},\n  "sha256": "{text_digest(body)}"\n}}\n')


def check_plain(values: Mapping[str, Any]) -> None:
    """Raise on values that JSON cannot hold, such as a function among the options."""
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise HierlearnError(
                f"{name} cannot be written as JSON ({error}), so the model cannot be saved; use "
                f"plain values"
            ) from None


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def parse_config(path: Path) -> dict[str, Any]:
    """Return the content of a config.json that is intact and fits its schema."""
    try:
        text = read_text(path, SMALL)
    except DataError as error:
        raise CheckpointError(error.message) from None
    try:
        config: dict[str, Any] = parse_json(text)
    except DataError:
        raise CheckpointError(f"{path} is damaged: it is not valid JSON") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by hierlearn")
    if config.get("version") != VERSION:
        raise CheckpointError(
            f"{path} is of version {shown(config.get('version'))}, this hierlearn reads version "
            f"{VERSION}; use the hierlearn that wrote it"
        )
    found = CHECKSUM.search(text)
    if found is None or text_digest(text[: found.start()]) != found[1]:
        raise CheckpointError(
            f"{path} is damaged or was edited: its checksum does not match; copy the whole folder "
            f"again"
        )
    del config["sha256"]
    check(path, config, ModelConfig, CheckpointError)
    return config


def read_config(folder: Path, *, skip_memory: bool = False) -> dict[str, Any]:
    """Return the configuration of a model folder whose files are complete and intact.

    Args:
        folder: of the model.
        skip_memory: do not read what grows with the memory: shards, indexes and digests of rows.
    """
    folder = Path(folder)
    check_folder(folder)
    complete_swap(folder)
    for name in FILES[:3]:
        if not (folder / name).exists():
            raise CheckpointError(f"{folder} has no {name}: it is no model, or an unfinished one")
    config = parse_config(folder / FILES[2])
    listed = config["files"]
    for name in listed:
        if name not in KNOWN and not OWN.fullmatch(name):
            raise CheckpointError(
                f"{folder / FILES[2]}: files names {shown(name)}, which is no file of a model"
            )
    for name in FILES[:2]:
        if name not in listed:
            raise CheckpointError(f"{folder / FILES[2]}: files does not name {name}")
    for name, expected in listed.items():
        if not (folder / name).exists():
            raise CheckpointError(f"{folder} has no {name}; copy the whole folder again")
        if skip_memory and (name == ROWS_FILE or (OWN.fullmatch(name) and name != MANIFEST)):
            continue
        if digest(folder / name) != expected:
            raise CheckpointError(
                f"{folder / name} is not the file that was saved: it is truncated or of another "
                f"model; copy the whole folder again"
            )
    return config


def check_folder(folder: Path) -> None:
    """Raise unless a path is that of a folder."""
    try:
        is_folder = folder.is_dir()
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        is_folder = False
    if not is_folder:
        name = str(folder)
        name = name if name.isprintable() else ascii(name)
        raise CheckpointError(f"{name} is no folder with a model in it")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    sums = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while block := file.read(BLOCK):
                sums.update(block)
    except DataError as error:
        raise CheckpointError(error.message) from None
    return sums.hexdigest()


# ---------------------------------------- network size

LOOPS = ("depth", "layers", "members")  # options that count parts with tensors of their own
FREE = 1 << 16  # numbers up to this one need no weights
MOST_PARTS = 100  # of a blend


def check_network(
    folder: Path, spec: NetworkSpec, label_space: LabelSpace, weights: Mapping[str, Tensor]
) -> None:
    """Raise where a network is not the one whose weights are stored, before memory is taken.

    Args:
        folder: of the model, for errors.
        spec: how to build the network.
        label_space: what can be predicted.
        weights: the tensors that are stored.
    """
    stored = {name: tuple(value.shape) for name, value in weights.items()}
    total = sum(map(math.prod, stored.values()))
    specs = [*every_spec(spec)]
    if len(spec.parts) > MOST_PARTS:
        raise CheckpointError(
            f"{folder}: a blend has at most {MOST_PARTS} parts, not {len(spec.parts):,}"
        )
    layers = 0
    for name, value in sizes_of(specs):
        most = max(total, FREE)
        if name.rpartition(".")[2] in LOOPS:
            layers += value
            value, most = layers, len(stored) + 1  # those of all parts of a blend together
        if value > most:
            raise CheckpointError(
                f"{folder}: the network {spec.name!r} with {name} {value:,} is not the one that "
                f"was saved, which has {total:,} weights in {len(stored):,} tensors"
            )
    try:
        for one in specs:
            if "description" in one.options:
                check_numbers(one.options["description"], stored)
            for head in one.heads.values():  # no saved head reads a file, for example
                check_options: Any = getattr(HEADS.get(head.kind), "check_saved", None)
                if check_options is not None:
                    check_options(head.options)
        with torch.device("meta"):
            network = build_network(spec, label_space)
        built = network.state_dict()
    except HierlearnError as error:
        raise CheckpointError(f"{folder}: {error.message}") from None
    except Exception as error:
        if spec.foreign:  # which may not be made for the meta device
            return
        reason = " ".join(str(error).split())[:160]
        raise CheckpointError(
            f"{folder}: the network {spec.name!r} cannot be built ({reason})"
        ) from error
    made = {name: tuple(value.shape) for name, value in built.items()}
    for prefix, module in network.named_modules():
        for own in getattr(module, "sized_by_data", ()):  # which a module checks as it is loaded
            name = f"{prefix}.{own}" if prefix else own
            made |= {name: stored[name]} if name in stored else {}
    for name in {**made, **stored}:
        if made.get(name) != stored.get(name):
            raise CheckpointError(
                f"{folder}: the network {spec.name!r} is not the one that was saved ({name} is "
                f"{stored.get(name, 'absent')}, the network has {made.get(name, 'none')})"
            )


def every_spec(spec: NetworkSpec) -> Iterator[NetworkSpec]:
    """Yield a network and the parts of a blend."""
    yield spec
    for part in spec.parts:
        yield from every_spec(part.network)


def sizes_of(specs: list[NetworkSpec]) -> Iterator[tuple[str, int]]:
    """Yield the integers by which networks are sized, also those in lists, with their names."""
    for spec in specs:
        if spec.members is not None:
            yield "ensemble_size", spec.members
        options = dict(spec.options)
        for name, head in spec.heads.items():
            options |= {f"{name}.{key}": value for key, value in head.options.items()}
        for name, value in options.items():
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, (int, float)) and not isinstance(one, bool) and one == one:
                    yield name, int(min(max(one, -(2**63)), 2**63))
