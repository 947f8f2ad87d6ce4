"""Builders: from paths, edges, parents, nested dictionaries, graphs and frames to a Hierarchy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import HierarchyError, LabelError, plural, quoted
from hierlearn.hierarchy.collect import (
    NodeCollector,
    add_titles,
    nested_items,
    nodes_from_edges,
    nodes_from_parents,
    strip_parents,
)
from hierlearn.hierarchy.guesses import parents_of
from hierlearn.hierarchy.json_format import parse_json
from hierlearn.hierarchy.names import (
    as_text,
    check_depth,
    checked,
    checked_naming,
    checked_sep,
    has_gap,
    level_path,
    split_path,
    warn_of_gaps,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import networkx as nx
    from numpy.typing import ArrayLike

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import NamedBy

    Direction = Literal["parent-to-child", "child-to-parent"]


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
                raise HierarchyError(f"row {row}: {error}") from None
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
            raise HierarchyError(f"the JSON of a hierarchy is damaged: {error}") from None

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
        from hierlearn.hierarchy.read import read_hierarchy

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
