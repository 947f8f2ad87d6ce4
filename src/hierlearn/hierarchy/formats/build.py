"""Builders: from paths, edges, parents, nested dictionaries, graphs and frames to a Hierarchy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hierlearn.errors import HierarchyError, LabelError, did_you_mean, plural, quoted
from hierlearn.files.reading import parse_json
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
    set_title,
    warn_of_gaps,
)
from hierlearn.hierarchy.structure import Cycle, arrange, expand_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import networkx as nx
    from numpy.typing import ArrayLike

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.names import NamedBy
    from hierlearn.hierarchy.structure import Ints

    Direction = Literal["parent-to-child", "child-to-parent"]

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
        odd = next((name for name in bare if "\0" in name), None)
        if odd is not None:
            raise HierarchyError(f"class name {odd!r} holds a NUL character; no text file may")
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
        if isinstance(paths, str):
            raise HierarchyError(f"paths must be a list of paths, not the string {paths!r}")
        if isinstance(paths, Mapping):
            raise HierarchyError(
                f"paths must be a list of paths, not a mapping of {plural(len(paths), 'key')}; a "
                f"nested mapping is for from_nested"
            )
        entries = ((number, path, None) for number, path in enumerate(paths))
        return cls.from_nodes(nodes_from_paths(entries, sep), sep, named_by="path")

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
        nodes = nodes_from_edges(((n, edge, None) for n, edge in enumerate(edges)), root)
        return cls.from_nodes(nodes, sep, root=root, named_by=named_by, ids=True)

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
            places, bare = checked_places(parents, names, sep)
            child = np.flatnonzero(places >= 0)
            return cls._assemble(
                bare,
                child,
                places[child],
                sep=sep,
                ranks=np.arange(len(bare)) if names is None else None,
                named_by=checked_naming(named_by),
            )
        if names is not None:
            raise HierarchyError("names go with a parent array; a mapping names its classes itself")
        root = None if root is None else as_text(root)
        nodes = nodes_from_parents(parents, root)
        return cls.from_nodes(nodes, sep, root=root, named_by=named_by, ids=True)

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
                known = len(nodes.bare)
                node = nodes.add_below(number, checked(name, sep))
                if node < known:
                    whole = sep.join([*path, nodes.bare[node]])
                    raise HierarchyError(f"duplicate path {whole!r}: name each class once")
                nodes.set_title(node, title)
                stack.append((path, node, below))
        return cls.from_nodes(nodes, sep, named_by="path")

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
        checked_sep(sep)
        if not graph.is_directed():
            raise HierarchyError("the graph is undirected; edges must run from parent to child")
        direction = direction or graph.graph.get("direction")
        if direction is None:
            tops = sum(degree == 0 for _, degree in graph.in_degree())
            leaves = sum(degree == 0 for _, degree in graph.out_degree())
            if tops > leaves:
                raise HierarchyError(
                    f"if the edges of the graph ran from parent to child, it would have {tops:,} "
                    f"top classes and {leaves:,} leaves; pass direction='child-to-parent' if they "
                    f"run from child to parent, as obonet's do, or direction='parent-to-child'"
                )
        if direction not in (None, "parent-to-child", "child-to-parent"):
            raise HierarchyError(
                f"direction must be 'parent-to-child' or 'child-to-parent', not {direction!r}"
            )
        above = graph.successors if direction == "child-to-parent" else graph.predecessors
        parents = {node: list(dict.fromkeys(above(node))) for node in graph.nodes}
        root = None if root is None else as_text(root)
        nodes = nodes_from_parents(parents, root)
        for node, title in graph.nodes(data="title"):
            if as_text(node) != root:
                nodes.set_title(nodes.number[as_text(node)], title)
        return cls.from_nodes(nodes, sep, root=root, named_by=named_by, ids=True)

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
        known = list(frame.columns)
        columns = [name for name in known if name != title_column] if columns is None else columns
        for name in columns:
            if list(columns).count(name) > 1:
                raise HierarchyError(f"the column {name!r} stands twice in the frame or in columns")
            if name == title_column:
                raise HierarchyError(f"the column {name!r} is named as level and as titles")
        titled = [] if title_column is None else [title_column]
        absent = [name for name in (*columns, *titled) if name not in known]
        if absent:
            raise HierarchyError(f"no column {quoted(absent)} in the frame; it has {quoted(known)}")
        cells = zip(*(list(frame[name]) for name in columns), strict=True)
        given = frame[title_column] if titled else itertools.repeat(None)
        rows = zip(itertools.count(), cells, given, strict=False)
        nodes = nodes_from_levels(rows, sep, Source("the frame", "rows"))
        return cls.from_nodes(nodes, sep, named_by="path")

    @classmethod
    def from_json(cls, text: str) -> Hierarchy:
        """Build from the text of ``to_json``."""
        form = parse_json(text, kind=HierarchyError)
        if not isinstance(form, dict) or form.get("format") != FORMAT:
            raise HierarchyError(f"not a hierarchy: the JSON has no 'format': {FORMAT!r}")
        if form.get("version") != VERSION:
            raise HierarchyError(
                f"hierarchy version {form.get('version')!r} is not {VERSION}; "
                f"it was written by another version of hierlearn"
            )
        try:
            return cls._from_form(form)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, HierarchyError):
                raise
            message = error.message if isinstance(error, LabelError) else error
            raise HierarchyError(f"the JSON of a hierarchy is damaged: {message}") from None

    @classmethod
    def _from_form(cls, form: dict[str, Any]) -> Hierarchy:
        """Build from what ``to_json`` writes, checked."""
        names, parents, sep = form["names"], form["parents"], checked_sep(form["sep"])
        titles, spaces = form.get("titles"), form.get("namespaces")
        for name in ("names", "parents", "titles", "namespaces"):
            value = form.get(name)
            if not isinstance(value, list | None) or (value and len(value) != len(names)):
                raise ValueError(f"names and {name} do not fit")
        if form["named_by"] not in NAMINGS or (spaces is not None and form["named_by"] != "id"):
            raise ValueError("names, namespaces and named_by do not fit")
        names = [checked(name, sep) for name in names]
        flat = [number for above in parents for number in above]
        for number in flat:
            if type(number) is not int or not 0 <= number < len(names):
                raise ValueError(f"{number!r} is not a class number in 0..{len(names) - 1}")
        if any(len(set(above)) < len(above) for above in parents):
            raise ValueError("a class has the same parent twice")
        if titles is not None:
            titles = [checked_title(title, name) for title, name in zip(titles, names, strict=True)]
        hierarchy = cls._assemble(
            names,
            np.repeat(np.arange(len(names)), [len(above) for above in parents]),
            np.array(flat, dtype=np.int64),
            sep=sep,
            root=str(form.get("root", "root")),
            named_by=form["named_by"],
            titles=titles,
        )
        beside: dict[str, Any] = {key: form[key] for key in BESIDE if key in form}
        for key, mapping in beside.items():
            lists = mapping.values() if isinstance(mapping, dict) else [None]
            if not all(isinstance(one, list) and all_text(one) for one in lists):
                raise TypeError(f"{key} must be an object of lists of names")
        if spaces is not None:
            if not all_text(one for one in spaces if one is not None):
                raise TypeError("a namespace is text")
            beside["namespaces"] = dict(zip(names, spaces, strict=True))
        return hierarchy.with_aliases(**beside) if beside else hierarchy

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

        options = {
            "root": root,
            "title_column": title_column,
            "relationships": relationships,
            "language": language,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return read_hierarchy(path, form=form, sep=sep, **given)

    @classmethod
    def from_nodes(
        cls,
        nodes: NodeCollector,
        sep: str,
        *,
        named_by: NamedBy | None = None,
        root: str | None = None,
        ids: bool = False,
    ) -> Hierarchy:
        """Assemble what was collected; ``ids`` may spell whole paths, which become bare names."""
        checked_naming(named_by)
        child, parent = (np.asarray(ends, dtype=np.int64) for ends in (nodes.child, nodes.parent))
        bare = nodes.bare
        if ids:
            if np.bincount(child, minlength=1).max() <= 1 and named_by != "id":
                bare = list(bare)
                for below, above in zip(nodes.child, nodes.parent, strict=True):
                    bare[below] = nodes.bare[below].removeprefix(nodes.bare[above] + sep)
            bare = [checked(name, sep) for name in bare]
        titles = [nodes.titles.get(number) for number in range(len(bare))]
        return cls._assemble(
            bare, child, parent, sep=sep, root=root or "root", named_by=named_by, titles=titles
        )


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
    positions, counts = expand_ranges(offsets, removed)
    rows, numbers = np.repeat(np.arange(len(removed)), counts), ids[positions]
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


class Source(NamedTuple):
    """Where numbered entries come from, for errors: a list, unless it has a name."""

    name: Path | str = ""
    unit: str = "entries"  # or "rows", "lines"

    @contextmanager
    def located(self, entries: Iterable[Any]) -> Iterator[Iterator[Any]]:
        """Yield an iterator of entries that begin with their number; errors name the place."""
        number = 0

        def counted() -> Iterator[Any]:
            nonlocal number
            for entry in entries:
                number = entry[0]
                yield entry

        try:
            yield counted()
        except HierarchyError as error:
            place = f"{self.name}, {self.unit[:-1]} {number}: " if self.name else ""
            raise HierarchyError(f"{place}{error.message}") from None

    def check_new(self, seen: dict[Any, int], key: Any, number: int, what: str) -> None:
        """Note where a key stands; raise where it stands already."""
        if seen.setdefault(key, number) != number:
            raise HierarchyError(
                f"duplicate {what}: {self.unit} {seen[key]} and {number}; list it once"
            )


LIST = Source()


class NodeCollector:
    """Collects nodes by key, the edges between them, and their titles by number."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}
        self.bare: list[str] = []
        self.child: list[int] = []
        self.parent: list[int] = []
        self.titles: dict[int, str | None] = {}

    def add(self, key: Any, bare: str) -> int:
        """Add a node unless its key is known; return its number."""
        number = self.number.setdefault(key, len(self.bare))
        if number == len(self.bare):
            self.bare.append(bare)
        return number

    def add_path(self, parts: Sequence[str]) -> int:
        """Add a path and its prefixes; return the number of its last node."""
        above = -1
        for name in parts:
            above = self.add_below(above, name)
        return above

    def add_below(self, above: int, name: str) -> int:
        """Add a node below another one, or at the top of -1, unless it is known.

        Nodes are known by parent and name, so a deep path takes no more memory than its names.
        """
        known = len(self.bare)
        node = self.add((above, name), name)
        if node == known and above >= 0:
            self.link(above, node)
        return node

    def link(self, parent: int, child: int) -> None:
        """Add an edge."""
        self.parent.append(parent)
        self.child.append(child)

    def set_title(self, node: int, value: object) -> None:
        """Give a node a title; a missing one says nothing, another one raises."""
        if value is None:
            return
        title = checked_title(value, self.bare[node] if node >= 0 else "")
        if title is not None and node < 0:
            raise HierarchyError(f"the title {title!r} has no class")
        if title is not None:
            set_title(self.titles, node, title, self.bare[node])


