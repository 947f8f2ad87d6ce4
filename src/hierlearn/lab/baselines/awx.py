"""The AWX link: only terminal classes have units, and an inner class is an l-norm of those below.

    p(c) = min(1 - eps, (sum over terminals t at or below c of sigmoid(x_t)^l)^(1/l))

Masera and Blanzieri, "AWX: an integrated approach to hierarchical-multilabel classification"
(2018). With l = 1 it is the sum of what lies below, cut off at 1; with l = infinity the maximum.
Where it is cut off, p does not depend on the logits and their gradient is 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import LOG_ZERO, select
from hierlearn.links.link import Link
from hierlearn.training.recipes import Recipe, plain

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy, LabelSpace


EPSILON = 1e-6


class AWXLink(Link):
    """An l-norm over the terminal classes below; coherent on trees and DAGs.

    Args:
        label_space: what can be predicted; a Hierarchy means that its leaves are terminal.
        order: l, at least 1; infinity for the maximum.
    """

    coherent = True
    terminals: Tensor

    def __init__(self, label_space: LabelSpace | Hierarchy, order: float = 5.0) -> None:
        super().__init__(label_space)
        if isinstance(order, bool) or not isinstance(order, (int, float)) or not order >= 1:
            raise HierlearnError(f"order must be a number of at least 1, not {order!r}")
        self.order = float(order)
        self.register_buffer("terminals", self.label_space.terminal_ids(), persistent=False)

    @property
    def options(self) -> dict[str, float]:
        return {"order": self.order}

    def log_p(self, logits: Tensor) -> Tensor:
        own = logsigmoid(select(logits, self.terminals))
        order = 1.0 if math.isinf(self.order) else self.order
        empty = torch.full_like(logits, LOG_ZERO)
        units = empty.index_copy(-1, self.terminals, (order * own).clamp_min(LOG_ZERO))
        if math.isinf(self.order):
            found = self.hierarchy.max_up(units)
        else:
            found = self.hierarchy.logsumexp_up(units) / order
        return found.clamp_max(math.log1p(-EPSILON))

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and log(1 - p), which is at least log eps."""
        log_p = self.log_p(logits)
        return log_p, torch.log(-torch.expm1(log_p))

    def extra_repr(self) -> str:
        """Name the hierarchy and the order when the module is printed."""
        return f"{super().extra_repr()}, order={self.order:g}"


AWX = Recipe(
    "bce",
    "cross entropy on AWX: units for the terminal classes, a p-norm above (Masera 2018)",
    loss_options={"link": "awx"},
    rule=plain,
)
