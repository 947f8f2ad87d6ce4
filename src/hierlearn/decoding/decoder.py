"""Decoder: what turns node probabilities into a decision.

p is (N, C), one column per class in the hierarchy's order. The implicit root has p = 1, level 0 and
the class number -1, which as an answer reads "no class: stop at the root".

Label sets along the edges: the topmost and most specific classes, and common ancestors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch

from hierlearn.decoding.probabilities import TerminalMass, as_tensor, checked_rows, slack_of
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import expand_ranges, row_chunks, row_width
from hierlearn.registry import CheckedArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints

Answers = Literal["class", "set", "candidates"]
ROOT = -1  # the class number of the implicit root


class Decoder(CheckedArguments, ABC):
    """Base of the decoders: ``decoder(probabilities)`` gives one decision per row.

    Decoders take node probabilities, or the ``HeadOutput`` of a network, on any device, in float64,
    float32 or half precision (widened to float32), and build no graph.

    Args:
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.

    Attributes:
        label_space: the taxonomy and its terminal classes.
        hierarchy: the taxonomy.
        answers: "class": (N,) class numbers, -1 for the root. "set": (N, C) bool, closed under
            ancestors. "candidates": (N, C) bool, closed as well, classes among which the true ones
            should be.
        needs_tree: whether a DAG raises an error.
        needs_distribution: whether p must add up, so that it is a distribution over where a row
            ends.
        keeps_order: whether answers depend on the order of the terminal classes alone, so that
            they stay when probabilities are made more or less sure.
        width: the elements per row of the largest temporary, which sets the rows of a chunk.
    """

    answers: Answers
    needs_tree: bool = False
    needs_distribution: bool = False
    keeps_order: bool = False

    def __init__(self, label_space: LabelSpace | Hierarchy) -> None:
        self.label_space = LabelSpace.of(label_space)
        self.hierarchy = hierarchy = self.label_space.hierarchy
        if self.needs_tree and not hierarchy.is_tree:
            raise HierlearnError(
                f"{type(self).__name__} needs a tree, but a class of this DAG has several "
                f"parents; use {self.remedy()}"
            )
        self.width = row_width(hierarchy)

    @cached_property
    def mass(self) -> TerminalMass:
        """The map from p to the mass that ends at each class."""
        return TerminalMass(self.hierarchy)

    def remedy(self) -> str:
        """Return the decoders that accept a DAG, for the error that a DAG raises."""
        from hierlearn.decoding import DECODERS  # the registry imports this module

        takers = [
            name for name, make in DECODERS.loaded.items() if not getattr(make, "needs_tree", False)
        ]
        return f"{', '.join(takers[:-1])} or {takers[-1]}"

    def __call__(self, probabilities: Probabilities) -> Tensor:
        """Return the decision of each row.

        Args:
            probabilities: (N, C) node probabilities, or a ``HeadOutput``, whose members are
                averaged.

        Returns:
            (N,) int64 class numbers or (N, C) bool, as ``answers`` says.
        """
        return self.over_rows(probabilities, self.decide, numbers=self.answers == "class")

    def sets(self, probabilities: Probabilities) -> Tensor:
        """Return the decision of each row as a label set.

        A class stands for itself and its ancestors, the root for the empty set, and candidates
        for the classes at or above all terminal classes among them.

        Returns:
            (N, C) bool, closed under ancestors.
        """
        if self.answers == "class":
            return ancestor_sets(self.hierarchy, self(probabilities))
        if self.answers == "set":
            return self(probabilities)

        is_terminal = torch.tensor(self.label_space.is_terminal)

        def decide(p: Tensor) -> Tensor:
            return common_ancestors(self.decide(p) & is_terminal.to(p.device), self.hierarchy)

        return self.over_rows(probabilities, decide)

    def representatives(self, probabilities: Tensor) -> Tensor:
        """Return (N, C) bool: the classes that stand for a set of each row.

        Of a label set its most specific classes, of candidates the classes whose subtrees make
        them up, of a class itself.
        """
        decided = self(probabilities)
        if self.answers == "class":
            return most_specific(ancestor_sets(self.hierarchy, decided), self.hierarchy)
        if self.answers == "candidates":
            return covering_subtrees(decided, self.label_space)
        return most_specific(decided, self.hierarchy)

    @abstractmethod
    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the decisions of some rows, which were checked already.

        Args:
            p: (n, C) float32 or float64.
            allowed: (C,) bool, the classes that may be answered, by default all: closed under
                ancestors, with a leaf below each.
        """

    @torch.no_grad()
    def over_rows(
        self,
        probabilities: Probabilities,
        decide: Callable[[Tensor], Tensor],
        *,
        numbers: bool = False,
    ) -> Tensor:
        """Check the probabilities and apply ``decide`` to chunks of rows.

        Args:
            probabilities: (N, C) node probabilities.
            decide: from (n, C) probabilities to (n,) numbers or (n, C) bool.
            numbers: which of the two.
        """
        nodes = as_tensor(probabilities)
        chunks = checked_rows(nodes, self.hierarchy, self.width)
        slack = slack_of(nodes.dtype)
        shape = nodes.shape[:1] if numbers else nodes.shape
        dtype = torch.long if numbers else torch.bool
        out = torch.empty(shape, dtype=dtype, device=nodes.device)
        for rows, p in chunks:
            if self.needs_distribution:
                self.mass.check(p, rows.start, slack)
            out[rows] = decide(p)
        return out


