"""Collecting nodes and edges: the steps of the builders before a Hierarchy is assembled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierarchyError, did_you_mean, quoted
from hierlearn.hierarchy.names import as_text, is_missing
from hierlearn.hierarchy.titles import checked_title, set_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hierlearn.hierarchy.structure import Ints

    Edge = tuple[str | None, str]  # parent, None at the top, and child

NODE_KEYS = ("name", "title", "children")  # of a class written as an object


class NodeCollector:
    """Collects nodes by key, and the edges between them."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}
        self.bare: list[str] = []
        self.child: list[int] = []
        self.parent: list[int] = []
        self._titles: dict[int, str | None] = {}  # by number

    def add(self, key: Any, bare: str) -> int:
        """Add a node unless its key is known; return its number."""
        number = self.number.setdefault(key, len(self.bare))
        if number == len(self.bare):
            self.bare.append(bare)
        return number

    def add_path(self, parts: Sequence[str]) -> tuple[int, bool]:
        """Add a path and its prefixes; return the number of its last node, and if it is new."""
        above, new = -1, False
        for name in parts:
            above, new = self.add_below(above, name)
        return above, new

    def add_below(self, above: int, name: str) -> tuple[int, bool]:
        """Add a node below another one, or at the top of -1; return its number, and if it is new.

        Nodes are known by parent and name, so a deep path takes no more memory than its names.
        """
        known = len(self.bare)
        node = self.add((above, name), name)
        if node == known and above >= 0:
            self.link(above, node)
        return node, node == known

    def link(self, parent: int, child: int) -> None:
        """Add an edge."""
        self.parent.append(parent)
        self.child.append(child)

    def set_title(self, node: int, value: object) -> None:
        """Give a node a title; a missing one says nothing, another one raises."""
        name = self.bare[node]
        title = checked_title(value, name)
        if title is not None:
            set_title(self._titles, node, title, name)

    def titles(self) -> list[str | None]:
        """Return the title of each node."""
        return [self._titles.get(number) for number in range(len(self.bare))]

    def edges(self) -> tuple[Ints, Ints]:
        """Return the children and the parents of all edges."""
        return np.asarray(self.child, dtype=np.int64), np.asarray(self.parent, dtype=np.int64)


# ---------------------------------------- edges


def nodes_from_edges(edges: Iterable[tuple[Any, Any]], root: str | None) -> NodeCollector:
    """Collect the nodes of (parent, child) pairs of ids."""
    nodes = NodeCollector()
    seen: dict[Edge, int] = {}
    tops: set[str] = set()  # listed with an empty parent
    for entry, edge in enumerate(edges):
        above, below = edge_ends(entry, edge, root)
        if above is None:
            tops.add(below)
        above = None if above == root else above
        if (above, below) in seen:
            raise HierarchyError(
                f"duplicate edge {above!r} -> {below!r}: entries {seen[above, below]} and {entry}"
            )
        seen[above, below] = entry
        node = nodes.add(below, below)
        if above is not None:
            nodes.link(nodes.add(above, above), node)
    for above, below in seen:
        if above is not None and below in tops:
            raise HierarchyError(f"class {below!r} stands at the top and below {above!r}")
    return nodes


def edge_ends(entry: int, edge: Any, root: str | None) -> Edge:
    """Return the parent, or None, and the child of an edge; raise if it is none."""
    if isinstance(edge, (str, bytes)) or not hasattr(edge, "__len__") or len(edge) != 2:
        raise HierarchyError(f"edge {entry} is {edge!r}; an edge is (parent, child)")
    above, below = (None if is_missing(end) else as_text(end) for end in edge)
    if below is None:
        raise HierarchyError(f"edge {entry} is {edge!r}; its child is empty")
    if root is not None and below == root:
        raise HierarchyError(f"edge {entry} makes the root {root!r} a child of {above!r}")
    return above, below


# ---------------------------------------- parent maps


def nodes_from_parents(parents: Mapping[Any, Any], root: str | None) -> NodeCollector:
    """Collect the nodes of a mapping from ids to a parent id, a list of them, or None."""
    lists = parent_lists(parents, root)
    nodes = NodeCollector()
    for name in lists:
        if name != root:
            nodes.add(name, name)
    for name, above in lists.items():
        seen: set[str] = set()
        for one in above:
            if one not in nodes.number:
                hint = did_you_mean(one, nodes.number)
                raise HierarchyError(
                    f"class {name!r} has the unknown parent {one!r}"
                    f"{hint or '; list it too, with parent None if it is at the top'}"
                )
            if one in seen:
                raise HierarchyError(f"duplicate edge {one!r} -> {name!r}")
            seen.add(one)
            nodes.link(nodes.number[one], nodes.number[name])
    return nodes


def parent_lists(parents: Mapping[Any, Any], root: str | None) -> dict[str, list[str]]:
    """Return the parents of each id as texts, without the root."""
    lists: dict[str, list[str]] = {}
    for key, above in parents.items():
        name = as_text(key)
        if name in lists:
            raise HierarchyError(f"duplicate class: {key!r} and {name!r} are one id")
        several = isinstance(above, (list, tuple, set, frozenset))
        found = [as_text(one) for one in (above if several else [above]) if not is_missing(one)]
        lists[name] = [one for one in found if one != root]
        if name == root and lists[name]:
            raise HierarchyError(f"the root {root!r} has the parent {lists[name][0]!r}")
    return lists


def add_titles(nodes: NodeCollector, titles: Mapping[Any, Any] | None, root: str | None) -> None:
    """Give collected nodes their titles by id; raise on an unknown id."""
    for key, title in (titles or {}).items():
        name = as_text(key)
        if name == root:  # which is no class
            continue
        if name not in nodes.number:
            hint = did_you_mean(name, nodes.number)
            raise HierarchyError(f"the title {title!r} is that of the unknown class {name!r}{hint}")
        nodes.set_title(nodes.number[name], title)


# ---------------------------------------- names and nesting


def strip_parents(ids: list[str], child: Ints, parent: Ints, sep: str) -> list[str]:
    """Turn ids that are paths (parent's id, separator, name) into bare names."""
    bare = list(ids)
    for below, above in zip(child.tolist(), parent.tolist(), strict=True):
        prefix = ids[above] + sep
        if ids[below].startswith(prefix):
            bare[below] = ids[below][len(prefix) :]
    return bare


def nested_items(content: Any, above: tuple[str, ...], sep: str) -> list[tuple[str, Any, Any]]:
    """Return the (name, content, title) triples that a nested value lists."""
    if content is None:
        return []
    if isinstance(content, str):
        return [(content, None, None)]
    if isinstance(content, Mapping):
        if isinstance(content.get("name"), str):
            foreign = [key for key in content if key not in NODE_KEYS]
            if foreign:
                raise HierarchyError(
                    f"the object of {content['name']!r} has keys other than "
                    f"{', '.join(NODE_KEYS)}: {quoted(foreign)}; remove them"
                )
            return [(content["name"], content.get("children"), content.get("title"))]
        return [(name, below, None) for name, below in content.items()]
    if isinstance(content, (list, tuple)):
        if any(isinstance(item, (list, tuple)) for item in content):
            raise HierarchyError(f"a list inside a list, {content!r:.60}, names no parent")
        return [one for item in content for one in nested_items(item, above, sep)]
    where = f"under {sep.join(above)!r}" if above else "at the top"
    raise HierarchyError(
        f"{where}: {content!r} ({type(content).__name__}) is neither a name nor a dict or list"
    )
