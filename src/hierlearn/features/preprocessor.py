"""Preprocessor: what turns the inputs of a dataset into the numbers a network reads.

``fit`` sees the training rows; ``transform`` applies what it learned to any rows. ``state`` returns
that as JSON and arrays, which a model folder stores without pickle, and ``from_state`` restores a
preprocessor that transforms bit for bit as the original does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from hierlearn.errors import DataError, HierlearnError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import nn
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Dataset, Kind

Inputs = TypeVar("Inputs", contravariant=True)
Outputs = TypeVar("Outputs", covariant=True)
Learned = TypeVar("Learned")
Produced = Literal["numbers", "sparse", "tokens", "images"]


class Preprocessor(ABC, Generic[Inputs, Outputs]):
    """A preprocessing step; register a class in ``FEATURES`` to use it by name.

    Attributes:
        name: the key of the class in ``FEATURES``; ``state`` stores it.
        reads: the kind of inputs it takes, as ``Dataset.kind`` names them.
        by_default: whether it may be chosen for inputs that it accepts where no step is named.
        produces: what ``transform`` returns: "numbers", a dense array; "sparse", SciPy CSR rows;
            "tokens", (N, T) token ids; or "images", (N, C, H, W) bytes.
    """

    name: ClassVar[str]
    reads: ClassVar[Kind]
    by_default: ClassVar[bool] = True
    produces: ClassVar[Produced] = "numbers"

    @classmethod
    def accepts(cls, dataset: Dataset) -> bool:
        """Whether it can preprocess a dataset, by default judged by the kind of its inputs."""
        return dataset.kind == cls.reads

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the arguments it is made with."""
        return tuple(signature(cls).parameters)

    @classmethod
    def produces_for(cls, dataset: Dataset, **options: Any) -> Produced:
        """Return what ``transform`` will return for a dataset; ``produces`` unless that depends.

        Args:
            dataset: the training rows.
            options: the arguments that the step will be made with; others are left alone.
        """
        del dataset, options
        return cls.produces

    @property
    @abstractmethod
    def columns(self) -> int:
        """The number of columns that ``transform`` returns."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, as an ``InputSpec`` has it; (columns,) unless they are images."""
        return (self.columns,)

    def to(self, device: torch.device) -> Self:
        """Compute on a device, where the step computes with torch."""
        del device
        return self

    @property
    def input_columns(self) -> int | None:
        """The number of columns that ``transform`` reads; None for texts, or where any will do."""
        return None

    @abstractmethod
    def fit(self, inputs: Inputs) -> Self:
        """Learn from the training rows; whatever was learned before is forgotten."""

    def fit_parts(self, parts: Callable[[], Iterable[Any]]) -> Self:
        """Learn from training rows that come in parts, as from a file.

        By default the parts are joined in memory; override this to learn from larger data.

        Args:
            parts: returns the rows, one part after another; it may be called several times.
        """
        found: Any = list(parts())
        if self.reads == "texts":
            return self.fit([text for part in found for text in part])  # type: ignore[arg-type]
        return self.fit(np.concatenate(found))  # type: ignore[arg-type]

    @abstractmethod
    def transform(self, inputs: Inputs) -> Outputs:
        """Return the rows as numbers; the preprocessor does not change."""

    def fit_transform(self, inputs: Inputs) -> Outputs:
        """Learn from the training rows and return them transformed."""
        return self.fit(inputs).transform(inputs)

    def newly_missing(self, inputs: Inputs) -> dict[int, NDArray[np.int64]]:
        """Return the rows without a value, for each column in which every training row has one.

        Empty where values cannot be missing. Inputs of another width than the fitted one also give
        nothing: ``transform`` refuses them.
        """
        del inputs
        return {}

    def summary(self) -> str:
        """Return what was found in the inputs, for the plan of a training; empty for nothing."""
        return ""

    def as_module(self) -> nn.Module | None:
        """Return the fitted transform as a torch module, or None where it cannot be one.

        The module maps raw (N, D) float32 rows to what ``transform`` returns, so that an exported
        graph can contain it. Its method ``examples``, if it has one, makes raw rows that spread
        like the training rows out of (N, D) standard normal noise; the check of an exported graph
        draws its rows with it.
        """
        return None

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, ready for JSON and including ``name``, and the arrays."""

    def plain_state(self) -> dict[str, Any]:
        """Return the state as plain values that other programs can read."""
        settings, arrays = self.state()
        return {**settings, **{name: array.tolist() for name, array in arrays.items()}}

    @classmethod
    @abstractmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a preprocessor from what ``state`` returned."""

    def _learned(self, value: Learned | None) -> Learned:
        """Return what ``fit`` has learned; raise before it was called."""
        if value is None:
            raise DataError(
                f"this {type(self).__name__} is not fitted yet; call fit(training rows)"
            )
        return value


def stored(mapping: Mapping[str, Any], key: str) -> Any:
    """Return a value of a stored state, or refuse a state that lacks it."""
    if not isinstance(mapping, Mapping) or key not in mapping:
        raise DataError(f"the stored preprocessor is damaged: it lacks {key!r}")
    return mapping[key]


def stored_array(
    arrays: Mapping[str, NDArray[Any]], key: str, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Return an array of a stored state, or refuse one of another shape."""
    found: NDArray[Any] = stored(arrays, key)
    if found.shape != shape:
        raise DataError(
            f"the stored preprocessor is damaged: {key} {found.shape} must have shape {shape}"
        )
    return found


def nest(prefix: object, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part under names that begin with its own."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def nested(prefix: object, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part as ``nest`` was given them."""
    begin = f"{prefix}/"
    return {k.removeprefix(begin): v for k, v in arrays.items() if k.startswith(begin)}


def join_columns(parts: Sequence[Any], *, sparse: bool) -> Any:
    """Return rows side by side, (N, D) dense or CSR."""
    if not sparse:
        return np.concatenate(parts, axis=1)
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([csr_array(part) for part in parts], format="csr", dtype=np.float32))


def integer_option(name: str, value: Any, low: int, high: int) -> int:
    """Return a setting, or refuse what is not an integer from ``low`` to ``high``."""
    integral = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not integral or not low <= value <= high:
        raise HierlearnError(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return int(value)