def nodes_from_paths(
    entries: Iterable[tuple[int, object, object]], sep: str, source: Source = LIST
) -> NodeCollector:
    """Collect the nodes of numbered paths, each with its title."""
    nodes = NodeCollector()
    listed: dict[str, int] = {}
    with source.located(entries) as numbered:
        for number, path, title in numbered:
            if not isinstance(path, str):
                raise HierarchyError(f"path {number} is {path!r}, which is not text")
            source.check_new(listed, path, number, f"path {path!r}")
            parts = path.split(sep)
            check_depth(len(parts))
            if not all(part.strip() for part in parts):
                raise HierarchyError(f"path {path!r} has an empty part; write a{sep}b{sep}c")
            nodes.set_title(nodes.add_path(parts), title)
    return nodes


def nodes_from_levels(
    rows: Iterable[tuple[int, Sequence[Any], object]], sep: str, source: Source
) -> NodeCollector:
    """Collect the nodes of numbered rows with one cell per level, each with its title."""
    nodes = NodeCollector()
    gaps: list[tuple[int, str]] = []
    with source.located(rows) as numbered:
        for number, cells, title in numbered:
            parts = level_path(cells, sep)
            nodes.set_title(nodes.add_path(parts), title)
            if has_gap(cells):
                gaps.append((number, sep.join(parts)))
    if gaps:
        warn_of_gaps(source.name, len(gaps), f"{source.unit[:-1]} {gaps[0][0]}", gaps[0][1])
    return nodes


