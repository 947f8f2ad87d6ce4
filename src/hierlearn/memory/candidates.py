"""The training rows that a step compares its batch with.

    Candidates      their targets, and which of them are the row itself, as matrices
    SetCandidates   the same as numbers of label sets, and keys of rows

What a step holds of the second grows with rows and candidates, not with rows times candidates or
candidates times classes; the Triton kernels of the head read it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.memory.label_sets import LabelSets


@dataclass(frozen=True)
class Candidates:
    """The candidates of a step, K per member.

    Attributes:
        targets: (K, C) or (M, K, C) bool, closed.
        excluded: (n, K) or (M, n, K) bool, which candidates are the row itself.
        mask: which targets are known; None for all.
        weight: (K,) or (M, K) how much each candidate counts, 0 for not at all; None for all alike.
    """

    targets: Tensor
    excluded: Tensor
    mask: Tensor | None = None
    weight: Tensor | None = None

    @property
    def count(self) -> int:
        """K."""
        return self.targets.shape[-2]

    def member(self, number: int) -> Candidates:
        """Return the candidates of one member."""
        return Candidates(
            self.targets[number],
            self.excluded[number],
            None if self.mask is None else self.mask[number],
            None if self.weight is None else self.weight[number],
        )


@dataclass(frozen=True)
class SetCandidates:
    """Candidates whose labels are all known, K per member, as a head reads ``Candidates``.

    Attributes:
        labels: the label sets.
        sets: (K,) or (M, K) the number of the set of each candidate.
        row_keys: (n,) or (M, n) integers below 2^31, the key of each row of the batch.
        keys: (K,) or (M, K) integers; a candidate with the key of a row is the row itself.
        weight: (K,) or (M, K) how much each candidate counts, 0 for not at all; None for all alike.
    """

    labels: LabelSets
    sets: Tensor
    row_keys: Tensor
    keys: Tensor
    weight: Tensor | None = None
    mask = None

    @property
    def count(self) -> int:
        """K."""
        return self.sets.shape[-1]

    @cached_property
    def targets(self) -> Tensor:
        """(K, C) or (M, K, C) bool, closed."""
        return self.labels.targets(self.sets)

    @property
    def excluded(self) -> Tensor:
        """(n, K) or (M, n, K) bool, which candidates are the row itself."""
        return self.row_keys[..., :, None] == self.keys[..., None, :]

    def member(self, number: int) -> SetCandidates:
        """Return the candidates of one member."""
        weight = None if self.weight is None else self.weight[number]
        parts = {name: getattr(self, name)[number] for name in ("sets", "row_keys", "keys")}
        return replace(self, **parts, weight=weight)
