"""Builders: from paths, edges, parents, nested dictionaries, graphs and frames to a Hierarchy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hierlearn.errors import HierarchyError, LabelError, did_you_mean, plural, quoted
from hierlearn.files.reading import parse_json as read_value
from hierlearn.hierarchy.names import (
    NAMINGS,
    as_text,
    check_depth,
    check_total,
    checked,
    checked_naming,
    checked_sep,
    checked_title,
    has_gap,
    is_missing,
    level_path,
    natural_ranks,
    parents_of,
    set_title,
    split_path,
    warn_of_gaps,
)
from hierlearn.hierarchy.structure import Cycle, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import networkx as nx
    from numpy.typing import ArrayLike

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.names import NamedBy
    from hierlearn.hierarchy.structure import Ints

    Direction = Literal["parent-to-child", "child-to-parent"]
    Edge = tuple[str | None, str]  # parent, None at the top, and child

NODE_KEYS = ("name", "title", "children")  # of a class written as an object
FORMAT = "hierlearn.hierarchy"
VERSION = 1
BESIDE = ("aliases", "pruned", "obsolete")


Targets = dict[str, tuple[str, ...]]


class Builders:
    """The class methods that build a Hierarchy."""

    @classmethod
    def _assemble(
        cls,
        bare: Sequence[str],
        child: Ints,
        parent: Ints,
        *,
        sep: str,
        root: str = "root",
        named_by: NamedBy | None = None,
        ranks: Ints | None = None,
        titles: Sequence[str | None] | None = None,
    ) -> Hierarchy:
        """Make the hierarchy of the nodes ``bare`` and the edges ``parent[i] -> child[i]``."""
        if not len(bare):
            raise HierarchyError("a hierarchy needs at least one class; this one has none")
        ranks = natural_ranks(bare) if ranks is None else ranks
        try:
            structure, order = arrange(child, parent, len(bare), ranks)
        except Cycle as cycle:
            nodes = [*cycle.nodes, cycle.nodes[0]]
            names = " -> ".join(repr(bare[node]) for node in nodes)
            kind = "class is its own parent" if len(nodes) == 2 else "cycle"
            raise HierarchyError(f"{kind}: {names}; remove one of these edges") from None
        named_by = named_by or ("path" if structure.is_tree else "id")
        check_total(structure, [len(bare[node]) for node in order], named_by, len(sep))
        self: Hierarchy = object.__new__(cls)  # type: ignore[assignment]  # Builders alone is none
        state = {
            "structure": structure,
            "bare_names": tuple(bare[node] for node in order),
            "titles": tuple(None if titles is None else titles[node] for node in order),
            "sep": sep,
            "root": root,
            "named_by": named_by,
            "namespaces": (None,) * len(bare),
            "aliases": {},
            "pruned": {},
            "obsolete": {},
        }
        self.__dict__.update(state)
        above = structure.first_parents.tolist() if named_by == "path" else [0] * len(self)
        seen: set[tuple[int, str]] = set()
        for number, key in enumerate(zip(above, self.bare_names, strict=True)):
            if key in seen:
                raise HierarchyError(f"duplicate path {self.names[number]!r}: name each class once")
            seen.add(key)
        return self

    @classmethod
    def from_paths(cls, paths: Iterable[str], *, sep: str = "/") -> Hierarchy:
        """Build a tree from paths such as ``"animal/dog/pug"``; prefixes need not be listed.

        Args:
            paths: each class once.
            sep: what joins the names of a path.
        """
        checked_sep(sep)
        nodes = NodeCollector()
        listed: dict[str, int] = {}
        if isinstance(paths, str):
            raise HierarchyError(f"paths must be a list of paths, not the string {paths!r}")
        if isinstance(paths, Mapping):
            raise HierarchyError(
                f"paths must be a list of paths, not a mapping of {plural(len(paths), 'key')}; a "
                f"nested mapping is for from_nested"
            )
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
        titles: Mapping[Any, str | None] | None = None,
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
            titles: id -> title, for classes that have one.
        """
        checked_sep(sep)
        root = None if root is None else as_text(root)
        nodes = nodes_from_edges(edges, root)
        add_titles(nodes, titles, root)
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
        titles: Mapping[Any, str | None] | None = None,
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
            titles: with a mapping, id -> title, for classes that have one.
        """
        checked_sep(sep)
        if not isinstance(parents, Mapping):
            if titles is not None:
                raise HierarchyError(
                    "titles go with a mapping of parents; after a parent array, use with_titles"
                )
            try:
                places = np.asarray(parents)
            except ValueError:
                raise HierarchyError("parents must be one row of integers; rows differ") from None
            return cls._from_parent_array(places, names, sep, named_by)
        if names is not None:
            raise HierarchyError("names go with a parent array; a mapping names its classes itself")
        root = None if root is None else as_text(root)
        nodes = nodes_from_parents(parents, root)
        add_titles(nodes, titles, root)
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
        be written ``{"name": "dog", "title": "Domestic dog", "children": [...]}``.
        """
        checked_sep(sep)
        nodes = NodeCollector()
        # What waits shares the path above it: a deep node may have many children.
        stack: list[tuple[tuple[str, ...], int, Any]] = [((), -1, nested)]
        while stack:
            above, number, content = stack.pop()
            path = (*above, nodes.bare[number]) if number >= 0 else above
            check_depth(len(path))
            for name, below, title in nested_items(content, path, sep):
                node, is_new = nodes.add_below(number, checked(name, sep))
                if not is_new:
                    whole = sep.join([*path, nodes.bare[node]])
                    raise HierarchyError(f"duplicate path {whole!r}: name each class once")
                nodes.set_title(node, title)
                stack.append((path, node, below))
        return cls._finish(nodes, sep, named_by="path", joined=True)

    @classmethod
    def from_networkx(
        cls,
        graph: nx.DiGraph[Any],
        *,
        sep: str = "/",
        root: str | int | None = None,
        named_by: NamedBy | None = None,
        direction: Direction | None = None,
    ) -> Hierarchy:
        """Build from a directed graph.

        The node attribute ``title`` holds the title of a class, if there is any.

        Args:
            graph: of networkx.
            sep: what joins the names of a path.
            root: the id that stands for the implicit root, if the graph has one.
            named_by: "path" or "id": what names a class; by default the path in a tree and the id
                in a DAG.
            direction: where the edges run, "parent-to-child" or "child-to-parent"; needed only if
                the first, which is the default, would make more top classes than leaves.
        """
        if not graph.is_directed():
            raise HierarchyError("the graph is undirected; edges must run from parent to child")
        parents = parents_of(graph, direction)
        titles = dict(graph.nodes(data="title"))
        return cls.from_parents(parents, sep=sep, root=root, named_by=named_by, titles=titles)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        columns: Sequence[str] | None = None,
        *,
        sep: str = "/",
        title_column: str | None = None,
    ) -> Hierarchy:
        """Build a tree from a pandas or polars frame with one column per level, top level first.

        Rows may repeat, as they do in a table of examples. Cells are missing below the last level
        that is known; one above it is left out, with a warning.

        Args:
            frame: the table.
            columns: the level columns in order; by default all.
            sep: what joins the names of a path.
            title_column: a column with the title of the class that a row ends at.
        """
        checked_sep(sep)
        others = [name for name in frame.columns if name != title_column]
        columns = others if columns is None else list(columns)
        if len(set(columns)) < len(columns):
            repeated = next(name for name in columns if columns.count(name) > 1)
            raise HierarchyError(f"the column {repeated!r} stands twice in the frame or in columns")
        titled = [] if title_column is None else [title_column]
        if set(titled) & set(columns):
            raise HierarchyError(f"the column {title_column!r} is named as level and as titles")
        absent = [name for name in (*columns, *titled) if name not in list(frame.columns)]
        if absent:
            raise HierarchyError(
                f"no column {quoted(absent)} in the frame; it has {quoted(frame.columns)}"
            )
        nodes = NodeCollector()
        gaps: list[tuple[int, str]] = []
        lists = [list(frame[name]) for name in (*columns, *titled)]
        for row, cells in enumerate(zip(*lists, strict=True)):
            try:
                parts = level_path(cells[: len(columns)], sep)
                if parts:
                    node, _ = nodes.add_path(parts)
                    if titled:
                        nodes.set_title(node, cells[-1])
            except HierarchyError as error:
                raise HierarchyError(f"row {row}: {error.message}") from None
            if has_gap(cells[: len(columns)]):
                gaps.append((row, sep.join(parts)))
        if gaps:
            warn_of_gaps("the frame", len(gaps), f"row {gaps[0][0]}", gaps[0][1])
        return cls._finish(nodes, sep, named_by="path", joined=True)

    @classmethod
    def from_json(cls, text: str) -> Hierarchy:
        """Build from the text of ``to_json``."""
        form = parse_json(text)
        counts = [len(above) for above in form.parents]
        hierarchy: Hierarchy = cls._assemble(
            form.names,
            np.repeat(np.arange(len(form.names)), counts),
            np.array([one for above in form.parents for one in above], dtype=np.int64),
            sep=form.sep,
            root=form.root,
            named_by=form.named_by,
            titles=form.titles,
        )
        if not form.beside:
            return hierarchy
        try:
            return hierarchy.with_aliases(**form.beside)
        except LabelError as error:
            raise HierarchyError(f"the JSON of a hierarchy is damaged: {error.message}") from None

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        form: str | None = None,
        sep: str = "/",
        root: str | None = None,
        title_column: str | None = None,
        relationships: Sequence[str] | None = None,
        language: str | None = None,
    ) -> Hierarchy:
        """Read a hierarchy from a JSON, CSV, TSV, text, ARFF, OBO or RDF (SKOS, OWL) file.

        Args:
            path: the file; its extension determines the format, and may be followed by that of a
                compression, such as .gz.
            form: what the file holds where its extension leaves that open: "nested", "parents",
                "edges", "paths" or "levels".
            sep: what joins the names of a path.
            root: the id that stands for the implicit root, if the file has one.
            title_column: the column of titles of a CSV or TSV file, where it is not "title".
            relationships: which lines of an OBO file lead to parents; by default is_a and part_of.
            language: of the titles in an RDF file, such as "de"; by default English where there is
                any.
        """
        from hierlearn.hierarchy.formats.read import read_hierarchy

        more = {"title_column": title_column, "relationships": relationships, "language": language}
        given = {name: value for name, value in more.items() if value is not None}
        return read_hierarchy(path, form=form, sep=sep, root=root, **given)

    @classmethod
    def _finish(
        cls,
        nodes: NodeCollector,
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
            bare,
            child,
            parent,
            sep=sep,
            root=root,
            named_by=named_by,
            titles=nodes.titles(),
        )
        return hierarchy


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


