"""Rows: the inputs, targets and masks of some rows as tensors, in batches.

A small dataset is held on the device, and shuffling is an index: no worker processes, no copy per
row. The targets of a large one are made batch by batch from the sparse labels.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from hierlearn.errors import DataError
from hierlearn.kernels.neighbor_head import is_worthwhile
from hierlearn.memory import Candidates, LabelSets, SetCandidates
from hierlearn.networks.inputs import SparseRows
from hierlearn.training.seeding import derive, epoch_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.training.processes import Processes

ON_DEVICE = 1 << 30  # bytes of images that may be held on the device
DENSE = 1 << 30  # entries of targets that may be held on the device


class Rows:
    """N rows ready for a network.

    Args:
        inputs: (N, D) array or tensor, or a SciPy sparse matrix; many images,
            (N, C, H, W) bytes, stay where they are, and only those of a batch go to the device.
        labels: the labels of the rows.
        device: of the tensors.
        weights: (N,) how much each row counts; None for all alike.
        dense: how many entries of targets may be held on the device.

    Attributes:
        ids: by which the rows are named; None for their numbers. Rows with the same id are one
            thing, and no evidence for each other.
        numbers: (N,) the numbers of the rows in their dataset.
        texts: what to show of each row; None where the inputs are not texts.
    """

    def __init__(
        self,
        inputs: Any,
        labels: Labels,
        device: torch.device,
        weights: NDArray[np.float64] | None = None,
        dense: int = DENSE,
    ) -> None:
        if inputs.shape[0] != len(labels):
            raise DataError(f"inputs have {inputs.shape[0]} rows but labels have {len(labels)}")
        self.labels = labels
        self.device = device
        self.inputs = as_rows(inputs, device)
        self.weights = (
            None if weights is None else torch.as_tensor(weights, dtype=torch.float32).to(device)
        )
        small = len(labels) * len(labels.hierarchy) <= dense
        self._targets = labels.targets().to(device) if small else None
        partial = labels.unlabeled_descendants == "ignore"
        self._mask = labels.mask().to(device) if small and partial else None
        self._partial = partial
        self.ids: Sequence[str] | None = None
        self.groups: Sequence[str] | None = None
        self.numbers = np.arange(len(labels))
        self.texts: Sequence[str] | None = None

    streamed = False  # whether the inputs stay in their file, and are read when they are needed
    shards = 1  # among how many processes the files are shared out

    @cached_property
    def keys(self) -> Tensor | None:
        """(N,) equal numbers for rows of the same group, or id; None where no two are the same."""
        together = self.ids if self.groups is None else self.groups
        if together is None:
            return None
        names, found = np.unique(np.asarray(together).astype(str), return_inverse=True)
        return None if len(names) == len(self) else torch.from_numpy(found).to(self.device)

    @cached_property
    def label_sets(self) -> LabelSets:
        """The labels of the rows as a memory holds them."""
        return LabelSets.from_labels(self.labels)

    @cached_property
    def set_numbers(self) -> Tensor:
        """(N,) the number of the label set of each row, on the device."""
        return torch.from_numpy(self.label_sets.of_row).to(self.device)

    @property
    def is_partial(self) -> bool:
        """Whether classes below a label are unknown, not absent."""
        return self._partial

    def named(self) -> list[str]:
        """Return the id of every row."""
        return [str(one) for one in (self.numbers if self.ids is None else self.ids)]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> tuple[Tensor | SparseRows, Tensor, Tensor | None]:
        """Return inputs, targets and mask of the rows ``index``: (n,), or (M, n) for members."""
        index = index.to(self.device)
        return self.take(index), self.targets(index), self.mask(index)

    def take(self, index: Tensor) -> Tensor | SparseRows:
        """Return the inputs of the rows ``index``: (n,), or (M, n) for members."""
        if isinstance(self.inputs, SparseRows):
            return self.inputs.take(index.to(self.device))
        return self.inputs[index.to(self.inputs.device)].to(self.device)

    @property
    def pool_size(self) -> int:
        """How many rows are in memory at once, at most."""
        return len(self)

    def pool(self, seed: int, epoch: int, place: int) -> Tensor | None:
        """Return the rows that are in memory at a place of an epoch's order; None for all.

        Args:
            seed: of the member whose order it is.
            epoch: the number of the epoch, from 0.
            place: of the first row of a batch.
        """
        del seed, epoch, place
        return None

    def order(self, seeds: list[int], epoch: int) -> Tensor:
        """Return (M, N) the order in which the member of each seed reads the rows in an epoch."""
        return epoch_order(seeds, len(self), epoch)

    def batches(
        self, seeds: list[int], epoch: int, size: int, here: Processes, *, load: bool = True
    ) -> Batches:
        """Return which rows each step of an epoch takes.

        Args:
            seeds: of the members.
            epoch: the number of the epoch, from 0.
            size: the rows of a batch of all processes together.
            here: this process among all of them.
            load: whether row numbers go to the device, for steps to be taken.
        """
        order = self.order(seeds, epoch)
        if load and self.in_memory:  # moved once, not in each step
            order = order.pin_memory() if self.device.type == "cuda" else order
            order = order.to(self.device, non_blocking=True)
        return OrderedBatches(order, size, here)

    @property
    def in_memory(self) -> bool:
        """Whether all inputs and targets are held on the device."""
        return self._targets is not None

    def digest(self) -> str:
        """Return a checksum by which a resumed training recognizes its rows."""
        held, sums = self.inputs, hashlib.sha256()
        if isinstance(held, SparseRows):
            parts = [held.offsets, held.columns, held.values]
        else:
            parts = [held]
        for part in parts:
            sums.update(part.cpu().numpy().tobytes())
        for array in self.labels.identity():
            sums.update(array.tobytes())
        return sums.hexdigest()

    def targets(self, index: Tensor) -> Tensor:
        """Return the bool targets of some rows."""
        if self._targets is not None:
            return self._targets[index]
        return self._made(self.labels.targets(flat_numbers(index)), index)

    def mask(self, index: Tensor) -> Tensor | None:
        """Return which targets of some rows are known; None where all are."""
        if not self._partial:
            return None
        if self._mask is not None:
            return self._mask[index]
        return self._made(self.labels.mask(flat_numbers(index)), index)

    def _made(self, dense: Tensor, index: Tensor) -> Tensor:
        return dense.view(*index.shape, dense.shape[-1]).to(self.device)


def flat_numbers(index: Tensor) -> NDArray[np.int64]:
    """Return row numbers for NumPy."""
    return np.asarray(index.reshape(-1).cpu().numpy(), dtype=np.int64)


def as_rows(
    inputs: Any, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor | SparseRows:
    """Return inputs on a device, read as float32 and cast to ``dtype``.

    Sparse rows stay sparse, token ids stay integers, and images stay bytes; many of them stay where
    they are.
    """
    if hasattr(inputs, "tocsr"):
        inputs = SparseRows.from_scipy(inputs)
    if isinstance(inputs, SparseRows):
        return replace(inputs, values=inputs.values.to(dtype)).to(device)
    kind = getattr(inputs, "dtype", None)
    if kind in (np.uint8, torch.uint8):
        images = torch.as_tensor(inputs)
        return images.to(device) if images.nbytes <= ON_DEVICE else images
    if kind in (np.int32, torch.int32):
        return torch.as_tensor(inputs).to(device)
    return torch.as_tensor(inputs, dtype=torch.float32).to(device, dtype)


# ---------------------------------------- batches


class Batches(Protocol):
    """The batches of an epoch; the number of a batch counts from 0."""

    def whole(self, place: int) -> Tensor:
        """Return (M, n) the rows of a batch, for each of M members."""
        ...

    def share(self, place: int) -> Tensor:
        """Return (M, n) those rows of a batch that this process computes."""
        ...


class OrderedBatches:
    """The batches of an order of all rows; each process takes every so many-th row.

    Args:
        order: (M, N) the order of each member.
        size: the rows of a batch.
        here: this process among all of them.
    """

    def __init__(self, order: Tensor, size: int, here: Processes) -> None:
        self.order, self.size, self.here = order, size, here

    def whole(self, place: int) -> Tensor:
        """Return (M, n) the rows of a batch, for each of M members."""
        return self.order[:, place * self.size : (place + 1) * self.size]

    def share(self, place: int) -> Tensor:
        """Return (M, n) those rows of a batch that this process computes."""
        return self.here.share(self.whole(place))


class CandidateSampler:
    """Draw the training rows that a step compares its batch with.

    Without replacement, by seed and step alone: every process of a training draws the same, so the
    loss of a global batch does not depend on how many there are, and a training resumes from any
    step. Rows that stay in their file draw from the window in memory.

    Args:
        rows: the training rows.
        seeds: of the members.
        count: K, how many to draw; all rows where there are fewer. 0 draws none: the rows of the
            whole batch are compared with each other.
        apart: whether each member draws its own, as those of an ensemble do.
    """

    def __init__(self, rows: Rows, seeds: list[int], count: int, *, apart: bool) -> None:
        self.rows, self.seeds, self.apart = rows, seeds, apart
        self.count = count

    @property
    def size(self) -> int:
        """How many candidates a step has."""
        return min(self.count, self.rows.pool_size)

    def batch(
        self, index: Tensor, step: int, epoch: int, place: int, whole: Tensor | None = None
    ) -> tuple[Tensor | SparseRows, Tensor, Tensor | None, Candidates | SetCandidates]:
        """Return inputs, targets and mask of a batch, and its candidates.

        Large batches on a GPU have candidates by label set, which the kernels of the head read.

        Args:
            index: (n,) or (M, n) the rows of the batch.
            step: the number of the step, from 0.
            epoch: the number of the epoch, from 0.
            place: of the first row of the global batch in the order of the epoch.
            whole: the rows of the global batch, where ``index`` are not all of them.

        Returns:
            The inputs of the batch and then of the candidates; targets and mask of the batch.
        """
        if self.count:
            drawn = self.draw(step, epoch, place).to(index.device)
        else:
            drawn = index if whole is None else whole.to(index.device)
        are_batch = drawn is index
        missing = drawn < 0
        drawn = torch.where(missing, drawn[..., :1], drawn)  # any row of the window
        rows, known = self.rows, self.rows.keys
        row_keys, keys = (
            one if known is None else known[one.to(known.device)] for one in (index, drawn)
        )
        if not are_batch and self.takes_sets(index.shape[-1]):
            index, drawn, missing, row_keys, keys = (
                one.to(rows.device) for one in (index, drawn, missing, row_keys, keys)
            )
            weight = None if rows.weights is None else rows.weights[drawn]
            weight = torch.where(missing, 0.0, 1.0 if weight is None else weight)
            sets = SetCandidates(rows.label_sets, rows.set_numbers[drawn], row_keys, keys, weight)
            return rows.take(torch.cat([index, drawn], dim=-1)), rows.targets(index), None, sets
        x, targets, mask = rows.batch(index if are_batch else torch.cat([index, drawn], dim=-1))
        count = index.shape[-1]
        begin = 0 if are_batch else count
        excluded = (row_keys[..., :, None] == keys[..., None, :]) | missing[..., None, :].to(
            keys.device
        )
        found = Candidates(
            targets[..., begin:, :],
            excluded.to(targets.device),
            None if mask is None else mask[..., begin:, :],
            None if rows.weights is None else rows.weights[drawn.to(rows.device)],
            are_batch,
        )
        own = None if mask is None else mask[..., :count, :]
        return x, targets[..., :count, :], own, found

    def takes_sets(self, count: int) -> bool:
        """Whether the kernels of the head are faster for this many rows."""
        rows = self.rows
        on_gpu = rows.device.type == "cuda" and not rows.is_partial
        return on_gpu and is_worthwhile(count, self.size)

    def draw(self, step: int, epoch: int, place: int) -> Tensor:
        """Return (K,), or (M, K) for members, the row numbers of the candidates of a step.

        K is the same in all steps: -1 stands for the candidates that a small window lacks.
        """
        count = self.size
        drawn = torch.full((len(self.seeds), count), -1)
        for own, seed in zip(drawn, self.seeds, strict=True):
            pool = self.rows.pool(seed, epoch, place)
            size = len(self.rows) if pool is None else len(pool)
            found = sample(size, count, derive(seed, "candidates", step))
            own[: len(found)] = found if pool is None else pool[found]
        return drawn if self.apart else drawn[0]


def sample(size: int, count: int, seed: int) -> Tensor:
    """Return ``count`` different numbers below ``size``; all of them in order where that is all."""
    if count >= size:
        return torch.arange(size)
    # NumPy draws from many rows at a cost that does not grow with their number.
    return torch.from_numpy(np.random.default_rng(seed).choice(size, count, replace=False))
