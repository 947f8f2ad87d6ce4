"""Builders: from paths, edges, parents, nested dictionaries, graphs and frames to a Hierarchy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.errors import HierarchyError, did_you_mean, quoted
from hierlearn.hierarchy.names import (
    NAMINGS,
    as_text,
    checked,
    checked_naming,
    checked_sep,
    is_missing,
    level_path,
    split_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import networkx as nx
    from numpy.typing import ArrayLike

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import NamedBy
    from hierlearn.hierarchy.structure import Ints


def parent_place(value: object, count: int) -> int:
    """Return a parent's number from JSON, or refuse it."""
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"{value!r} is no class number of 0..{count - 1}")
    return value


class _Nodes:
    """Collects nodes by key, and the edges between them."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}
        self.bare: list[str] = []
        self.child: list[int] = []
        self.parent: list[int] = []

    def add(self, key: Any, bare: str) -> int:
        number = self.number.setdefault(key, len(self.bare))
        if number == len(self.bare):
            self.bare.append(bare)
        return number

    def add_path(self, parts: Sequence[str]) -> bool:
        """Add a path and its prefixes; tell whether its last node is new."""
        above: int | None = None
        new = False
        for end in range(1, len(parts) + 1):
            key = tuple(parts[:end])
            new = key not in self.number
            node = self.add(key, parts[end - 1])
            if new and above is not None:
                self.link(above, node)
            above = node
        return new

    def link(self, parent: int, child: int) -> None:
        self.parent.append(parent)
        self.child.append(child)

    def edges(self) -> tuple[Ints, Ints]:
        return np.asarray(self.child, dtype=np.int64), np.asarray(self.parent, dtype=np.int64)


class Builders:
    """The class methods that build a Hierarchy."""

    _assemble: ClassVar[Any]

    @classmethod
    def from_paths(cls, paths: Iterable[str], *, sep: str = "/") -> Hierarchy:
        """Build a tree from paths such as ``"animal/dog/pug"``; prefixes need not be listed.

        Args:
            paths: each class once.
            sep: what joins the names of a path.
        """
        checked_sep(sep)
        nodes = _Nodes()
        listed: dict[str, int] = {}
        if isinstance(paths, str):
            raise HierarchyError(f"paths is a list of paths, not one text {paths!r}")
        for entry, path in enumerate(paths):
            if not isinstance(path, str):
                raise HierarchyError(f"path {entry} is {path!r}, which is not text")
            parts = split_path(path, sep)
            if path in listed:
                raise HierarchyError(
                    f"duplicate path {path!r}: entries {listed[path]} and {entry}; "
                    f"name each class once"
                )
            listed[path] = entry
            nodes.add_path(parts)
        return cls._finish(nodes, sep, named_by="path", joined=True)

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[Any, Any]],
        *,
        sep: str = "/",
        root: str | int | None = None,
        named_by: NamedBy | None = None,
    ) -> Hierarchy:
        """Build a tree or DAG from (parent, child) pairs of ids.

        Ids are unique: two classes that share a bare name need different ids, and an id that is
        its parent's id, the separator and a name is taken for the path that it is.

        Args:
            edges: pairs; a parent of None or "" makes its child a top class.
            sep: what joins the names of a path.
            root: the id that stands for the implicit root, if the edges have one.
            named_by: "path" or "id": what names a class; by default the path in a tree and the id
                in a DAG.
        """
        checked_sep(sep)
        root = None if root is None else as_text(root)
        nodes = _Nodes()
        seen: dict[tuple[str | None, str], int] = {}
        tops: set[str] = set()  # said to be at the top by an empty parent
        for entry, edge in enumerate(edges):
            if isinstance(edge, (str, bytes)) or not hasattr(edge, "__len__") or len(edge) != 2:
                raise HierarchyError(f"edge {entry} is {edge!r}; an edge is (parent, child)")
            above, below = (None if is_missing(end) else as_text(end) for end in edge)
            if below is None:
                raise HierarchyError(f"edge {entry} is {edge!r}; its child is empty")
            if root is not None and below == root:
                raise HierarchyError(f"edge {entry} makes the root {root!r} a child of {above!r}")
            if above is None:
                tops.add(below)
            above = None if above == root else above
            if (above, below) in seen:
                raise HierarchyError(
                    f"duplicate edge {above!r} -> {below!r}: "
                    f"entries {seen[above, below]} and {entry}"
                )
            seen[above, below] = entry
            node = nodes.add(below, below)
            if above is not None:
                nodes.link(nodes.add(above, above), node)
        for above, below in seen:
            if above is not None and below in tops:
                raise HierarchyError(f"class {below!r} stands at the top and below {above!r}")
        return cls._finish(nodes, sep, root=root or "root", named_by=named_by)

    @classmethod
    def from_parents(
        cls,
        parents: Mapping[Any, Any] | ArrayLike,
        names: Sequence[str] | None = None,
        *,
        sep: str = "/",
        root: str | int | None = None,
        named_by: NamedBy | None = None,
    ) -> Hierarchy:
        """Build from each class's parent.

        Args:
            parents: a mapping of ids to a parent id, a list of them, or None at the top; or an
                integer array with the parent's place, -1 at the top.
            names: with an array, the bare name of each node; by default its place.
            sep: what joins the names of a path.
            root: the id that stands for the implicit root, if the mapping has one.
            named_by: "path" or "id": what names a class; by default the path in a tree and the id
                in a DAG.
        """
        checked_sep(sep)
        if not isinstance(parents, Mapping):
            try:
                places = np.asarray(parents)
            except ValueError:
                raise HierarchyError("parents must be one row of integers; rows differ") from None
            return cls._from_parent_array(places, names, sep, named_by)
        if names is not None:
            raise HierarchyError("names go with a parent array; a mapping names its classes itself")
        root = None if root is None else as_text(root)
        nodes = _Nodes()
        lists: dict[str, list[str]] = {}
        for key, above in parents.items():
            name = as_text(key)
            if name in lists:
                raise HierarchyError(f"duplicate class: {key!r} and {name!r} are one id")
            several = isinstance(above, (list, tuple, set, frozenset))
            found = [as_text(one) for one in (above if several else [above]) if not is_missing(one)]
            lists[name] = [one for one in found if one != root]
            if name != root:
                nodes.add(name, name)
            elif lists[name]:
                raise HierarchyError(f"the root {root!r} has the parent {lists[name][0]!r}")
        for name, found in lists.items():
            for place, one in enumerate(found):
                if one not in nodes.number:
                    hint = did_you_mean(one, nodes.number)
                    raise HierarchyError(
                        f"class {name!r} has the unknown parent {one!r}"
                        f"{hint or '; list it too, with parent None if it is at the top'}"
                    )
                if one in found[:place]:
                    raise HierarchyError(f"duplicate edge {one!r} -> {name!r}")
                nodes.link(nodes.number[one], nodes.number[name])
        return cls._finish(nodes, sep, root=root or "root", named_by=named_by)

    @classmethod
    def _from_parent_array(
        cls,
        parents: np.ndarray[Any, Any],
        names: Sequence[str] | None,
        sep: str,
        named_by: NamedBy | None,
    ) -> Hierarchy:
        if parents.ndim != 1 or (parents.size and parents.dtype.kind not in "iu"):
            raise HierarchyError(
                f"parents must be one row of integers, not {parents.dtype} {parents.shape}"
            )
        count = len(parents)
        parents = parents.astype(np.int64)
        bad = np.flatnonzero((parents < -1) | (parents >= count))
        if len(bad):
            raise HierarchyError(
                f"node {bad[0]} has the unknown parent {parents[bad[0]]}; "
                f"parents are 0..{count - 1}, or -1 at the top"
            )
        ranks = None
        if names is None:
            names, ranks = [str(number) for number in range(count)], np.arange(count)
        elif len(names) != count:
            raise HierarchyError(f"{len(names)} names do not fit {count} parents")
        else:
            names = [checked(name, sep) for name in names]
        child = np.flatnonzero(parents >= 0)
        hierarchy: Hierarchy = cls._assemble(
            names, child, parents[child], sep=sep, ranks=ranks, named_by=checked_naming(named_by)
        )
        return hierarchy

    @classmethod
    def from_nested(cls, nested: Any, *, sep: str = "/") -> Hierarchy:
        """Build a tree from nested dictionaries and lists.

        ``{"animal": {"dog": ["bulldog", "pug"], "cat": {}}, "plant": ["oak"]}``; a node may also
        be written ``{"name": "dog", "children": [...]}``.
        """
        checked_sep(sep)
        nodes = _Nodes()
        stack: list[tuple[tuple[str, ...], Any]] = [((), nested)]
        while stack:
            above, content = stack.pop()
            for name, below in nested_items(content, above, sep):
                path = (*above, checked(name, sep))
                if not nodes.add_path(path):
                    raise HierarchyError(f"duplicate path {sep.join(path)!r}: name each class once")
                stack.append((path, below))
        return cls._finish(nodes, sep, named_by="path", joined=True)

    @classmethod
    def from_networkx(
        cls,
        graph: nx.DiGraph[Any],
        *,
        sep: str = "/",
        root: str | int | None = None,
        named_by: NamedBy | None = None,
    ) -> Hierarchy:
        """Build from a directed graph whose edges run from parent to child."""
        if not graph.is_directed():
            raise HierarchyError("the graph is undirected; edges must run from parent to child")
        parents = {node: list(graph.predecessors(node)) for node in graph.nodes}
        return cls.from_parents(parents, sep=sep, root=root, named_by=named_by)

    @classmethod
    def from_frame(
        cls, frame: Any, columns: Sequence[str] | None = None, *, sep: str = "/"
    ) -> Hierarchy:
        """Build a tree from a pandas or polars frame with a column a level, top level first.

        A row stops at its first missing cell; rows may repeat, as they do in a table of examples.

        Args:
            frame: the table.
            columns: the level columns in order; by default all.
            sep: what joins the names of a path.
        """
        checked_sep(sep)
        columns = list(frame.columns) if columns is None else list(columns)
        if len(set(columns)) < len(columns):
            again = next(name for name in columns if columns.count(name) > 1)
            raise HierarchyError(f"the column {again!r} stands twice in the frame or in columns")
        absent = [name for name in columns if name not in list(frame.columns)]
        if absent:
            raise HierarchyError(
                f"no column {quoted(absent)} in the frame; it has {quoted(frame.columns)}"
            )
        nodes = _Nodes()
        for row, cells in enumerate(zip(*(list(frame[name]) for name in columns), strict=True)):
            try:
                parts = level_path(cells, sep)
            except HierarchyError as error:
                raise HierarchyError(f"row {row}: {error}") from None
            if parts:
                nodes.add_path(parts)
        return cls._finish(nodes, sep, named_by="path", joined=True)

    @classmethod
    def from_json(cls, text: str) -> Hierarchy:
        """Build from the text of ``to_json``."""
        from hierlearn.hierarchy.hierarchy import FORMAT

        try:
            form = json.loads(text)
        except json.JSONDecodeError as error:
            raise HierarchyError(f"not JSON: {error}") from None
        if not isinstance(form, dict) or form.get("format") != FORMAT:
            raise HierarchyError(f"not a hierarchy: the JSON has no 'format': {FORMAT!r}")
        if form.get("version") != 1:
            raise HierarchyError(
                f"hierarchy version {form.get('version')!r} is not 1; "
                f"it was written by another version of hierlearn"
            )
        try:
            names, lists = form["names"], form["parents"]
            if not isinstance(names, list) or not isinstance(lists, list):
                raise TypeError("names and parents must be lists")
            if form["named_by"] not in NAMINGS or len(lists) != len(names):
                raise ValueError("names, parents and named_by do not fit")
            names = [checked(name, checked_sep(form["sep"])) for name in names]
            places = [[parent_place(one, len(names)) for one in above] for above in lists]
            if any(len(set(above)) < len(above) for above in places):
                raise ValueError("a class has the same parent twice")
        except HierarchyError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise HierarchyError(f"the JSON of a hierarchy is damaged: {error}") from None
        hierarchy: Hierarchy = cls._assemble(
            names,
            np.repeat(np.arange(len(names)), [len(above) for above in places]),
            np.array([one for above in places for one in above], dtype=np.int64),
            sep=form["sep"],
            root=str(form.get("root", "root")),
            named_by=form["named_by"],
        )
        return hierarchy

    @classmethod
    def read(
        cls, path: Path | str, *, form: str | None = None, sep: str = "/", root: str | None = None
    ) -> Hierarchy:
        """Read a hierarchy from a JSON, CSV, TSV, text, ARFF or OBO file.

        Args:
            path: the file; its ending tells the format.
            form: what the file holds where its ending leaves that open: "nested", "parents",
                "edges", "paths" or "levels".
            sep: what joins the names of a path.
            root: the id that stands for the implicit root, if the file has one.
        """
        from hierlearn.hierarchy.read import read_hierarchy

        return read_hierarchy(path, form=form, sep=sep, root=root)

    @classmethod
    def _finish(
        cls,
        nodes: _Nodes,
        sep: str,
        *,
        named_by: NamedBy | None = None,
        root: str = "root",
        joined: bool = False,
    ) -> Hierarchy:
        """Assemble what was collected; ``joined`` nodes came as paths and have bare names."""
        checked_naming(named_by)
        child, parent = nodes.edges()
        bare = nodes.bare
        if not joined:
            is_tree = np.bincount(child, minlength=1).max() <= 1
            if is_tree and named_by != "id":
                bare = strip_parents(bare, child, parent, sep)
            bare = [checked(name, sep) for name in bare]
        hierarchy: Hierarchy = cls._assemble(
            bare, child, parent, sep=sep, root=root, named_by=named_by
        )
        return hierarchy


def strip_parents(ids: list[str], child: Ints, parent: Ints, sep: str) -> list[str]:
    """Turn ids that are paths (parent's id, separator, name) into bare names."""
    bare = list(ids)
    for below, above in zip(child.tolist(), parent.tolist(), strict=True):
        prefix = ids[above] + sep
        if ids[below].startswith(prefix):
            bare[below] = ids[below][len(prefix) :]
    return bare


def nested_items(content: Any, above: tuple[str, ...], sep: str) -> list[tuple[str, Any]]:
    """Return the (name, content) pairs that a nested value lists."""
    if content is None:
        return []
    if isinstance(content, str):
        return [(content, None)]
    if isinstance(content, Mapping):
        if isinstance(content.get("name"), str):
            foreign = [key for key in content if key not in ("name", "children")]
            if foreign:
                raise HierarchyError(
                    f"the object of {content['name']!r} has keys beside name and children: "
                    f"{quoted(foreign)}; remove them"
                )
            return [(content["name"], content.get("children"))]
        return list(content.items())
    if isinstance(content, (list, tuple)):
        if any(isinstance(item, (list, tuple)) for item in content):
            raise HierarchyError(f"a list inside a list, {content!r:.60}, names no parent")
        return [pair for item in content for pair in nested_items(item, above, sep)]
    where = f"under {sep.join(above)!r}" if above else "at the top"
    raise HierarchyError(
        f"{where}: {content!r} ({type(content).__name__}) is neither a name nor a dict or list"
    )
