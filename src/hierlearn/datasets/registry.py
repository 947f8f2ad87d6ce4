"""The named datasets: one registry for the library, the command line and the docs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol

from hierlearn.errors import DataError
from hierlearn.registry import Registry, parse_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hierlearn.datasets.dataset import Dataset

DEFAULT = "icd10cm"
KINDS = {int: "an integer", float: "a finite number", bool: "true or false", str: "a text"}


class RemoteFile(Protocol):
    """A file that can be downloaded: its bytes, and its SHA-256 where that is known."""

    @property
    def size(self) -> int | None:
        """The bytes of the file."""

    @property
    def sha256(self) -> str | None:
        """What the bytes must hash to."""


@dataclass(frozen=True)
class DatasetEntry:
    """A named dataset: call it to load it.

    Attributes:
        name: its key in ``DATASETS``.
        description: what it is, in one line.
        origin: "package", "files", "archive" (of a package or a repository) or "generated".
        load: the function that loads it.
        license: the terms of the data, in two words.
        attribution: whom to name where the data are used, and under which terms, in one sentence.
        files: what it is read from, where that is no package and not generated.
        locate: whether the rows are in ``data_dir``, HIERLEARN_DATA, the cache or a package; None
            where they are generated.
        package: what must be installed for it, as pip calls it.
    """

    name: str
    description: str
    origin: str
    load: Callable[..., Dataset]
    license: str = ""
    attribution: str = ""
    files: tuple[RemoteFile, ...] = ()
    locate: Callable[[Path | str | None], object] | None = None
    package: str = ""

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options of ``load`` with their defaults; a number, boolean or text fixes the type."""
        return {name: one.default for name, one in signature(self.load).parameters.items()}

    @property
    def size(self) -> int | None:
        """The bytes of all files together, None where one is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def has_checksum(self) -> bool:
        """Whether the SHA-256 of every file is known, so that a download can be verified."""
        return all(file.sha256 is not None for file in self.files)

    def is_available(self, data_dir: Path | str | None = None) -> bool:
        """Whether the dataset can be loaded without a download."""
        return self.locate is None or bool(self.locate(data_dir))

    def __call__(self, **options: Any) -> Dataset:
        """Load the dataset; refuse unknown options, and values of the wrong type."""
        return self.load(**{name: self._checked(name, value) for name, value in options.items()})

    def parse(self, name: str, text: str) -> Any:
        """Return the value that a text gives to an option, checked against its type."""
        is_text = isinstance(self.options.get(name), str)
        return self._checked(name, text if is_text else parse_value(text), text)

    def _checked(self, name: str, value: Any, given: Any = None) -> Any:
        if name not in self.options:
            raise DataError(
                f"dataset {self.name!r} has no option {name!r}; it takes {', '.join(self.options)}"
            )
        kind: Any = type(self.options[name])  # a default such as None says nothing about the type
        wide = {int: Integral, float: Real}.get(kind, kind)
        fits = isinstance(value, wide) and (kind is bool or type(value) is not bool)
        if kind in (int, float):
            fits = fits and math.isfinite(value)
        if kind in KINDS and (not fits or given == ""):
            raise DataError(
                f"option {name} of dataset {self.name!r} must be {KINDS[kind]}, not "
                f"{(value if given is None else given)!r}"
            )
        return kind(value) if kind in KINDS and given is not None else value


def as_dataset(name: str, value: Any) -> DatasetEntry | None:
    """Return an imported dataset, or a function that returns a Dataset, as an entry."""
    if isinstance(value, DatasetEntry):
        return value
    if not callable(value):
        return None
    first = (value.__doc__ or "").strip().partition("\n")[0]
    return DatasetEntry(name, first, "generated", value)


DATASETS = Registry(
    "dataset",
    {},  # all come from entry points: the lab's corpora, and other packages
    group="hierlearn.datasets",
    expected="a function that returns a Dataset",
    read=as_dataset,
    error=DataError,
)


def load_dataset(name: str = DEFAULT, **options: Any) -> Dataset:
    """Load a named dataset; ``hierlearn data list`` shows them.

    Args:
        name: a key of ``DATASETS``.
        options: passed on, such as ``size="small"`` for icd10cm or ``data_dir=`` for the
            benchmark files.
    """
    return DATASETS[name](**options)
