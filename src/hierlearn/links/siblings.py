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
from hierlearn.hierarchy.propagate import LOG_ZERO, add_at, select
from hierlearn.links.link import HALF, Link
from hierlearn.links.softmax import log_outside

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy, LabelSpace


class SiblingsLink(Link):
    """A softmax among siblings at every step; coherent, trees only."""

    coherent = True
    normalized = True
    groups: Tensor

    def __init__(self, label_space: LabelSpace | Hierarchy) -> None:
        super().__init__(label_space)
        hierarchy = self.hierarchy
        if not hierarchy.is_tree:
            raise HierlearnError(
                "the siblings link needs a tree, but a class of this DAG has several parents; "
                "use sigmoid, softmax, conditional or max"
            )
        self.register_buffer("groups", sibling_groups(hierarchy), persistent=False)

    def prior_logits(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> Tensor:
        """Return the log count of each class, which its siblings' counts then normalize."""
        del terminal_counts, rows
        return log_steps(torch.log(counts + HALF)[None], self.groups)[0]

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the mass inside and outside every class."""
        inside = self.hierarchy.sum_down(log_steps(logits, self.groups))
        nothing = torch.full_like(inside, LOG_ZERO)  # no class keeps a mass of its own
        return inside, log_outside(self.hierarchy, nothing, inside)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return the log of the mass inside every class."""
        return self.hierarchy.sum_down(log_steps(logits, self.groups))


def sibling_groups(hierarchy: Hierarchy) -> Tensor:
    """Return (C,) the number of each class's group of siblings: 0 for the top classes."""
    return torch.tensor(hierarchy.structure.first_parents) + 1


def log_steps(scores: Tensor, groups: Tensor) -> Tensor:
    """Return (..., C) the log-probability of each class given its parent.

    Args:
        scores: (..., C) logits, or log-probabilities: what a group has in common cancels.
        groups: (C,) the number of each class's group of siblings, at most C.
    """
    empty = scores.new_zeros((*scores.shape[:-1], len(groups) + 1))  # one column per group
    index = groups.expand_as(scores)
    with torch.no_grad():
        peak = (empty + LOG_ZERO).scatter_reduce(-1, index, scores, "amax").gather(-1, index)
    sums = add_at(empty, groups, (scores - peak).exp())
    return scores - peak - select(sums, groups).log()
