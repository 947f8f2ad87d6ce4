"""ParquetRows: training rows that stay in their file, shuffled in windows of row groups.

An epoch shuffles the row groups, joins them to windows of at most ``window`` rows, and shuffles the
rows of each window. So a batch mixes rows from all over the file, while only one window is in
memory, preprocessed. The order depends on the seed and the epoch alone, so a training resumes from
any step. A window that covers the file gives the order of rows in memory.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from hierlearn.backbones.hf import PADDING
from hierlearn.networks.sparse import SparseRows
from hierlearn.training.rows import Rows, as_rows
from hierlearn.training.seeding import generator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hierlearn.datasets.row_groups import RowGroups
    from hierlearn.features import Preprocessor
    from hierlearn.hierarchy.labels import Labels


class ParquetRows(Rows):
    """N rows of a Parquet file ready for a network, read when they are needed.

    Args:
        inputs: the rows in the file, ascending.
        preprocessor: fitted.
        labels: their labels.
        device: of the batches.
        weights: (N,) how much each row counts; None for all alike.
    """

    def __init__(
        self,
        inputs: RowGroups,
        preprocessor: Preprocessor[Any, Any],
        labels: Labels,
        device: torch.device,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        self.source = inputs
        self.preprocessor = preprocessor
        self.bounds = inputs.bounds  # (G + 1,) where the rows of a row group begin
        self._held: OrderedDict[int, Tensor | SparseRows] = OrderedDict()
        self._pools: dict[int, tuple[int, range, Tensor]] = {}  # the last of every seed
        empty = torch.zeros(len(inputs), 0)  # the inputs stay in the file
        super().__init__(empty, labels, device, weights, dense=0)

    @property
    def pool_size(self) -> int:
        """How many rows a window holds at most."""
        largest = int(np.diff(self.bounds).max(initial=0))
        return min(len(self), max(self.source.window, largest))

    def batch(self, index: Tensor) -> tuple[Tensor | SparseRows, Tensor, Tensor | None]:
        """Return inputs, targets and mask of the rows ``index``: (n,), or (M, n) for members."""
        x = self.take(index)
        index = index.to(self.device)
        return x, self.targets(index), self.mask(index)

    def pool(self, seed: int, epoch: int, place: int) -> Tensor | None:
        """Return the rows of the window that a place of an epoch's order lies in, ascending."""
        held = self._pools.get(seed)
        if held is None or held[0] != epoch or place not in held[1]:
            begin = 0
            for rows in self.windows(seed, epoch):
                if place < begin + len(rows):
                    held = (epoch, range(begin, begin + len(rows)), rows.sort().values)
                    break
                begin += len(rows)
            assert held is not None
            self._pools[seed] = held
        return held[2]

    def order(self, seeds: list[int], epoch: int) -> Tensor:
        """Return (M, N) the order in which the member of each seed reads the rows in an epoch."""
        return torch.stack([torch.cat(list(self.windows(seed, epoch))) for seed in seeds])

    def windows(self, seed: int, epoch: int) -> Iterator[Tensor]:
        """Yield the rows of one window after another, in the order in which they are read."""
        counts = np.diff(self.bounds)
        groups = torch.randperm(len(counts), generator=generator(seed, "row groups", epoch))
        shuffle = generator(seed, "order", epoch)  # as rows in memory
        for window in cut(groups.tolist(), counts, self.source.window):
            rows = [torch.arange(*self.bounds[group : group + 2]) for group in sorted(window)]
            held = torch.cat(rows)
            yield held[torch.randperm(len(held), generator=shuffle)]

    def digest(self) -> str:
        """Return a checksum of the fitted preprocessing, the row numbers and the labels."""
        settings, arrays = self.preprocessor.state()
        sums = hashlib.sha256(repr((settings, self.source.source.sizes)).encode())
        for array in (*arrays.values(), self.source.rows, *self.labels.annotated):
            sums.update(np.ascontiguousarray(array).tobytes())
        return sums.hexdigest()

    def take(self, index: Tensor) -> Tensor | SparseRows:
        """Return the preprocessed inputs of some rows, on the device."""
        flat = index.reshape(-1).cpu().numpy()
        group = np.searchsorted(self.bounds, flat, side="right") - 1
        members = len(index) if index.dim() == 2 else 1
        parts, places = [], []
        for number in np.unique(group):
            where = np.flatnonzero(group == number)
            rows = torch.from_numpy(flat[where] - self.bounds[number])
            held = self.read(int(number), members)
            parts.append(held.take(rows) if isinstance(held, SparseRows) else held[rows])
            places.append(where)
        back = torch.from_numpy(np.argsort(np.concatenate(places)))
        x = joined(parts)
        if isinstance(x, SparseRows):
            return x.take(back.view(index.shape)).to(self.device)
        return x[back].view(*index.shape, -1).to(self.device)

    def read(self, group: int, members: int = 1) -> Tensor | SparseRows:
        """Return the preprocessed rows of a row group; those of the last windows are kept."""
        if group in self._held:
            self._held.move_to_end(group)
            return self._held[group]
        raw = self.source.read(group)
        found = as_rows(self.preprocessor.transform(raw), torch.device("cpu"))
        self._held[group] = found
        while len(self._held) > 1 and self.held_rows > self.source.window * members:
            self._held.popitem(last=False)
        return found

    @property
    def held_rows(self) -> int:
        """How many rows are in memory."""
        return sum(len(rows) for rows in self._held.values())


def cut(groups: list[int], counts: NDArray[np.int64], window: int) -> Iterator[list[int]]:
    """Cut a list of row groups where the next one would exceed the window; skip empty ones."""
    taken: list[int] = []
    rows = 0
    for group in groups:
        count = int(counts[group])
        if taken and rows + count > window:
            yield taken
            taken, rows = [], 0
        if count:
            taken.append(group)
            rows += count
    if taken:
        yield taken


def joined(parts: list[Any]) -> Tensor | SparseRows:
    """Put tensors, or sparse rows, one below the other."""
    if not isinstance(parts[0], SparseRows):
        widest = max(part.shape[-1] for part in parts)
        if parts[0].dtype == torch.int32:  # token ids, of texts of different lengths
            parts = [pad(part, (0, widest - part.shape[-1]), value=PADDING) for part in parts]
        return torch.cat(parts)
    ends = np.cumsum([0, *(int(part.offsets[-1]) for part in parts)]).tolist()
    offsets = [part.offsets[:-1] + begin for part, begin in zip(parts, ends, strict=False)]
    return SparseRows(
        torch.cat([*offsets, torch.tensor(ends[-1:])]),
        torch.cat([part.columns for part in parts]),
        torch.cat([part.values for part in parts]),
        parts[0].width,
    )