# ----------------------------------------------------------------------
# Collecting nodes and edges: the steps of the builders before a Hierarchy is assembled.


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


# ----------------------------------------------------------------------
# The JSON form of a hierarchy, as ``to_json`` writes it and ``from_json`` reads it.


class JsonForm(NamedTuple):
    """The content of the JSON, checked."""

    names: list[str]  # bare
    parents: list[list[int]]  # the numbers of each class's parents
    sep: str
    root: str
    named_by: NamedBy
    titles: list[str | None] | None = None  # of each class, where any has one
    beside: dict[str, Any] = {}  # noqa: RUF012  what ``with_aliases`` takes


def parse_json(text: str) -> JsonForm:
    """Return the content of ``to_json``'s text; raise if it is damaged."""
    form = read_value(text, kind=HierarchyError)
    if not isinstance(form, dict) or form.get("format") != FORMAT:
        raise HierarchyError(f"not a hierarchy: the JSON has no 'format': {FORMAT!r}")
    if form.get("version") != VERSION:
        raise HierarchyError(
            f"hierarchy version {form.get('version')!r} is not {VERSION}; "
            f"it was written by another version of hierlearn"
        )
    try:
        return checked_form(form)
    except HierarchyError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise HierarchyError(f"the JSON of a hierarchy is damaged: {error}") from None


