"""Link: what turns logits into node probabilities, in log space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy

HALF = 0.5  # a row more on either side of a prior


class Link(nn.Module, ABC):
    """Base of the links: ``forward(logits) -> (log p, log(1 - p))``, both (N, C).

    Both logarithms are computed for themselves, never one from the other, so that they stay
    accurate where p is close to 0 or 1. Logits of half precision are taken to float32.

    Attributes:
        coherent: whether p of a class never exceeds p of its parents.
    """

    coherent: bool = False

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy = hierarchy

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and log(1 - p) of every node."""
        return self.log_probabilities(as_float(logits, len(self.hierarchy)))

    @abstractmethod
    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Do the work of ``forward`` on logits that are known to fit."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return p of every node, (N, C)."""
        log_p, _ = self.forward(logits)
        return log_p.exp()

    def prior_logits(self, counts: Tensor, ends: Tensor, rows: int) -> Tensor:
        """Return (C,) logits under which every class has its share of the training rows.

        Half a row is added to either side, so that a class without rows gets a finite logit. By
        default the log-odds of each class alone.

        Args:
            counts: (C,) the rows of each class, ancestors counted.
            ends: (C,) the rows that end at each class.
            rows: N, the number of rows.
        """
        del ends
        return torch.log((counts + HALF) / (rows - counts + HALF))

    def extra_repr(self) -> str:
        """Name the hierarchy when the module is printed."""
        return repr(self.hierarchy)


def check_logits(logits: Tensor, classes: int) -> None:
    """Refuse what is no (N, C) tensor of floats."""
    if not logits.is_floating_point():
        raise HierlearnError(f"logits must be floating point, not {logits.dtype}")
    if logits.dim() != 2 or logits.shape[1] != classes:
        raise HierlearnError(f"logits {tuple(logits.shape)} must be (N, {classes})")


def as_float(logits: Tensor, classes: int) -> Tensor:
    """Refuse what is no (N, C) tensor of floats; widen half precision."""
    check_logits(logits, classes)
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