def nodes_from_edges(
    entries: Iterable[tuple[int, Any, object]], root: str | None, source: Source = LIST
) -> NodeCollector:
    """Collect the nodes of numbered (parent, child) pairs of ids, each with the child's title."""
    nodes = NodeCollector()
    seen: dict[tuple[str | None, str], int] = {}
    tops: set[str] = set()  # listed with an empty parent
    with source.located(entries) as numbered:
        for number, edge, title in numbered:
            if isinstance(edge, (str, bytes)) or not hasattr(edge, "__len__") or len(edge) != 2:
                raise HierarchyError(f"edge {number} is {edge!r}; an edge is (parent, child)")
            above, below = (None if is_missing(end) else as_text(end) for end in edge)
            if below is None:
                raise HierarchyError(f"edge {number} is {edge!r}; its child is empty")
            if root is not None and below == root:
                raise HierarchyError(f"edge {number} makes the root {root!r} a child of {above!r}")
            if above is None:
                tops.add(below)
            above = None if above == root else above
            source.check_new(seen, (above, below), number, f"edge {above!r} -> {below!r}")
            node = nodes.add(below, below)
            if above is not None:
                nodes.link(nodes.add(above, above), node)
            nodes.set_title(node, title)
    for above, below in seen:
        if above is not None and below in tops:
            raise HierarchyError(f"class {below!r} stands at the top and below {above!r}")
    return nodes