def checked_form(form: dict[str, Any]) -> JsonForm:
    """Check names, parents and their numbers."""
    names, lists = form["names"], form["parents"]
    if not isinstance(names, list) or not isinstance(lists, list):
        raise TypeError("names and parents must be lists")
    if form["named_by"] not in NAMINGS or len(lists) != len(names):
        raise ValueError("names, parents and named_by do not fit")
    names = [checked(name, checked_sep(form["sep"])) for name in names]
    parents = [[parent_number(one, len(names)) for one in above] for above in lists]
    if any(len(set(above)) < len(above) for above in parents):
        raise ValueError("a class has the same parent twice")
    titles = form.get("titles")
    if titles is not None:
        if not isinstance(titles, list) or len(titles) != len(names):
            raise ValueError("names and titles do not fit")
        titles = [checked_title(one, name) for one, name in zip(titles, names, strict=True)]
    root = str(form.get("root", "root"))
    beside = checked_beside(form, names)
    return JsonForm(names, parents, form["sep"], root, form["named_by"], titles, beside)


def checked_beside(form: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return namespaces and aliases, where there are any."""
    found: dict[str, Any] = {}
    for key in BESIDE:
        mapping = form.get(key, {})
        if not isinstance(mapping, dict) or not all(map(is_texts, mapping.values())):
            raise TypeError(f"{key} must be an object of lists of names")
        if mapping:
            found[key] = mapping
    spaces = form.get("namespaces")
    if spaces is not None:
        if form["named_by"] != "id" or not isinstance(spaces, list) or len(spaces) != len(names):
            raise ValueError("names and namespaces do not fit")
        if not all(one is None or isinstance(one, str) for one in spaces):
            raise TypeError("a namespace is text")
        found["namespaces"] = dict(zip(names, spaces, strict=True))
    return found


def is_texts(value: object) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def parent_number(value: object, count: int) -> int:
    """Return a parent's number; raise if there is no such class."""
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"{value!r} is not a class number in 0..{count - 1}")
    return value
