"""Aliases: labels that are no class of a hierarchy but stand for some.

    aliases    another id of a class, such as ``alt_id`` and ``replaced_by`` of an OBO file
    pruned     a class that was removed -> its nearest ancestors that were kept; none where no
               ancestor was
    obsolete   the id of an obsolete term -> the terms that may take its place, which a person
               has to choose from

They are no part of equality and of the fingerprint. Namespaces, too, come from OBO files.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierarchyError, LabelError, quoted, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from hierlearn.hierarchy.nodes import Nodes
    from hierlearn.hierarchy.structure import Ints

Targets = dict[str, tuple[str, ...]]
NO_TARGETS: Targets = {}


class Aliases:
    """The part of a Hierarchy that knows labels which are no class of it."""

    aliases: Mapping[str, tuple[str, ...]]
    pruned: Mapping[str, tuple[str, ...]]
    obsolete: Mapping[str, tuple[str, ...]]
    namespaces: tuple[str | None, ...]  # of every class, None where it has none

    def resolve(self, label: str | int) -> tuple[int, ...]:
        """Return the numbers of the classes that a label stands for.

        That is the class itself, the class of an alias, or the nearest ancestors of a class that
        was pruned: one, several in a DAG, or none.

        Raises:
            LabelError: naming the nearest known labels.
        """
        nodes: Any = self
        if not isinstance(label, str) or label in nodes._by_name:
            return (nodes.index(label),)
        names = self.stand_ins(label)
        return (nodes.index(label),) if names is None else tuple(nodes.index(one) for one in names)

    def nearest_known(self, label: str) -> tuple[str, ...]:
        """Return the classes of a label, or of the longest beginning of its path that has any.

        Example:
            >>> from hierlearn import Hierarchy
            >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
            >>> h.nearest_known("dog/beagle"), h.nearest_known("fish/carp")
            (('dog',), ())
        """
        nodes: Any = self
        while True:
            if label in nodes or self.stand_ins(label) is not None:
                return tuple(nodes.names[number] for number in self.resolve(label))
            above, found, _ = label.rpartition(nodes.sep)
            if not found:
                return ()
            label = above

    def stand_ins(self, label: str) -> tuple[str, ...] | None:
        """Return the classes that an alias or a pruned class stands for; None for other labels."""
        if label in self.aliases:
            return self.aliases[label]
        if label in self.pruned:
            return self.pruned[label]
        return None if label in self else self._pruned_by_bare.get(label)  # type: ignore[operator]

    @cached_property
    def _pruned_by_bare(self) -> dict[str, tuple[str, ...]]:
        """What the bare names of pruned classes stand for, where only one class has the name."""
        nodes: Any = self
        if nodes.named_by == "id":
            return {}
        found: dict[str, tuple[str, ...] | None] = {}
        for name, above in self.pruned.items():
            bare = name.rsplit(nodes.sep, 1)[-1]
            found[bare] = None if bare in found else above
        return {bare: above for bare, above in found.items() if above is not None}

    def explain_label(self, label: str) -> str | None:
        """Return why a label is no class, in one sentence with the remedy; None if unknown."""
        names = self.stand_ins(label)
        if names is not None and label in self.aliases:
            return f"label {label!r} was replaced by {quoted(names)}; name one of them"
        if names is not None:
            kept = f"its rows count for {quoted(names)}" if names else "no ancestor of it was kept"
            return f"label {label!r} was pruned from this hierarchy; {kept}"
        if label in self.obsolete:
            instead = self.obsolete[label]
            remedy = f"consider {quoted(instead)}" if instead else "nothing replaces it"
            return f"label {label!r} is an obsolete term; {remedy}"
        return None

    @property
    def namespace_names(self) -> tuple[str, ...]:
        """The namespaces that occur, in order of their first class."""
        return tuple(dict.fromkeys(one for one in self.namespaces if one is not None))

    def in_namespace(self, namespace: str) -> Ints:
        """Return the numbers of the classes of a namespace, ascending."""
        known = self.namespace_names
        if not known:
            raise HierarchyError(
                "this hierarchy has no namespaces; those of an OBO file are kept in JSON"
            )
        if namespace not in known:
            raise HierarchyError(unknown_name("namespace", namespace, known))
        return np.array([n for n, one in enumerate(self.namespaces) if one == namespace])

    def with_aliases(
        self,
        *,
        aliases: Mapping[str, Iterable[str]] | None = None,
        pruned: Mapping[str, Iterable[str]] | None = None,
        obsolete: Mapping[str, Iterable[str]] | None = None,
        namespaces: Mapping[str, str | None] | None = None,
    ) -> Self:
        """Return an equal hierarchy with other aliases; what is None stays as it is.

        Args:
            aliases: other ids -> the classes that they stand for.
            pruned: removed classes -> the classes that their rows count for.
            obsolete: ids of obsolete terms -> the terms to consider instead.
            namespaces: class -> its namespace.

        Raises:
            LabelError: naming an alias that stands for no class.
        """
        nodes: Any = self
        new: Any = object.__new__(type(self))
        state = {key: value for key, value in vars(self).items() if key != "_pruned_by_bare"}
        for name, mapping in (("aliases", aliases), ("pruned", pruned)):
            if mapping is not None:
                state[name] = checked_targets(nodes, mapping)
        if obsolete is not None:
            state["obsolete"] = {key: tuple(value) for key, value in obsolete.items()}
        if namespaces is not None:
            numbered = {nodes.index(name, exact=True): one for name, one in namespaces.items()}
            state["namespaces"] = tuple(map(numbered.get, range(len(nodes))))
        vars(new).update(state)
        found: Self = new
        return found


def checked_targets(nodes: Nodes, mapping: Mapping[str, Iterable[str]]) -> Targets:
    """Return what labels stand for; raise on a label that is a class, or stands for none."""
    found: Targets = {}
    for label, names in mapping.items():
        if label in nodes._by_name:
            raise LabelError(f"{label!r} is a class of the hierarchy and cannot be an alias too")
        found[label] = tuple(nodes.names[nodes.index(name, exact=True)] for name in names)
    return found


def pruned_targets(old: Any, keep: Ints) -> tuple[Targets, Targets]:
    """Return the aliases and the pruned classes of what is left of a hierarchy.

    Args:
        old: the hierarchy.
        keep: the numbers of the classes that are kept, closed under ancestors.
    """
    is_kept = np.zeros(len(old), dtype=bool)
    is_kept[keep] = True
    removed = np.flatnonzero(~is_kept)
    offsets, ids = old.structure.closure
    starts = np.concatenate([[0], np.cumsum(np.diff(offsets)[removed])])
    rows = np.repeat(np.arange(len(removed)), np.diff(starts))
    numbers = ids[np.repeat(offsets[removed] - starts[:-1], np.diff(starts)) + np.arange(len(rows))]
    above = is_kept[numbers]
    rows, numbers = rows[above], numbers[above]
    nearest = old.most_specific(rows, numbers)
    pruned: Targets = {old.names[number]: () for number in removed}
    for row, number in zip(rows[nearest].tolist(), numbers[nearest].tolist(), strict=True):
        pruned[old.names[removed[row]]] += (old.names[number],)
    aliases: Targets = {}

    def moved(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for name in names for one in pruned.get(name, (name,))))

    for label, names in old.aliases.items():
        whole = all(name not in pruned for name in names)
        (aliases if whole else pruned)[label] = moved(names)
    before = {label: moved(names) for label, names in old.pruned.items()}
    return aliases, {**before, **pruned}
