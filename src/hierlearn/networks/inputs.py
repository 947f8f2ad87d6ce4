"""InputSpec: what a network reads, so that a factory can size its first layers.

numbers   (N, D) dense rows
sparse    (N, D) sparse rows, most of their entries 0
tokens    (N, T) token ids below V
images    (N, channels, height, width)
several   a tuple of the above
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["numbers", "sparse", "tokens", "images", "several"]


@dataclass(frozen=True)
class InputSpec:
    """The kind and the size of the inputs.

    Attributes:
        kind: what they are.
        shape: of one row: (D,) for numbers and sparse rows, (V,) the vocabulary of tokens,
            (channels, height, width) for images; empty for several.
        parts: the inputs that are joined, where there are several.
    """

    kind: Kind
    shape: tuple[int, ...] = ()
    parts: tuple[InputSpec, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise HierlearnError(unknown_name("kind of inputs", str(self.kind), get_args(Kind)))
        if any(size < 1 for size in self.shape) or bool(self.parts) == bool(self.shape):
            raise HierlearnError(f"inputs of kind {self.kind!r} have no shape {self.shape}")

    @classmethod
    def numbers(cls, width: int) -> InputSpec:
        """Dense rows of D numbers."""
        return cls("numbers", (width,))

    @classmethod
    def sparse(cls, width: int) -> InputSpec:
        """Sparse rows of D numbers."""
        return cls("sparse", (width,))

    @classmethod
    def tokens(cls, vocabulary: int) -> InputSpec:
        """Token ids below ``vocabulary``."""
        return cls("tokens", (vocabulary,))

    @classmethod
    def images(cls, channels: int, height: int, width: int) -> InputSpec:
        """Images."""
        return cls("images", (channels, height, width))

    @classmethod
    def several(cls, *parts: InputSpec) -> InputSpec:
        """Several inputs per row."""
        return cls("several", parts=parts)

    @property
    def width(self) -> int:
        """D: the numbers per row, flattened."""
        return math.prod(self.shape) if self.shape else sum(part.width for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        if self.parts:
            return {"kind": self.kind, "parts": [part.to_dict() for part in self.parts]}
        return {"kind": self.kind, "shape": list(self.shape)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InputSpec:
        """Restore what ``to_dict`` returned."""
        parts = tuple(cls.from_dict(part) for part in values.get("parts", ()))
        return cls(values["kind"], tuple(values.get("shape", ())), parts)
