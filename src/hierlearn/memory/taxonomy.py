"""A taxonomy that changes: new classes, and classes renamed, merged, split, moved or removed.

The labels of remembered rows follow by name; nothing is trained.

    grown     a hierarchy with the classes of new labels, below their parents
    Remap     where every class of the old hierarchy goes in a new one
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import HierlearnError, arg, plural, quoted
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.names import inherit_titles
from hierlearn.memory.store import LabelSets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hierlearn.hierarchy.structure import Ints


def grown(hierarchy: Hierarchy, labels: Iterable[str]) -> Hierarchy:
    """Return a hierarchy with the classes that labels name and it lacks.

    Args:
        hierarchy: a hierarchy whose classes are named by their paths.
        labels: paths; a new class hangs below its parent, which must be there or be named too. A
            label without a parent could be a typing error: it becomes a class only where the
            hierarchy is flat.

    Raises:
        HierlearnError: naming a class whose parent is not known.
    """
    new = sorted({label for label in labels if label not in hierarchy})
    if not new:
        return hierarchy
    if hierarchy.named_by != "path":
        raise HierlearnError(
            f"the hierarchy has no {quoted(new, most=3)}, and names do not tell their parents; "
            f"pass the hierarchy that has them as {arg('hierarchy=')}"
        )
    known = {*hierarchy.names, *new}
    for name in new:
        parent, sep, _ = name.rpartition(hierarchy.sep)
        if not sep and hierarchy.depth > 1:
            if name in hierarchy.bare_names:
                hierarchy.index(name)  # raises: it is ambiguous
            raise HierlearnError(
                f"the hierarchy has no class {name!r}, and a new top class is not taken from a "
                "label; correct the label, or pass the hierarchy that has it as "
                f"{arg('hierarchy=')}"
            )
        if sep and parent not in known:
            raise HierlearnError(
                f"the hierarchy has neither {name!r} nor a parent for it; correct the label, or "
                f"pass the hierarchy that has it as {arg('hierarchy=')}"
            )
    return inherit_titles(
        Hierarchy.from_paths([*hierarchy.names, *new], sep=hierarchy.sep), hierarchy
    )


def unplaced(old: Hierarchy, new: Hierarchy, mapping: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the classes of a hierarchy that have no place in another one, by name or mapping.

    Args:
        old: the hierarchy.
        new: the one that replaces it.
        mapping: as of ``Remap``; names that ``old`` lacks are skipped.
    """
    named = {old.names[old.index(name)] for name in mapping if name in old}
    known = {*named, *new.names}  # a node is its path: no bare names
    return [name for name in old.names if name not in known]


