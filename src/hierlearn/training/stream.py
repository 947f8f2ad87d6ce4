"""Training rows that stay in their files: the order of an epoch, and the row groups in memory.

The row groups are shuffled by seed and epoch and laid end to end. With S processes and batches of
n_b rows, place p of a batch belongs to process p mod S, so that process s takes

    Q_s = sum over batches b of |{s, s + S, s + 2S, ...} below n_b|

rows in an epoch: those from Q_0 + ... + Q_{s-1} on. Every row is taken once, all processes take the
same number of steps, and only a group across a border is read by two processes, in part by each.

A process joins its groups to windows of at most ``window`` rows and shuffles the rows of each
window. With one process and a window of all rows, that is the order of rows in memory. So a batch
mixes rows from all over the files, while a process holds one window, preprocessed, and the next one
as it is read ahead. The order depends on the seed, the epoch and the number of processes alone, so
a training resumes from any step.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from hierlearn.backbones.hf import PADDING
from hierlearn.files.reading import THREADS
from hierlearn.networks.inputs import SparseRows
from hierlearn.training.rows import Rows, as_rows
from hierlearn.training.seeding import generator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets.tables.stream import RowGroups
    from hierlearn.features import Preprocessor
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.training.processes import Processes


class GroupCache:
    """Row groups by number: the last ones used, and those that were announced.

    Args:
        read: returns the raw rows of a group; called in threads.
        prepare: makes of raw rows what is kept; called by who asks for a group.
    """

    def __init__(self, read: Callable[[int], Any], prepare: Callable[[Any], Any]) -> None:
        self.read, self.prepare = read, prepare
        self._held: OrderedDict[int, Any] = OrderedDict()
        self._ahead: dict[int, Future[Any]] = {}
        self._needed: frozenset[int] = frozenset()
        self._pool: ThreadPoolExecutor | None = None

    def get(self, group: int, most: int) -> Any:
        """Return the rows of a group, and drop the groups that were not used for longest.

        Args:
            group: its number.
            most: the rows that may be held; those of groups that are needed now may exceed it.
        """
        if group in self._held:
            self._held.move_to_end(group)
            return self._held[group]
        future = self._ahead.pop(group, None)
        raw = self.read(group) if future is None else future.result()
        found = self._held[group] = self.prepare(raw)
        free = [one for one in self._held if one not in self._needed and one != group]
        for one in free:
            if self.rows <= most:
                break
            del self._held[one]
        return found

    def expect(self, now: Collection[int], ahead: Collection[int]) -> None:
        """Announce which groups are needed now and which come next; threads read what is missing.

        Groups that were announced before and are not among these are dropped.
        """
        self._needed = frozenset(now)
        wanted = [*sorted(now), *sorted(set(ahead) - self._needed)]
        for group in set(self._ahead).difference(wanted):
            self._ahead.pop(group).cancel()
        missing = [one for one in wanted if one not in self._held and one not in self._ahead]
        if not missing:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hierlearn-read")
        for group in missing:
            self._ahead[group] = self._pool.submit(self.read, group)

    @property
    def rows(self) -> int:
        """How many rows are held, without those that are read ahead."""
        return sum(len(one) for one in self._held.values())


class Piece(NamedTuple):
    """Consecutive rows of one row group.

    Attributes:
        group: its number.
        begin, end: the first row, and the one after the last.
    """

    group: int
    begin: int
    end: int


def share_count(rows: int, shard: int, shards: int) -> int:
    """Return how many rows of a batch belong to a shard."""
    return len(range(shard, rows, shards))


def quota(rows: int, size: int, shard: int, shards: int) -> int:
    """Return how many rows of an epoch with batches of ``size`` belong to a shard."""
    full, last = divmod(rows, size)
    return full * share_count(size, shard, shards) + share_count(last, shard, shards)


def pieces_between(
    groups: Sequence[int], bounds: NDArray[np.int64], begin: int, end: int
) -> list[Piece]:
    """Return the rows from place ``begin`` to ``end`` of groups that are laid end to end.

    Args:
        groups: in their order.
        bounds: (G + 1,) where the rows of each group begin.
        begin: the first place.
        end: the place after the last.
    """
    found, place = [], 0
    for group in groups:
        first, last = int(bounds[group]), int(bounds[group + 1])
        low, high = max(begin - place, 0), min(end - place, last - first)
        if low < high:
            found.append(Piece(group, first + low, first + high))
        place += last - first
    return found


def pack_windows(
    pieces: Sequence[Piece], bounds: NDArray[np.int64], window: int
) -> Iterator[list[Piece]]:
    """Join pieces to windows; a piece takes the memory of its whole group.

    Args:
        pieces: in their order.
        bounds: (G + 1,) where the rows of each group begin.
        window: the most rows of the groups of a window, unless there is one group only.
    """
    taken: list[Piece] = []
    rows = 0
    for piece in pieces:
        count = int(bounds[piece.group + 1] - bounds[piece.group])
        if taken and rows + count > window:
            yield taken
            taken, rows = [], 0
        taken.append(piece)
        rows += count
    if taken:
        yield taken


class ShardOrder:
    """The order in which one shard reads its rows in an epoch, made window by window.

    Args:
        rows: the rows in their files.
        seed: of the member whose order it is.
        epoch: the number of the epoch, from 0.
        size: the rows of a batch of all shards together.
        shard: the number of the shard.
        shards: how many there are.
    """

    def __init__(
        self, rows: ParquetRows, seed: int, epoch: int, size: int, shard: int = 0, shards: int = 1
    ) -> None:
        self.seed, self.epoch, self.size = seed, epoch, size
        self.shard, self.shards, self.total = shard, shards, len(rows)
        counts = np.diff(rows.bounds)
        groups = torch.randperm(len(counts), generator=generator(seed, "row groups", epoch))
        quotas = [quota(self.total, size, one, shards) for one in range(shard + 1)]
        begin, end = sum(quotas[:-1]), sum(quotas)
        pieces = pieces_between(groups.tolist(), rows.bounds, begin, end)
        self.windows = list(pack_windows(pieces, rows.bounds, rows.source.window))
        sizes = [sum(piece.end - piece.begin for piece in window) for window in self.windows]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.touched = range(0)  # the windows of the last batch
        self._last: tuple[int, Tensor] = (-1, torch.zeros(0, dtype=torch.int64))

    def batch(self, place: int) -> Tensor:
        begin = place * share_count(self.size, self.shard, self.shards)
        count = min(self.size, self.total - place * self.size)
        end = begin + share_count(count, self.shard, self.shards)
        if begin == end:  # the last batch may have fewer rows than there are shards
            return torch.zeros(0, dtype=torch.int64)
        first, last = np.searchsorted(self.starts, [begin, end - 1], side="right").tolist()
        self.touched = range(first - 1, last)
        parts = []
        for number in self.touched:
            start, stop = self.starts[number : number + 2].tolist()
            parts.append(self.window(number)[max(begin - start, 0) : min(end, stop) - start])
        return torch.cat(parts)

    def window(self, number: int) -> Tensor:
        """Return the rows of a window, shuffled by seed, epoch, shard and window alone."""
        if self._last[0] != number:
            pieces = sorted(self.windows[number])
            rows = torch.cat([torch.arange(one.begin, one.end) for one in pieces])
            purpose = "order"  # of rows in memory
            if number or self.shards > 1:
                purpose = f"order of window {number}, shard {self.shard} of {self.shards}"
            drawn = torch.randperm(len(rows), generator=generator(self.seed, purpose, self.epoch))
            self._last = (number, rows[drawn])
        return self._last[1]

    def groups(self, windows: range) -> set[int]:
        """Return the row groups of some windows; none beyond the last."""
        some = self.windows[windows.start : windows.stop]
        return {piece.group for window in some for piece in window}


class StreamedBatches:
    """The batches of an epoch whose rows stay in their files.

    Args:
        rows: the rows in their files.
        seeds: of the members.
        epoch: the number of the epoch, from 0.
        size: the rows of a batch of all processes together.
        here: this process among all of them.
        shards: among how many processes the row groups are shared out. Where that is another
            number than there are, the batches are the same, but read by all processes.
    """

    def __init__(
        self,
        rows: ParquetRows,
        seeds: Sequence[int],
        epoch: int,
        size: int,
        here: Processes,
        shards: int,
    ) -> None:
        self.rows, self.size, self.here, self.shards = rows, size, here, shards
        self.epoch, self.seeds = epoch, list(seeds)
        own = [here.rank] if shards == here.world else list(range(shards))
        self.own = {(seed, shard): self._order(seed, shard) for seed in seeds for shard in own}

    def _order(self, seed: int, shard: int) -> ShardOrder:
        return ShardOrder(self.rows, seed, self.epoch, self.size, shard, self.shards)

    def whole(self, place: int) -> Tensor:
        """Return (M, n) the rows of a batch, for each of M members."""
        count = min(self.size, len(self.rows) - place * self.size)
        found = torch.empty(len(self.seeds), count, dtype=torch.int64)
        for member, seed in enumerate(self.seeds):
            for shard in range(self.shards):
                order = self.own.get((seed, shard)) or self._order(seed, shard)
                found[member, shard :: self.shards] = order.batch(place)
        return found

    def share(self, place: int) -> Tensor:
        """Return (M, n) those rows of a batch that this process computes; read the next ahead."""
        before = [order.touched for order in self.own.values()]
        if self.shards == self.here.world:
            rank = self.here.rank
            found = torch.stack([self.own[seed, rank].batch(place) for seed in self.seeds])
        else:
            found = self.here.share(self.whole(place))
        orders = self.own.values()
        if before != [order.touched for order in orders]:
            now = {group for order in orders for group in order.groups(order.touched)}
            ahead = {
                group
                for order in orders
                for group in order.groups(range(order.touched.stop, order.touched.stop + 1))
            }
            self.rows.cache.expect(now, ahead)
        return found


class ParquetRows(Rows):
    """N rows of Parquet files ready for a network, read when they are needed.

    Args:
        inputs: the rows in the files, ascending.
        preprocessor: fitted.
        labels: their labels.
        device: of the batches.
        weights: (N,) how much each row counts; None for all alike.
    """

    streamed = True

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

    def batches(
        self, seeds: list[int], epoch: int, size: int, here: Processes, *, load: bool = True
    ) -> StreamedBatches:
        """Return the batches of an epoch; the arguments are those of ``Rows.batches``."""
        del load
        return StreamedBatches(self, seeds, epoch, size, here, self.shards)

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
        sums = hashlib.sha256(repr((settings, self.source.file.group_bytes)).encode())
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
