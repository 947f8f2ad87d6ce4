"""ShardLabels: targets and masks of rows for the classes of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.hierarchy.shared_labels import SharedLabels
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.hierarchy.sharded import ShardedHierarchy
    from hierlearn.hierarchy.structure import Ints


class ShardLabels:
    """The labels of rows among the classes of one process; made dense for a few rows at a time.

    Args:
        labels: of all rows and classes.
        hierarchy: the classes of this process.
    """

    def __init__(self, labels: Labels, hierarchy: ShardedHierarchy) -> None:
        self.of_row = labels.of_row if isinstance(labels, SharedLabels) else None
        self.labels = labels.sets if isinstance(labels, SharedLabels) else labels
        self.hierarchy = hierarchy
        self.place = np.full(len(labels.hierarchy), -1, dtype=np.int64)
        self.place[hierarchy.shard.classes] = np.arange(len(hierarchy))

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return (n, S) bool targets of the given rows, and which of them are known."""
        picked = rows.cpu().numpy()
        if self.of_row is not None:
            picked = self.of_row[picked].astype(np.int64)
        targets = self.dense(self.labels.closed, picked)
        if self.labels.unlabeled_descendants == "negative":
            return targets, None
        # What lies above a class is in its shard, so its mask needs no other one.
        terminal = self.dense(self.labels.terminal, picked)
        covered = self.hierarchy.max_down(terminal.to(torch.uint8)).bool()
        empty = torch.from_numpy(np.diff(self.labels.closed[0])[picked] == 0).to(targets.device)
        return targets, ~(covered | empty[:, None]) | targets

    def dense(self, csr: tuple[Ints, Ints], picked: NDArray[np.int64]) -> Tensor:
        """Return (n, S) bool, where the labels of some rows are."""
        offsets, numbers = csr
        positions, counts = expand_ranges(offsets, picked)
        columns = self.place[numbers[positions]]
        width = len(self.hierarchy)
        flat = np.repeat(np.arange(len(picked)) * width, counts) + columns
        dense = torch.zeros((len(picked), width), dtype=torch.bool)
        found = torch.from_numpy(flat[columns >= 0])
        dense.view(-1).index_fill_(0, found, True)
        return dense.to(self.hierarchy.classes.device)
