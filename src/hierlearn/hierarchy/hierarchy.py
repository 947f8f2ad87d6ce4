"""Hierarchy: the taxonomy of C classes, immutable, in level order.

A class is a node of a tree, forest or DAG; the root above the top classes is implicit and not a
class. Classes are numbered by level, siblings together, names in natural order ("2" before "10"),
so the numbering depends on the taxonomy alone and never on the order in which it was read.

A node is its path: ``animal/dog`` and ``plant/dog`` are two classes. In a DAG, where a node has
several paths, its name is its id. A bare name (``dog``) is accepted where only one class has it.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierarchyError, HierlearnError, LabelError
from hierlearn.hierarchy import draw, json_format
from hierlearn.hierarchy.aliases import NO_TARGETS, pruned_targets
from hierlearn.hierarchy.build import Builders
from hierlearn.hierarchy.encoding import Encoding
from hierlearn.hierarchy.lca import DagLCA, TreeLCA, lca
from hierlearn.hierarchy.names import check_total, natural_ranks
from hierlearn.hierarchy.structure import Cycle, arrange, expand_ranges
from hierlearn.hierarchy.titles import Titled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import networkx as nx
    from numpy.typing import ArrayLike
    from torch import Tensor

    from hierlearn.hierarchy.nodes import L, Label, NamedBy
    from hierlearn.hierarchy.structure import Ints


class Hierarchy(Titled, Encoding, Builders):
    """An immutable taxonomy of C classes in level order.

    Build one with ``from_paths``, ``from_edges``, ``from_parents``, ``from_nested``,
    ``from_networkx``, ``from_frame``, ``from_json`` or ``read``.

    Methods that take a class take its number, its name or an unambiguous bare name; given a number
    they answer in numbers, given a name in names.

    Attributes:
        titles: what people call each class, None where there is no such title; not part of
            equality. See ``title`` and ``with_titles``.
        namespaces: of each class, None where it has none; from OBO files.
        aliases: other ids of classes, such as ``alt_id`` of OBO files. ``index`` takes them.
        pruned: classes that ``restrict`` and ``prune`` removed, and the classes that their rows
            count for. Rows of labels may name them.

    Example:
        >>> h = Hierarchy.from_paths(["animal/dog/pug", "animal/cat", "plant/oak"])
        >>> h.names
        ('animal', 'plant', 'animal/cat', 'animal/dog', 'plant/oak', 'animal/dog/pug')
        >>> h.lca("pug", "cat")
        'animal'
    """

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("build a Hierarchy with Hierarchy.from_paths, from_edges, ... or read")

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
        self = object.__new__(cls)
        state = {
            "structure": structure,
            "bare_names": tuple(bare[node] for node in order),
            "titles": tuple(None if titles is None else titles[node] for node in order),
            "sep": sep,
            "root": root,
            "named_by": named_by,
            "namespaces": (None,) * len(bare),
            "aliases": NO_TARGETS,
            "pruned": NO_TARGETS,
            "obsolete": NO_TARGETS,
        }
        self.__dict__.update(state)
        self._check_unique_names()
        return self

    def _check_unique_names(self) -> None:
        if self.named_by == "path":
            above = self.structure.first_parents.tolist()
            keys: Iterable[tuple[int, str]] = zip(above, self.bare_names, strict=True)
        else:
            keys = ((0, name) for name in self.bare_names)
        seen: set[tuple[int, str]] = set()
        for number, key in enumerate(keys):
            if key in seen:
                raise HierarchyError(f"duplicate path {self.names[number]!r}: name each class once")
            seen.add(key)

    # ------------------------------------------------------------------ relatives

    def parents(self, c: L) -> tuple[L, ...]:
        """Return the parents of a class; none for a top class."""
        number = self.index(c)
        offsets = self.structure.parent_offsets
        return self._answer(c, self.structure.parent_ids[offsets[number] : offsets[number + 1]])

    def children(self, c: L) -> tuple[L, ...]:
        """Return the children of a class; none for a leaf."""
        number = self.index(c)
        offsets, ids = self.structure.children
        return self._answer(c, ids[offsets[number] : offsets[number + 1]])

    def ancestors(self, c: L) -> tuple[L, ...]:
        """Return the ancestors of a class, top first, without the class itself."""
        number = self.index(c)
        offsets, ids = self.structure.closure
        return self._answer(c, ids[offsets[number] : offsets[number + 1] - 1])

    def descendants(self, c: L) -> tuple[L, ...]:
        """Return the descendants of a class in class order, without the class itself."""
        offsets, ids = self.structure.children
        frontier = np.array([self.index(c)])
        found: list[Ints] = []
        while len(frontier):
            positions, _ = expand_ranges(offsets, frontier)
            frontier = np.unique(ids[positions])
            found.append(frontier)
        return self._answer(c, np.unique(np.concatenate(found)))

    def closure(self, labels: Iterable[Label]) -> tuple[Any, ...]:
        """Return a label set with all its ancestors, in class order."""
        if isinstance(labels, str):
            raise LabelError(f"pass a list of classes, not the string {labels!r}")
        labels = list(labels)
        rows = np.array([self.index(label) for label in labels], dtype=np.int64)
        offsets, ids = self.structure.closure
        positions, _ = expand_ranges(offsets, rows)
        asked: Label = "" if any(isinstance(label, str) for label in labels) else 0
        return self._answer(asked, np.unique(ids[positions]))

    # ------------------------------------------------------------------ common ancestors

    @cached_property
    def _lca_solver(self) -> TreeLCA | DagLCA:
        return TreeLCA(self.structure) if self.is_tree else DagLCA(self.structure)

    def lca(self, a: L, b: L) -> L | None:
        """Return the lowest common ancestor of two classes; None for the implicit root.

        A class counts as its own ancestor. In a DAG: the common ancestor of smallest height, of
        those the deepest, of those the first.
        """
        pair = np.array([self.index(a)]), np.array([self.index(b)])
        found = int(self._lca_solver(*pair)[0])
        if found < 0:
            return None
        return self.names[found] if isinstance(a, str) else found

    def lcas(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the lowest common ancestor of each pair of class numbers; -1 for the root."""
        left, right = np.asarray(a), np.asarray(b)
        try:
            left, right = np.broadcast_arrays(left, right)
        except ValueError:
            raise LabelError(
                f"pairs {left.shape} and {right.shape} cannot be broadcast together"
            ) from None
        for side in (left, right):
            if side.dtype.kind not in "iu" and side.size:
                raise LabelError(f"class numbers must be integers, not {side.dtype}")
            if side.size and not 0 <= int(side.min()) <= int(side.max()) < len(self):
                found = f"{int(side.min())}..{int(side.max())}"
                raise LabelError(f"class numbers {found} must lie in 0..{len(self) - 1}")
        flat = (side.ravel().astype(np.int64, copy=False) for side in (left, right))
        return lca(self._lca_solver, *flat).reshape(left.shape)

    def lca_heights(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the height of the lowest common ancestor of each pair of class numbers."""
        return self._heights_with_root[self.lcas(a, b)]

    @cached_property
    def _heights_with_root(self) -> Ints:
        return np.append(self.heights, self.root_height)  # the root's number is -1

    # ------------------------------------------------------------------ along the hierarchy

    def max_up(self, x: Tensor) -> Tensor:
        """Give each class the maximum over itself and its descendants; x is (..., C)."""
        return self._propagate(x, "up", "max")

    def sum_up(self, x: Tensor) -> Tensor:
        """Give each class the sum over itself and its descendants, each once; x is (..., C)."""
        return self._propagate(x, "up", "sum")

    def logsumexp_up(self, x: Tensor) -> Tensor:
        """Give each class log(sum(exp)) over itself and its descendants; x is (..., C)."""
        from hierlearn.hierarchy import propagate

        propagate.check(x, len(self))
        if not x.is_floating_point():
            raise HierlearnError(f"values must be floating point, not {x.dtype}")
        return propagate.logsumexp_up(x, propagate.routes_on(self, x.device))

    def max_down(self, x: Tensor) -> Tensor:
        """Give each class the maximum over itself and its ancestors; x is (..., C)."""
        return self._propagate(x, "down", "max")

    def sum_down(self, x: Tensor) -> Tensor:
        """Give each class the sum over itself and its ancestors, each once; x is (..., C)."""
        return self._propagate(x, "down", "sum")

    def _propagate(self, x: Tensor, direction: str, reduce: str) -> Tensor:
        from hierlearn.hierarchy import propagate

        propagate.check(x, len(self))
        step = propagate.up if direction == "up" else propagate.down
        return step(x, propagate.routes_on(self, x.device), reduce)

    # ------------------------------------------------------------------ parts of it

    def restrict(self, classes: Iterable[Label]) -> Hierarchy:
        """Return the sub-hierarchy of the given classes and their ancestors.

        Rows may keep the labels that they have: a class that is removed stands for its nearest
        ancestors, see ``pruned``.
        """
        if isinstance(classes, str):
            raise LabelError(f"pass a list of classes, not the string {classes!r}")
        keep = np.array(self.closure([self.index(label) for label in classes]), dtype=np.int64)
        place = np.full(len(self), -1, dtype=np.int64)
        place[keep] = np.arange(len(keep))
        child, parent = self.structure.edge_children, self.structure.parent_ids
        inside = place[child] >= 0
        part = Hierarchy._assemble(
            [self.bare_names[number] for number in keep],
            place[child[inside]],
            place[parent[inside]],
            sep=self.sep,
            root=self.root,
            named_by=self.named_by,
            titles=[self.titles[number] for number in keep],
        )
        aliases, pruned = pruned_targets(self, keep)
        spaces = {self.names[n]: self.namespaces[n] for n in keep if self.namespaces[n] is not None}
        return part.with_aliases(
            aliases=aliases, pruned=pruned, obsolete=self.obsolete, namespaces=spaces
        )

    def prune(self, min_count: int, counts: ArrayLike) -> Hierarchy:
        """Return the sub-hierarchy of the classes with at least ``min_count`` rows.

        Rows of a class that is removed count for its nearest ancestors, as in ``restrict``.

        Args:
            min_count: the fewest rows a class may have.
            counts: (C,) rows of each class, ancestors counted (``Labels(...).counts``).
        """
        counts = np.asarray(counts)
        if counts.shape != (len(self),):
            raise HierarchyError(f"counts {counts.shape} must be ({len(self)},)")
        return self.restrict(int(number) for number in np.flatnonzero(counts >= min_count))

    # ------------------------------------------------------------------ identity and exchange

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the canonical form: equal taxonomies, equal fingerprints."""
        form = [self.named_by, self.sep, self.bare_names, json_format.parent_lists(self.structure)]
        return hashlib.sha256(json.dumps(form, separators=(",", ":")).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return self is other or self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hierarchy.from_json, (self.to_json(),)

    def __copy__(self) -> Hierarchy:
        return self

    def __deepcopy__(self, _: object) -> Hierarchy:
        return self

    def to_json(self) -> str:
        """Return the hierarchy as JSON text that ``from_json`` and ``read`` take."""
        return json_format.to_json(self)

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a networkx DiGraph, edges from parent to child, classes named by ``names``.

        A node has the attribute ``title`` where its class has a title.
        """
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph(direction="parent-to-child")
        for name, title in zip(self.names, self.titles, strict=True):
            graph.add_node(name, **({} if title is None else {"title": title}))
        child, parent = self.structure.edge_children, self.structure.parent_ids
        graph.add_edges_from(
            (self.names[p], self.names[c]) for p, c in zip(parent, child, strict=True)
        )
        return graph

    def draw(
        self,
        *,
        depth: int | None = None,
        breadth: int | None = 12,
        counts: ArrayLike | None = None,
    ) -> str:
        """Return the hierarchy as a text tree.

        Args:
            depth: fold whatever lies deeper than this level.
            breadth: show at most this many children of a class.
            counts: (C,) a number to show behind each class; by default its descendants.
        """
        return draw.as_text(self, depth=depth, breadth=breadth, counts=counts)

    def to_svg(
        self,
        path: Path | str | None = None,
        *,
        depth: int | None = None,
        breadth: int | None = 12,
        counts: ArrayLike | None = None,
    ) -> str:
        """Return the hierarchy as a drawing in SVG, and write it to ``path`` if given."""
        return draw.as_svg(self, path, depth=depth, breadth=breadth, counts=counts)