@dataclass(frozen=True)
class Remap:
    """Where every class of one hierarchy goes in another.

    Args:
        old: the hierarchy of the remembered rows.
        new: the hierarchy that replaces it; classes without a title keep the old one.
        mapping: old name -> new names: a single one if the class is renamed, moved or merged with
            others, several if it is split, none if it is removed. Classes that are not named keep
            their whole names; in the mapping an unambiguous bare name will do.

    Raises:
        HierlearnError: naming classes without a place in the new hierarchy.
    """

    old: Hierarchy
    new: Hierarchy
    mapping: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        for name, targets in self.mapping.items():
            if name not in self.old:
                raise HierlearnError(f"the mapping renames {name!r}, which is no class so far")
            for target in targets:
                if target not in self.new:
                    raise HierlearnError(
                        f"the mapping sends {name!r} to {target!r}, which the new hierarchy lacks"
                    )
        lost = unplaced(self.old, self.new, self.mapping)
        if lost:
            raise HierlearnError(
                f"{plural(len(lost), 'class has', 'classes have')} no place in the new hierarchy: "
                f"{quoted(lost, most=5)}; map each to its new name, or to nothing to send "
                f"its rows to the parent"
            )
        object.__setattr__(self, "new", self._with_old_titles())

    def _with_old_titles(self) -> Hierarchy:
        """Return the new hierarchy with the old titles of classes that it has no title for.

        They are those of the same name, and those that one class alone was renamed to.
        """
        if not self.old.has_titles:
            return self.new
        kept, known = inherit_titles(self.new, self.old), set(self.old.names)
        ends = {name: one[0] for name, one in self._named.items() if len(one) == 1}
        often = Counter(ends.values())
        moved = {
            end: self.old.title(name)
            for name, end in ends.items()
            if often[end] == 1 and end not in known and kept.title(end) is None
        }
        return kept.with_titles(moved)

    @cached_property
    def _named(self) -> dict[str, tuple[str, ...]]:
        """The mapping by full names."""
        found = {}
        for name, targets in self.mapping.items():
            ends = tuple(self.new.names[self.new.index(target)] for target in targets)
            found[self.old.names[self.old.index(name)]] = tuple(dict.fromkeys(ends))
        return found

    @cached_property
    def destinations(self) -> list[list[int]]:
        """The classes of the new hierarchy for a row that ends at each class of the old one.

        Of a class that is split it is the lowest common ancestor of its parts, of a removed one
        what its parents become; none where that is the root.
        """
        found: list[list[int]] = []
        for number, name in enumerate(self.old.names):  # parents come first
            targets = self._named.get(name, (name,))
            if not targets:
                above = {one for parent in self.old.parents(number) for one in found[parent]}
                found.append(sorted(above))
            elif len(targets) == 1:
                found.append([self.new.index(targets[0])])
            else:
                common: int | None = self.new.index(targets[0])
                for target in targets[1:]:
                    common = (
                        None if common is None else self.new.lca(common, self.new.index(target))
                    )
                found.append([] if common is None else [common])
        return found

    def single_destinations(self, classes: Iterable[int]) -> list[int]:
        """Return where some old classes went that were neither split nor removed."""
        names = [self.old.names[number] for number in classes]
        ends = [self._named.get(name, (name,)) for name in names]
        return sorted({self.new.index(one[0]) for one in ends if len(one) == 1})

    def labels(self, rows: LabelSets, own: Mapping[int, Sequence[str]] | None = None) -> LabelSets:
        """Return the labels of remembered rows in the new hierarchy.

        Args:
            rows: their labels in the old one.
            own: the new labels of single rows, by row number: for those of a class that is split.
        """
        offsets, numbers = rows.sets.terminal
        sets = []
        for begin, end in pairwise(offsets):
            ends = {d for number in numbers[begin:end] for d in self.destinations[number]}
            sets.append(sorted(ends))
        of_row = rows.of_row.copy()
        for row, labels in (own or {}).items():
            of_row[row] = len(sets)
            sets.append(sorted({self.new.index(label) for label in labels}))
        return label_sets(sets, of_row, self.new, rows.sets.unlabeled_descendants)

    def summary(self, rows: LabelSets) -> dict[str, int]:
        """Return how many classes change, and how many rows with them.

        Args:
            rows: the labels of the remembered rows.
        """
        counts = np.bincount(rows.of_row, minlength=len(rows.sets))
        offsets, numbers = rows.sets.terminal
        changed = np.array([self.is_changed(number) for number in range(len(self.old))])
        moved = [bool(changed[numbers[begin:end]].any()) for begin, end in pairwise(offsets)]
        targets = [self._named.get(name, (name,)) for name in self.old.names]
        single = Counter(ends[0] for ends in targets if len(ends) == 1)
        shared = {name for name, count in single.items() if count > 1}
        kinds = {
            "renamed or moved": sum(
                len(ends) == 1 and ends[0] != name and ends[0] not in shared
                for name, ends in zip(self.old.names, targets, strict=True)
            ),
            "merged": sum(len(ends) == 1 and ends[0] in shared for ends in targets),
            "split": sum(len(ends) > 1 for ends in targets),
            "removed": sum(not ends for ends in targets),
        }
        reached = {one for ends in targets for one in ends}
        return {
            "classes before": len(self.old),
            "classes after": len(self.new),
            **kinds,
            "new": sum(name not in reached for name in self.new.names),
            "rows": len(rows),
            "rows whose label changes": int(counts[np.array(moved, dtype=bool)].sum()),
        }

    def is_changed(self, number: int) -> bool:
        """Whether a class has another name, other ancestors, or no single place any more."""
        name = self.old.names[number]
        if self._named.get(name, (name,)) != (name,):
            return True
        above = {self.new.names[one] for one in self.new.ancestors(self.new.index(name))}
        return above != {self.old.names[one] for one in self.old.ancestors(number)}


def label_sets(
    sets: Sequence[Sequence[int]], of_row: Ints, hierarchy: Hierarchy, policy: str
) -> LabelSets:
    """Return label sets given by class numbers; equal ones become one."""
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
    numbers = np.array([number for one in sets for number in one], dtype=np.int64)
    labels = Labels.from_numbers(offsets, numbers, hierarchy, policy)  # type: ignore[arg-type]
    return LabelSets.from_labels(labels).take(of_row)
