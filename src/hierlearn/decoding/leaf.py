"""Leaf: the most probable leaf, or the most probable of the terminal classes.

    c = argmax over the leaves of p(c)
    c = argmax over the terminal classes of p(c) - the sum of p over the children of c

An inner class that is terminal is scored by the probability that ends at it: under a coherent link
its p is never smaller than its descendants', and would always win.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.decoding.mass import terminal_scores

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace


class Leaf(Decoder):
    """The most probable leaf, or terminal class of the label space; ties go to the first.

    Args:
        label_space: the taxonomy and its terminal classes.
    """

    answers: Answers = "class"
    keeps_order = True

    def __init__(self, label_space: LabelSpace | Hierarchy) -> None:
        super().__init__(label_space)
        self.terminals = self.label_space.terminal_ids()

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the first terminal class of largest p, or terminal score if some are inner."""
        inner = self.label_space.has_inner_terminals
        scores = terminal_scores(p, self.label_space) if inner else p
        terminals = self.terminals.to(p.device)
        if allowed is not None:
            terminals = terminals[allowed[terminals]]
        return terminals[scores.index_select(1, terminals).argmax(dim=1)]
