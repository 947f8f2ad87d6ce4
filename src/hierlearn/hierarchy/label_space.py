"""LabelSpace: what can be predicted, a hierarchy together with its terminal classes.

    terminal classes   the leaves, and the inner classes that occur as a most specific label

Wherever a label space is expected, a ``Hierarchy`` is accepted and means that only the leaves are
terminal.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.hierarchy import Hierarchy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.kernels.tree_layout import TreeLayout


class LabelSpace:
    """An immutable hierarchy with its terminal classes.

    Args:
        hierarchy: the taxonomy.
        terminals: the inner classes that are terminal; the leaves always are, named or not.

    Attributes:
        hierarchy: the taxonomy.
        terminals: (T,) the class numbers of all terminal classes, ascending.

    Example:
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> LabelSpace(h).terminal_names
        ('cat', 'dog/pug')
        >>> LabelSpace(h, ["dog"]).terminal_names
        ('cat', 'dog', 'dog/pug')
    """

    hierarchy: Hierarchy
    terminals: Ints

    def __init__(self, hierarchy: Hierarchy, terminals: Iterable[Label] | None = None) -> None:
        if not isinstance(hierarchy, Hierarchy):
            raise HierlearnError(
                f"a label space is made of a Hierarchy, not {type(hierarchy).__name__}; "
                f"build one with Hierarchy.from_paths"
            )
        if isinstance(terminals, str):
            raise HierlearnError(f"terminals is a list of classes, not the text {terminals!r}")
        named = () if terminals is None else terminals
        numbers = np.array([hierarchy.index(label) for label in named], dtype=np.int64)
        found = np.union1d(hierarchy.leaves, numbers)
        found.flags.writeable = False
        vars(self).update(hierarchy=hierarchy, terminals=found)

    @classmethod
    def of(cls, space: LabelSpace | Hierarchy) -> LabelSpace:
        """Return a label space as it is; of a hierarchy, the one whose terminals are the leaves."""
        return space if isinstance(space, LabelSpace) else cls(space)

    @classmethod
    def from_labels(cls, labels: Labels, also: Iterable[Label] = ()) -> LabelSpace:
        """Return the label space of training labels.

        Where the labels say nothing of what lies below them (``unlabeled_descendants="ignore"``),
        every row ends at a leaf that nobody named, so only the leaves are terminal.

        Args:
            labels: the labels of the training rows.
            also: classes that are terminal although no training row ends there.
        """
        if labels.unlabeled_descendants == "ignore":
            return cls(labels.hierarchy)
        return cls(labels.hierarchy, [*labels.terminal_classes.tolist(), *also])

    @classmethod
    def from_targets(cls, hierarchy: Hierarchy, targets: Tensor) -> LabelSpace:
        """Return the label space in which every row of closed targets can be predicted.

        Args:
            hierarchy: the taxonomy.
            targets: (N, C) closed multi-hot.
        """
        rows, numbers = (part.cpu().numpy() for part in (targets != 0).nonzero(as_tuple=True))
        return cls(hierarchy, np.unique(numbers[hierarchy.most_specific(rows, numbers)]).tolist())

    @cached_property
    def is_terminal(self) -> NDArray[np.bool_]:
        """(C,) whether each class is terminal."""
        flags = np.zeros(len(self.hierarchy), dtype=bool)
        flags[self.terminals] = True
        return flags

    @cached_property
    def layout(self) -> TreeLayout | None:
        """The tree as fused kernels read it; None for a DAG, and for trees that are too deep."""
        from hierlearn.kernels.tree_layout import MAX_LEVELS, TreeLayout

        structure = self.hierarchy.structure
        if not structure.is_tree or not 0 < structure.depth <= MAX_LEVELS:
            return None
        return TreeLayout(structure.first_parents, structure.level_offsets, self.is_terminal)

    @property
    def has_inner_terminals(self) -> bool:
        """Whether an inner class is terminal."""
        return len(self.terminals) > len(self.hierarchy.leaves)

    @property
    def terminal_names(self) -> tuple[str, ...]:
        """The names of the terminal classes."""
        return tuple(self.hierarchy.names[number] for number in self.terminals)

    def terminal_ids(self, device: Any = None) -> Tensor:
        """Return (T,) the class numbers of the terminal classes as a tensor."""
        import torch

        return torch.tensor(self.terminals, device=device)

    def __len__(self) -> int:
        return len(self.hierarchy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelSpace):
            return NotImplemented
        same = self.hierarchy == other.hierarchy
        return same and np.array_equal(self.terminals, other.terminals)

    def __hash__(self) -> int:
        return hash((self.hierarchy, self.terminals.tobytes()))

    def __repr__(self) -> str:
        return f"LabelSpace({self.hierarchy!r}, {len(self.terminals):,} terminal classes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return LabelSpace, (self.hierarchy, self.terminals.tolist())

    def __copy__(self) -> LabelSpace:
        return self

    def __deepcopy__(self, _: object) -> LabelSpace:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a LabelSpace is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a LabelSpace is immutable; {name} cannot be deleted")