def nodes_from_parents(parents: Mapping[Any, Any], root: str | None) -> NodeCollector:
    """Collect the nodes of a mapping from ids to a parent id, a list of them, or None."""
    lists: dict[str, list[str]] = {}
    nodes = NodeCollector()
    for key, value in parents.items():
        name = as_text(key)
        if name in lists:
            raise HierarchyError(f"duplicate class: {key!r} and {name!r} are one id")
        several = isinstance(value, (list, tuple, set, frozenset))
        found = [as_text(one) for one in (value if several else [value]) if not is_missing(one)]
        lists[name] = [one for one in found if one != root]
        if name != root:
            nodes.add(name, name)
        elif lists[name]:
            raise HierarchyError(f"the root {root!r} has the parent {lists[name][0]!r}")
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


def checked_places(
    parents: ArrayLike, names: Sequence[str] | None, sep: str
) -> tuple[Ints, list[str]]:
    """Return the parent of each node of a parent array, -1 at the top, and the nodes' names."""
    try:
        places = np.asarray(parents)
    except ValueError:
        raise HierarchyError("parents must be one row of integers; rows differ") from None
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
        raise HierarchyError(
            f"parents must be one row of integers, not {places.dtype} {places.shape}"
        )
    count = len(places)
    places = places.astype(np.int64)
    bad = np.flatnonzero((places < -1) | (places >= count))
    if len(bad):
        raise HierarchyError(
            f"node {bad[0]} has the unknown parent {places[bad[0]]}; "
            f"parents are 0..{count - 1}, or -1 at the top"
        )
    if names is None:
        return places, [str(number) for number in range(count)]
    if len(names) != count:
        raise HierarchyError(f"{len(names)} names do not fit {count} parents")
    return places, [checked(name, sep) for name in names]


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


def all_text(values: Iterable[object]) -> bool:
    """Whether all values are text."""
    return all(isinstance(one, str) for one in values)
