"""config.json of a model folder: its schema, its checksum and the files that it names.

The last entry of the file is the SHA-256 of everything before it, so a changed bit is noticed; the
other files of the folder are listed with theirs. Only files that hierlearn writes may be listed.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hierlearn.errors import DataError, HierlearnError, shown
from hierlearn.files.reading import SMALL, open_regular, parse_json, read_text
from hierlearn.files.schema import Extra, Range, check
from hierlearn.files.tensors import CheckpointError
from hierlearn.files.writing import atomic_write
from hierlearn.pipeline.folder import FILES, FORMAT, VERSION, complete_swap
from hierlearn.pipeline.memory_files import MANIFEST, OLD, OWN
from hierlearn.pipeline.seen_rows import ROWS_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN = (*FILES[:2], ROWS_FILE)
DIGEST = r"[0-9a-f]{64}"
CHECKSUM = re.compile(rf',\n  "sha256": "({DIGEST})"\n}}\n\Z')
BLOCK = 1 << 20  # bytes read at a time
Name = Annotated[str, Range(1, 10_000)]
Size = Annotated[int, Range(0, 2**40)]


@dataclass
class Inputs:
    """What a network reads."""

    kind: Name
    shape: list[Size] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Head:
    """A head of a network."""

    kind: Name
    options: dict[str, Any]


@dataclass
class Network:
    """How to build a network."""

    name: Name
    inputs: Inputs
    options: dict[str, Any]
    members: Annotated[int, Range(1, 1_000)] | None
    heads: dict[str, Head] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)


@dataclass
class Part:
    """A network of a blend."""

    name: Name
    network: Network
    link: Name
    answers: dict[str, float]
    begin: Size = 0


@dataclass
class Decoder:
    """How decisions are made."""

    name: Name
    options: dict[str, Any]


@dataclass
class Scaled:
    """How probabilities are scaled."""

    kind: Literal["steps", "mass", "log-odds"]
    slopes: list[float]
    shares: list[float]
    empty: bool = False


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
    network: Network
    link: Name
    decoder: Decoder
    terminals: list[Size]
    preprocessing: dict[str, Any] | None
    files: dict[str, Annotated[str, Range(64, 64)]]
    answer: str = ""
    scaling: Scaled | None = None
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
    """Write a configuration with its checksum."""
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
        raise CheckpointError(str(error)) from None
    try:
        config: dict[str, Any] = parse_json(text)
    except DataError:
        raise CheckpointError(f"{path} is damaged: it is no JSON") from None
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
    if OLD in listed:
        raise CheckpointError(
            f"{folder} holds its memory in {OLD}, as older versions of hierlearn wrote it; train "
            f"the model again, or use the hierlearn that wrote it"
        )
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
        raise CheckpointError(f"{shown_path(folder)} is no folder with a model in it")


def shown_path(path: Path) -> str:
    """Return a path as a message shows it."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    sums = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while block := file.read(BLOCK):
                sums.update(block)
    except DataError as error:
        raise CheckpointError(str(error)) from None
    return sums.hexdigest()