def ancestor_sets(label_space: LabelSpace | Hierarchy, classes: Tensor) -> Tensor:
    """Return (N, C) bool: each class with its ancestors; nothing for the root, -1.

    Args:
        label_space: the taxonomy.
        classes: (N,) class numbers, -1 for the root.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    if classes.dim() != 1 or classes.is_floating_point() or classes.dtype == torch.bool:
        raise HierlearnError(
            f"classes must be (N,) class numbers, not {tuple(classes.shape)} {classes.dtype}"
        )
    count, device = len(hierarchy), classes.device
    if len(classes) and not (int(classes.min()) >= ROOT and int(classes.max()) < count):
        raise HierlearnError(
            f"class numbers {int(classes.min())}..{int(classes.max())} are outside -1..{count - 1}"
        )
    offsets, ids = (torch.tensor(part, device=device) for part in hierarchy.structure.closure)
    nothing = offsets.new_zeros(1)  # for the root, whose number -1 is the last place
    starts, sizes = torch.cat([offsets[:-1], nothing]), torch.cat([offsets.diff(), nothing])
    out = torch.zeros((len(classes), count), dtype=torch.bool, device=device)
    for rows in row_chunks(len(classes), int(sizes.max())):
        here = classes[rows].long()
        lengths = sizes[here]  # (n,)
        row = torch.arange(len(here), device=device).repeat_interleave(lengths)
        first = starts[here] - (lengths.cumsum(0) - lengths)
        out[rows][row, ids[first[row] + torch.arange(len(row), device=device)]] = True
    return out


# ---------------------------------------- edges


def positives(targets: Tensor) -> tuple[Ints, Ints]:
    """Return rows and class numbers of the positive entries, by row, then class."""
    rows, numbers = targets.nonzero().T.cpu().numpy()
    return rows, numbers


def check_closed(targets: Tensor, hierarchy: Hierarchy) -> None:
    """Raise for a positive class with a parent that is not positive."""
    rows, numbers = positives(targets)
    edges, fan_in = expand_ranges(hierarchy.structure.parent_offsets, numbers)
    above = hierarchy.structure.parent_ids[edges]
    flat = rows.repeat(fan_in) * len(hierarchy) + above
    holds = targets.reshape(-1)[torch.from_numpy(flat).to(targets.device)]
    if not bool(holds.all()):
        first = int((~holds).nonzero()[0])
        below = hierarchy.names[numbers.repeat(fan_in)[first]]
        raise HierlearnError(
            f"row {rows.repeat(fan_in)[first]}: targets are not closed: {below!r} is positive but "
            f"its parent {hierarchy.names[above[first]]!r} is not; make targets with "
            f"Hierarchy.encode"
        )


def topmost(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the true classes that have no true parent, (N, C) bool."""
    structure = hierarchy.structure
    parent = torch.tensor(structure.parent_ids, device=x.device)
    child = torch.tensor(structure.edge_children, device=x.device)
    covered = torch.zeros(x.shape, dtype=torch.int32, device=x.device)
    for rows in row_chunks(*x.shape):
        values = x[rows].index_select(1, parent).int()  # (n, E)
        covered[rows].scatter_add_(1, child.expand(len(values), -1), values)
    return x & (covered == 0)


def most_specific(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the true classes that have no true child, (N, C) bool."""
    structure = hierarchy.structure
    offsets = torch.tensor(structure.parent_offsets, device=x.device)
    parents = torch.tensor(structure.parent_ids, device=x.device)
    out = x.clone()
    for rows in row_chunks(*x.shape):
        row, number = x[rows].nonzero(as_tuple=True)
        fan_in = offsets[number + 1] - offsets[number]
        row = row.repeat_interleave(fan_in)
        first = (offsets[number] - (fan_in.cumsum(0) - fan_in)).repeat_interleave(fan_in)
        out[rows][row, parents[first + torch.arange(len(row), device=x.device)]] = False
    return out


def common_ancestors(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the classes at or above every true class, (N, C) bool; none where none is true."""
    tops = topmost(x, hierarchy).int()
    count = tops.sum(dim=1, keepdim=True)
    return (hierarchy.sum_up(tops) == count) & (count > 0)


def covering_subtrees(x: Tensor, label_space: LabelSpace) -> Tensor:
    """Return the classes whose subtrees make up sets that are closed under ancestors, (N, C) bool.

    Of the classes with every terminal class at or below them in the set these are the topmost; a
    single terminal class stands for itself. A most specific class of the set whose subtree is not
    in it, which is an inner terminal class, is among them too.

    Args:
        x: (N, C) bool, closed under ancestors.
        label_space: the taxonomy and its terminal classes.
    """
    hierarchy = label_space.hierarchy
    ends = torch.tensor(label_space.is_terminal, device=x.device)
    total = hierarchy.sum_up(ends.int())  # (C,)
    whole = x & (hierarchy.sum_up((x & ends).int()) == total)
    tops = topmost(whole, hierarchy)
    single = tops & (total == 1)  # of a chain the class that is terminal
    if (single & ~ends).any():
        below = hierarchy.max_down(single.to(torch.uint8)).bool() & ends
        tops = (tops & ~single) | below
    return tops | (most_specific(x, hierarchy) & ~whole)
