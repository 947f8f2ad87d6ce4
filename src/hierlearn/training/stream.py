"""ParquetRows: training rows that stay in their files, shuffled in windows of row groups.

An epoch shuffles the row groups, shares them out among the processes, joins those of a process to
windows of at most ``window`` rows, and shuffles the rows of each window (see ``shards``). So a
batch mixes rows from all over the files, while a process holds one window, preprocessed, and the
next one as it is read ahead. The order depends on the seed, the epoch and the number of processes
alone, so a training resumes from any step.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from hierlearn.backbones.hf import PADDING
from hierlearn.networks.sparse import SparseRows
from hierlearn.training.row_cache import GroupCache
from hierlearn.training.rows import Rows, as_rows
from hierlearn.training.shards import ShardOrder, StreamedBatches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.datasets.tables.stream import RowGroups
    from hierlearn.features import Preprocessor
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.training.processes import Processes


class ParquetRows(Rows):
    """N rows of Parquet files ready for a network, read when they are needed.

    Args:
        inputs: the rows in the files, ascending.
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
        self.cache = GroupCache(inputs.read, self._prepare)
        self._pools: dict[int, tuple[int, range, Tensor]] = {}  # the last of every seed
        self._shards = 1
        self._begun: tuple[int, int] | None = None  # an epoch that began with other shards
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

    def share_among(self, processes: int, epoch: int | None = None) -> None:
        """Say among how many processes the row groups are shared out.

        Args:
            processes: how many.
            epoch: the number of an epoch that began with this many; by default of all others.
        """
        if epoch is None:
            self._shards = processes
        else:
            self._begun = (epoch, processes)

    def shards(self, epoch: int) -> int:
        """Return among how many processes the row groups are shared out in an epoch."""
        return self._begun[1] if self._begun and self._begun[0] == epoch else self._shards

    def batches(
        self, seeds: list[int], epoch: int, size: int, here: Processes, *, load: bool = True
    ) -> StreamedBatches:
        """Return the batches of an epoch; the arguments are those of ``Rows.batches``."""
        del load
        return StreamedBatches(self, seeds, epoch, size, here, self.shards(epoch))

    def pool(self, seed: int, epoch: int, place: int) -> Tensor | None:
        """Return the rows of the window that a place of an epoch's order lies in, ascending."""
        held = self._pools.get(seed)
        if held is None or held[0] != epoch or place not in held[1]:
            order = ShardOrder(self, seed, epoch, len(self))
            window = int(np.searchsorted(order.starts, place, side="right")) - 1
            places = range(*order.starts[window : window + 2].tolist())
            held = (epoch, places, order.window(window).sort().values)
            self._pools[seed] = held
        return held[2]

    def order(self, seeds: list[int], epoch: int) -> Tensor:
        """Return (M, N) the order in which each member reads the rows in one process."""
        orders = [ShardOrder(self, seed, epoch, len(self)) for seed in seeds]
        return torch.stack([order.batch(0) for order in orders])

    def digest(self) -> str:
        """Return a checksum of the fitted preprocessing, the row numbers and the labels."""
        settings, arrays = self.preprocessor.state()
        sums = hashlib.sha256(repr((settings, self.source.source.sizes)).encode())
        for array in (*arrays.values(), self.source.rows, *self.labels.identity()):
            sums.update(np.ascontiguousarray(array).tobytes())
        return sums.hexdigest()

    def take(self, index: Tensor) -> Tensor | SparseRows:
        """Return the preprocessed inputs of some rows, on the device."""
        flat = index.reshape(-1).cpu().numpy()
        group = np.searchsorted(self.bounds, flat, side="right") - 1
        members = len(index) if index.dim() == 2 else 1
        parts, places = [], []
        # Any group tells the width of no rows.
        needed = np.unique(group) if len(group) else np.flatnonzero(np.diff(self.bounds))[:1]
        for number in needed:
            where = np.flatnonzero(group == number)
            rows = torch.from_numpy(flat[where] - self.bounds[number])
            held = self.read(int(number), members)
            parts.append(held.take(rows) if isinstance(held, SparseRows) else held[rows])
            places.append(where)
        back = torch.from_numpy(np.argsort(np.concatenate(places)))
        x = joined(parts)
        if isinstance(x, SparseRows):
            return x.take(back.view(index.shape)).to(self.device)
        return x[back].view(*index.shape, x.shape[-1]).to(self.device)

    def read(self, group: int, members: int = 1) -> Tensor | SparseRows:
        """Return the preprocessed rows of a row group; those of the last windows are kept."""
        found: Tensor | SparseRows = self.cache.get(group, self.source.window * members)
        return found

    def _prepare(self, raw: Any) -> Tensor | SparseRows:
        return as_rows(self.preprocessor.transform(raw), torch.device("cpu"))


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
