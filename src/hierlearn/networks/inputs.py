"""What a network reads: InputSpec, by which a factory sizes its first layers, and SparseRows.

numbers   (N, D) dense rows
sparse    (N, D) sparse rows, most of their entries 0
tokens    (N, T) token ids below V
images    (N, channels, height, width)
several   a tuple of the above

Sparse rows, such as texts of few words out of many, are stored as CSR: the columns and values of
the entries, row after row, and the offset of each row. Neither indexing rows nor multiplying by a
weight matrix makes them dense.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from scipy.sparse import csr_array

    from hierlearn.networks.layers import Dense

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
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InputSpec:
        """Restore what ``to_dict`` returned."""
        parts = tuple(cls.from_dict(part) for part in values["parts"])
        return cls(values["kind"], tuple(values["shape"]), parts)


@dataclass(frozen=True)
class SparseRows:
    """N rows of D features, most of them 0; with members, the M x N rows of all of them.

    Attributes:
        offsets: (rows + 1,) where each row begins.
        columns: (entries,) int64.
        values: (entries,) float.
        width: D.
        members: M where the rows are M batches, one after another; None for one batch.
    """

    offsets: Tensor
    columns: Tensor
    values: Tensor
    width: int
    members: int | None = None

    @classmethod
    def from_scipy(cls, matrix: csr_array[np.float32]) -> SparseRows:
        """Convert a SciPy matrix."""
        rows = matrix.tocsr()
        return cls(
            torch.from_numpy(rows.indptr.astype("int64")),
            torch.from_numpy(rows.indices.astype("int64")),
            torch.from_numpy(rows.data.astype("float32")),
            int(rows.shape[1]),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, D)."""
        return len(self), self.width

    def to(self, device: torch.device) -> SparseRows:
        """Return the rows on a device."""
        offsets, columns, values = (
            part.to(device) for part in (self.offsets, self.columns, self.values)
        )
        return SparseRows(offsets, columns, values, self.width, self.members)

    def take(self, rows: Tensor) -> SparseRows:
        """Return some rows: (n,) row numbers for one batch, (M, n) for one batch per member."""
        flat = rows.reshape(-1)
        begin = self.offsets[flat]
        counts = self.offsets[flat + 1] - begin
        offsets = torch.zeros(len(flat) + 1, dtype=torch.int64, device=flat.device)
        torch.cumsum(counts, 0, out=offsets[1:])
        shift = torch.repeat_interleave(begin - offsets[:-1], counts)
        places = torch.arange(len(shift), device=flat.device) + shift
        members = len(rows) if rows.dim() == 2 else None
        return SparseRows(offsets, self.columns[places], self.values[places], self.width, members)

    def narrow(self, begin: int, width: int) -> SparseRows:
        """Return the columns from ``begin`` on, ``width`` of them."""
        inside = (self.columns >= begin) & (self.columns < begin + width)
        kept = torch.zeros(len(inside) + 1, dtype=torch.int64, device=inside.device)
        torch.cumsum(inside, 0, out=kept[1:])
        columns = self.columns[inside] - begin
        return SparseRows(kept[self.offsets], columns, self.values[inside], width, self.members)

    def member(self, number: int) -> SparseRows:
        """Return the rows of one member."""
        count = len(self) // (self.members or 1)
        return self.take(
            torch.arange(number * count, (number + 1) * count, device=self.offsets.device)
        )

    def split(self, last: int) -> tuple[SparseRows, SparseRows]:
        """Return the first rows and the last ones; of every member, where there are members."""
        numbers = torch.arange(len(self), device=self.offsets.device)
        if self.members is not None:
            numbers = numbers.view(self.members, -1)
        return self.take(numbers[..., :-last]), self.take(numbers[..., -last:])

    def times(self, layer: Dense) -> Tensor:
        """Return the rows times the weights of a layer, plus its bias."""
        weight, bias = layer.weight, layer.bias
        stacked = weight.dim() == 3
        if not stacked:
            return self._bags(self.columns, weight) + bias
        members = len(weight)
        if self.members is None:  # every member reads the same rows
            return torch.stack([self._bags(self.columns, one) for one in weight]) + bias[:, None]
        if self.members != members:
            raise HierlearnError(f"rows of {self.members} members meet weights of {members}")
        count = len(self) // members
        owner = torch.arange(members, device=self.columns.device).repeat_interleave(count)
        shift = torch.repeat_interleave(owner * self.width, self.offsets.diff())
        bags = self._bags(self.columns + shift, weight.reshape(members * self.width, -1))
        return bags.view(members, count, -1) + bias[:, None]

    def _bags(self, columns: Tensor, table: Tensor) -> Tensor:
        return embedding_bag(
            columns,
            table,
            self.offsets,
            mode="sum",
            per_sample_weights=self.values.to(table.dtype),
            include_last_offset=True,
        )

    def dense(self) -> Tensor:
        """Return (N, D), or (M, N, D) for members."""
        full = self.values.new_zeros(len(self), self.width)
        rows = torch.repeat_interleave(
            torch.arange(len(self), device=full.device), self.offsets.diff()
        )
        full.index_put_((rows, self.columns), self.values, accumulate=True)
        return full if self.members is None else full.view(self.members, -1, self.width)
