"""CandidateSampler: the training rows that a step compares its batch with.

Drawn without replacement from all training rows, by seed and step alone: every process of a
training draws the same, so the loss of a global batch does not depend on how many there are, and a
training resumes from any step. Rows that stay in their file draw from the window in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.kernels.neighbor_head import is_worthwhile
from hierlearn.memory import Candidates, SetCandidates
from hierlearn.training.seeding import derive

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.networks.sparse import SparseRows
    from hierlearn.training.rows import Rows


class CandidateSampler:
    """Draw candidates for the batches of a training.

    Args:
        rows: the training rows.
        seeds: of the members.
        count: K, how many to draw; all rows where there are fewer.
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
        self, index: Tensor, step: int, epoch: int, place: int
    ) -> tuple[Tensor | SparseRows, Tensor, Tensor | None, Candidates | SetCandidates]:
        """Return inputs, targets and mask of a batch, and its candidates.

        Large batches on a GPU have candidates by label set, which the kernels of the head read.

        Args:
            index: (n,) or (M, n) the rows of the batch.
            step: the number of the step, from 0.
            epoch: the number of the epoch, from 0.
            place: of the first row of the global batch in the order of the epoch.

        Returns:
            The inputs of the batch and then of the candidates; targets and mask of the batch.
        """
        drawn = self.draw(step, epoch, place).to(index.device)
        missing = drawn < 0
        drawn = torch.where(missing, drawn[..., :1], drawn)  # any row of the window
        if self.takes_sets(index.shape[-1]):
            return self.batch_by_set(index, drawn, missing)
        x, targets, mask = self.rows.batch(torch.cat([index, drawn], dim=-1))
        count = index.shape[-1]
        own = None if mask is None else mask[..., :count, :]
        found = Candidates(
            targets[..., count:, :],
            (self.excluded(index, drawn) | missing[..., None, :]).to(targets.device),
            None if mask is None else mask[..., count:, :],
            None if self.rows.weights is None else self.rows.weights[drawn.to(self.rows.device)],
        )
        return x, targets[..., :count, :], own, found

    def takes_sets(self, count: int) -> bool:
        """Whether the kernels of the head are faster for this many rows."""
        rows = self.rows
        on_gpu = rows.device.type == "cuda" and not rows.is_partial
        return on_gpu and is_worthwhile(count, self.size)

    def batch_by_set(
        self, index: Tensor, drawn: Tensor, missing: Tensor
    ) -> tuple[Tensor | SparseRows, Tensor, None, SetCandidates]:
        """Return a batch whose candidates are numbers of label sets.

        Args:
            index: (n,) or (M, n) the rows of the batch.
            drawn: (K,) or (M, K) the rows of the candidates.
            missing: which of these do not count.
        """
        rows = self.rows
        index, drawn, missing = (one.to(rows.device) for one in (index, drawn, missing))
        row_keys, keys = (one if rows.keys is None else rows.keys[one] for one in (index, drawn))
        weight = None if rows.weights is None else rows.weights[drawn]
        weight = torch.where(missing, 0.0, 1.0 if weight is None else weight)
        found = SetCandidates(rows.label_sets, rows.set_numbers[drawn], row_keys, keys, weight)
        return rows.take(torch.cat([index, drawn], dim=-1)), rows.targets(index), None, found

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

    def excluded(self, index: Tensor, drawn: Tensor) -> Tensor:
        """Return (n, K) or (M, n, K) bool, which candidates are the row itself, by id."""
        keys = self.rows.keys
        if keys is not None:
            index, drawn = keys[index.to(keys.device)], keys[drawn.to(keys.device)]
        return index[..., :, None] == drawn[..., None, :]


def sample(size: int, count: int, seed: int) -> Tensor:
    """Return ``count`` different numbers below ``size``; all of them in order where that is all."""
    if count >= size:
        return torch.arange(size)
    # NumPy draws from many rows at a cost that does not grow with their number.
    return torch.from_numpy(np.random.default_rng(seed).choice(size, count, replace=False))
