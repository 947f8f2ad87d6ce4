"""Leaf: the most probable leaf, or the most probable of the terminal classes.

    c = argmax over the leaves of p(c)
    c = argmax over the terminal classes of p(c) - the sum of p over the children of c

An inner class at which rows may end competes with what ends at it: under a coherent link its p
is never below that of its descendants, and would always win.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.decoding.mass import terminal_scores
from hierlearn.links.softmax import terminal_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label


class Leaf(Decoder):
    """The most probable leaf; ties go to the first.

    Args:
        hierarchy: the taxonomy.
        terminals: inner classes that may be answered too; the leaves always may.
    """

    answers: Answers = "class"

    def __init__(self, hierarchy: Hierarchy, terminals: Iterable[Label] | None = None) -> None:
        super().__init__(hierarchy)
        self.terminals = terminal_numbers(hierarchy, terminals)
        self.has_inner = len(self.terminals) > len(hierarchy.leaves)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the first terminal class of largest p, or largest end score if some are inner."""
        scores = terminal_scores(p, self.hierarchy) if self.has_inner else p
        terminals = self.terminals.to(p.device)
        if allowed is not None:
            terminals = terminals[allowed[terminals]]
        return terminals[scores.index_select(1, terminals).argmax(dim=1)]
