"""The siblings link: a softmax among siblings at every step, multiplied down the path.

    p(c) = product over a in {c} and its ancestors of exp(x_a) / sum over the siblings of exp(x)

The children of one parent are siblings, and so are the top classes; the children share the whole
mass of their parent, so every row ends at a leaf. This is the link of the conditional softmax
loss. 1 - p is summed as in the softmax link, never subtracted. Trees only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.links.link import HALF, Link
from hierlearn.links.softmax import log_outside

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy


class SiblingsLink(Link):
    """A softmax among siblings at every step; coherent, trees only."""

    coherent = True
    groups: Tensor

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__(hierarchy)
        if not hierarchy.is_tree:
            raise HierlearnError(
                "the siblings link needs a tree, but a class of this DAG has several parents; "
                "use sigmoid, softmax, conditional or max"
            )
        groups = torch.tensor(hierarchy.structure.first_parents) + 1  # 0: below the root
        self.register_buffer("groups", groups, persistent=False)

    def prior_logits(self, counts: Tensor, ends: Tensor, rows: int) -> Tensor:
        """Return the log count of each class, which its siblings' counts then normalize."""
        del ends, rows
        return self.log_steps(torch.log(counts + HALF)[None])[0]

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the mass inside and outside every class."""
        inside = self.hierarchy.sum_down(self.log_steps(logits))
        nothing = torch.full_like(inside, LOG_ZERO)  # no class keeps a mass of its own
        return inside, log_outside(self.hierarchy, nothing, inside)

    def log_steps(self, logits: Tensor) -> Tensor:
        """Return (N, C) the log probability of each class given its parent."""
        empty = logits.new_zeros((logits.shape[0], len(self.hierarchy) + 1))  # a column a group
        index = self.groups.expand_as(logits)
        with torch.no_grad():
            peak = (empty + LOG_ZERO).scatter_reduce(1, index, logits, "amax").gather(1, index)
        sums = empty.index_add(1, self.groups, (logits - peak).exp())
        return logits - peak - sums.index_select(1, self.groups).log()
