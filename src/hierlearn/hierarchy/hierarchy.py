"""Hierarchy: the taxonomy of C classes, immutable, in level order.

A class is a node of a tree, forest or DAG; the root above the top classes is implicit and not a
class. Classes are numbered by level, siblings together, names in natural order ("2" before "10"),
so the numbering depends on the taxonomy alone and never on the order in which it was read.

A node is its path: ``animal/dog`` and ``plant/dog`` are two classes. In a DAG, where a node has
several paths, its name is its id. A bare name (``dog``) is accepted where only one class has it.

Some labels are no class but stand for some; they and the titles, what people call the classes, are
no part of equality and of the fingerprint:

    aliases    another id of a class, such as ``alt_id`` and ``replaced_by`` of an OBO file
    pruned     a class that was removed -> its nearest ancestors that were kept; none where no
               ancestor was
    obsolete   the id of an obsolete term -> the terms that may take its place, which a person
               has to choose from
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from hierlearn.errors import (
    HierarchyError,
    HierlearnError,
    LabelError,
    did_you_mean,
    quoted,
    unknown_name,
)
from hierlearn.hierarchy import draw
from hierlearn.hierarchy.formats.build import FORMAT, VERSION, Builders, pruned_targets
from hierlearn.hierarchy.names import as_rows, checked_title, set_title
from hierlearn.hierarchy.structure import Immutable, dag_lcas, expand_ranges, frozen, tree_lcas

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import networkx as nx
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array
    from torch import Tensor
    from typing_extensions import Self

    from hierlearn.hierarchy.names import L, Label, NamedBy
    from hierlearn.hierarchy.structure import Ints, Structure

    LabelRows = Iterable[Label | Iterable[Label] | None]

MOST_COMPARED = 20_000  # names that an unknown label is compared with
LEVELS_SHOWN = 12  # in one line
PAIRS_AT_ONCE = 1 << 17  # of lowest common ancestors: temporaries stay inside the cache


class Hierarchy(Immutable, Builders):
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

    structure: Structure
    bare_names: tuple[str, ...]
    titles: tuple[str | None, ...]  # of every class, None where it has none
    sep: str
    root: str
    named_by: NamedBy
    namespaces: tuple[str | None, ...]  # of every class, None where it has none
    aliases: Mapping[str, tuple[str, ...]]
    pruned: Mapping[str, tuple[str, ...]]
    obsolete: Mapping[str, tuple[str, ...]]

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("build a Hierarchy with Hierarchy.from_paths, from_edges, ... or read")

    # ------------------------------------------------------------------ names and numbers

    def __len__(self) -> int:
        """C, the number of classes."""
        return self.structure.count

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, label: object) -> bool:
        if isinstance(label, str):
            return isinstance(self._find(label), int)
        is_number = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
        return is_number and 0 <= int(cast("int", label)) < len(self)

    def __repr__(self) -> str:
        kind = "tree" if self.is_tree else "DAG"
        shown = [*map(str, self.level_sizes[:LEVELS_SHOWN])]
        sizes = "/".join(shown if self.depth <= LEVELS_SHOWN else [*shown, "..."])
        return f"Hierarchy({len(self)} classes, {kind}, levels {sizes})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each class: its path, or its id in a DAG."""
        if self.named_by == "id":
            return self.bare_names
        names: list[str] = []
        above = self.structure.first_parents.tolist()
        for bare, parent in zip(self.bare_names, above, strict=True):
            names.append(bare if parent < 0 else f"{names[parent]}{self.sep}{bare}")
        return tuple(names)

    @property
    def is_tree(self) -> bool:
        """Whether no class has more than one parent (a forest under the implicit root)."""
        return self.structure.is_tree

    @property
    def levels(self) -> Ints:
        """(C,) the level m(c) of each class: 1 at the top; in a DAG the longest path."""
        return self.structure.levels

    @property
    def heights(self) -> Ints:
        """(C,) the longest path from each class down to a leaf."""
        return self.structure.heights

    @property
    def root_height(self) -> int:
        """The height of the implicit root."""
        return int(self.heights.max()) + 1

    @property
    def depth(self) -> int:
        """L, the number of levels."""
        return self.structure.depth

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """The number of classes of each level."""
        return tuple(int(size) for size in np.diff(self.structure.level_offsets))

    @property
    def level_slices(self) -> tuple[slice, ...]:
        """The columns of each level."""
        offsets = self.structure.level_offsets.tolist()
        return tuple(slice(a, b) for a, b in pairwise(offsets))

    @cached_property
    def leaves(self) -> Ints:
        """The classes without children, ascending."""
        return frozen(np.flatnonzero(self.heights == 0))

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _by_bare(self) -> dict[str, int | list[int]]:
        found: dict[str, int | list[int]] = {}
        for number, name in enumerate(self.bare_names):
            before = found.setdefault(name, number)
            if before != number:
                found[name] = [*(before if isinstance(before, list) else [before]), number]
        return found

    def index(self, label: Label, *, exact: bool = False) -> int:
        """Return the number of a class given by number, name, alias or unambiguous bare name.

        Args:
            label: the class.
            exact: accept whole names only, no bare names and no aliases.
        """
        if isinstance(label, str):
            number = self._by_name.get(label)
            return self._search(label, exact) if number is None else number
        if isinstance(label, (int, np.integer)) and not isinstance(label, bool):
            if not 0 <= label < len(self):
                raise LabelError(
                    f"class number {label} is outside 0..{len(self) - 1} of this hierarchy"
                )
            return int(label)
        kind = type(label).__name__
        raise LabelError(f"a label is a class name or number, not {label!r} ({kind})")

    def _find(self, label: str) -> int | list[int] | None:
        """Return the class of a name, or all classes of a bare name, or None."""
        if label in self._by_name:
            return self._by_name[label]
        if label in self._by_bare:
            return self._by_bare[label]
        if self.named_by == "id" and self.sep in label:  # any path of a DAG's node finds it
            ids = [self._by_name.get(part, -1) for part in label.split(self.sep)]
            if min(ids) >= 0 and all(self.structure.has_edge(a, b) for a, b in pairwise(ids)):
                return ids[-1]
        return None

    def _search(self, label: str, exact: bool) -> int:
        found = None if exact or label in self.pruned else self._find(label)
        if isinstance(found, int):
            return found
        if isinstance(found, list):
            paths = quoted(self.names[number] for number in found)
            raise LabelError(f"label {label!r} is ambiguous: it could be {paths}; give the path")
        if not exact:
            names = self.aliases.get(label, ())
            if len(names) == 1:
                return self._by_name[names[0]]
            reason = self.explain_label(label)
            if reason is not None:
                raise LabelError(reason)
        if label in ("", self.sep, self.root):
            raise LabelError(
                f"label {label!r} is the implicit root, which is no class; "
                f"leave the row's labels empty instead"
            )
        pool = self.names if exact or self.sep in label else self.bare_names
        if len(pool) > MOST_COMPARED:  # comparing with a million names would take minutes
            alike = (name for name in pool if name[0] == label[0])
            pool = tuple(islice((n for n in alike if abs(len(n) - len(label)) <= 2), MOST_COMPARED))
        hint = did_you_mean(label, dict.fromkeys(pool))
        raise LabelError(f"unknown label {label!r}{hint or f' (of {len(self)} classes)'}")

    def look_up(self, rows: LabelRows, *, numbers: bool = False) -> tuple[Ints, Ints]:
        """Return the class numbers of each row's labels as CSR (offsets, numbers).

        Args:
            rows: for each row a label, an iterable of labels, or None for no label; or a frame or
                an (N, L) array of names, one column per level. A label that was pruned is replaced
                by its nearest ancestors, see ``resolve``.
            numbers: whether integers are class numbers; otherwise they are names.

        Raises:
            LabelError: naming the row, counted from 0, and the label.
        """
        if isinstance(rows, (str, bytes)):
            raise LabelError(
                f"labels must be a list with one entry per row, not the string {rows!r}"
            )
        rows = as_rows(rows, self.sep)
        offsets, found = [0], cast("list[int]", [])
        known = self._by_name
        for row, labels in enumerate(rows):
            try:
                if labels is None:
                    pass
                elif isinstance(labels, bytes):
                    raise TypeError
                elif isinstance(labels, (str, int, np.integer)):
                    found.extend(self._row_label(labels, numbers))
                else:
                    for label in labels:
                        number = known.get(label) if isinstance(label, str) else None
                        if number is None:
                            found.extend(self._row_label(label, numbers))
                        else:
                            found.append(number)
            except LabelError as error:
                raise LabelError(f"row {row}: {error.message}") from None
            except TypeError:
                kind = type(labels).__name__
                raise LabelError(
                    f"row {row}: labels are a name or a list of names, not {labels!r} ({kind})"
                ) from None
            offsets.append(len(found))
        return np.asarray(offsets, dtype=np.int64), np.asarray(found, dtype=np.int64)

    def _row_label(self, label: Label, numbers: bool) -> tuple[int, ...]:
        """Return the classes of a row's label; an integer that could be two classes raises."""
        if isinstance(label, str):
            return self.resolve(label)
        is_integer = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
        if numbers or not is_integer:
            return (self.index(label),)
        named = self._find(str(label))
        in_range = 0 <= int(label) < len(self)
        if named is None:
            meant = f" {self.names[int(label)]!r}" if in_range else f" of 0..{len(self) - 1}"
            raise LabelError(
                f"label {label} is an integer, and no class has that name; give names, or pass "
                f"numbers=True if it is the class number{meant}"
            )
        if in_range and named != label:
            raise LabelError(
                f"label {label} could be the class number {label} ({self.names[int(label)]!r}) "
                f"or the class named {str(label)!r}; give names as text, or pass numbers=True"
            )
        return (self.index(str(label)),)

    def _answer(self, asked: L, numbers: Ints) -> tuple[L, ...]:
        """Return classes in the form of the query: names for a name, else numbers."""
        found: list[Any] = [int(number) for number in numbers]
        return tuple(self.names[n] for n in found) if isinstance(asked, str) else tuple(found)

    @property
    def has_titles(self) -> bool:
        """Whether any class has a title."""
        return any(title is not None for title in self.titles)

    def title(self, c: Label) -> str | None:
        """Return the title of a class, or None."""
        return self.titles[self.index(c)]

    def with_titles(self, titles: Mapping[Any, str | None]) -> Self:
        """Return an equal hierarchy in which some classes have new titles.

        Args:
            titles: class -> title, or None for none; other classes keep theirs.

        Raises:
            LabelError: naming a class that is not there.

        Example:
            >>> from hierlearn import Hierarchy
            >>> h = Hierarchy.from_paths(["A00-A09/A00", "A00-A09/A01"])
            >>> h.with_titles({"A00": "Cholera"}).title("A00")
            'Cholera'
        """
        found: dict[int, str | None] = {}
        for label, value in titles.items():
            number = self.index(label)
            set_title(found, number, checked_title(value, label), self.names[number])
        return self._with(
            titles=tuple(found.get(number, title) for number, title in enumerate(self.titles))
        )

    def _with(self, **state: Any) -> Self:
        """Return the hierarchy with other titles or aliases; what is cached is shared."""
        new = object.__new__(type(self))
        vars(new).update({**vars(self), **state})
        vars(new).pop("_pruned_by_bare", None)
        return new

    # ------------------------------------------------------------------ labels that are no class

    def resolve(self, label: str | int) -> tuple[int, ...]:
        """Return the numbers of the classes that a label stands for.

        That is the class itself, the class of an alias, or the nearest ancestors of a class that
        was pruned: one, several in a DAG, or none.

        Raises:
            LabelError: naming the nearest known labels.
        """
        if not isinstance(label, str) or label in self._by_name:
            return (self.index(label),)
        names = self.stand_ins(label)
        return (self.index(label),) if names is None else tuple(self.index(one) for one in names)

    def nearest_known(self, label: str) -> tuple[str, ...]:
        """Return the classes of a label, or of the longest beginning of its path that has any.

        Example:
            >>> from hierlearn import Hierarchy
            >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
            >>> h.nearest_known("dog/beagle"), h.nearest_known("fish/carp")
            (('dog',), ())
        """
        while True:
            if label in self or self.stand_ins(label) is not None:
                return tuple(self.names[number] for number in self.resolve(label))
            above, found, _ = label.rpartition(self.sep)
            if not found:
                return ()
            label = above

    def stand_ins(self, label: str) -> tuple[str, ...] | None:
        """Return the classes that an alias or a pruned class stands for; None for other labels."""
        if label in self.aliases:
            return self.aliases[label]
        if label in self.pruned:
            return self.pruned[label]
        return None if label in self else self._pruned_by_bare.get(label)

    @cached_property
    def _pruned_by_bare(self) -> dict[str, tuple[str, ...]]:
        """What the bare names of pruned classes stand for, where only one class has the name."""
        if self.named_by == "id":
            return {}
        found: dict[str, tuple[str, ...] | None] = {}
        for name, above in self.pruned.items():
            bare = name.rsplit(self.sep, 1)[-1]
            found[bare] = None if bare in found else above
        return {bare: above for bare, above in found.items() if above is not None}

    def explain_label(self, label: str) -> str | None:
        """Return why a label is no class, in one sentence with the remedy; None if unknown."""
        names = self.stand_ins(label)
        if label in self.aliases:
            return f"label {label!r} was replaced by {quoted(names or ())}; name one of them"
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
        state: dict[str, Any] = {}
        for name, mapping in (("aliases", aliases), ("pruned", pruned)):
            if mapping is not None:
                state[name] = {
                    label: tuple(self.names[self.index(one, exact=True)] for one in targets)
                    for label, targets in mapping.items()
                }
                if wrong := next((one for one in mapping if one in self._by_name), None):
                    raise LabelError(
                        f"{wrong!r} is a class of the hierarchy and cannot be an alias too"
                    )
        if obsolete is not None:
            state["obsolete"] = {key: tuple(value) for key, value in obsolete.items()}
        if namespaces is not None:
            numbered = {self.index(name, exact=True): one for name, one in namespaces.items()}
            state["namespaces"] = tuple(map(numbered.get, range(len(self))))
        return self._with(**state)

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

    def lca(self, a: L, b: L) -> L | None:
        """Return the lowest common ancestor of two classes; None for the implicit root.

        A class counts as its own ancestor. In a DAG: the common ancestor of smallest height, of
        those the deepest, of those the first.
        """
        found = int(self.lcas(self.index(a), self.index(b)))
        if found < 0:
            return None
        return self.names[found] if isinstance(a, str) else found

    def lcas(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the lowest common ancestor of each pair of class numbers; -1 for the root."""
        left, right = np.asarray(a), np.asarray(b)
        try:
            left, right = np.broadcast_arrays(left, right)
        except ValueError:
            shapes = f"{left.shape} and {right.shape}"
            raise LabelError(f"pairs {shapes} cannot be broadcast together") from None
        for side in (left, right):
            if side.dtype.kind not in "iu" and side.size:
                raise LabelError(f"class numbers must be integers, not {side.dtype}")
            if side.size and not 0 <= int(side.min()) <= int(side.max()) < len(self):
                ends = f"{int(side.min())}..{int(side.max())}"
                raise LabelError(f"class numbers {ends} must lie in 0..{len(self) - 1}")
        shape, found = left.shape, np.empty(left.size, dtype=np.int64)
        left, right = (side.ravel().astype(np.int64, copy=False) for side in (left, right))
        for begin in range(0, len(found), PAIRS_AT_ONCE):
            part = slice(begin, begin + PAIRS_AT_ONCE)
            solve = tree_lcas if self.is_tree else dag_lcas
            found[part] = solve(self.structure, left[part], right[part])
        return found.reshape(shape)

    def lca_heights(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the height of the lowest common ancestor of each pair of class numbers."""
        return np.append(self.heights, self.root_height)[self.lcas(a, b)]  # -1 is the root

    # ------------------------------------------------------------------ targets

    def close(self, offsets: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """Close CSR rows of class numbers under ancestors, without repeats, ascending."""
        return self.structure.close(offsets, numbers)

    @overload
    def encode(self, rows: LabelRows, *, numbers: bool = False) -> Tensor: ...
    @overload
    def encode(
        self, rows: LabelRows, *, numbers: bool = False, sparse: Literal[True]
    ) -> csr_array: ...
    def encode(self, rows: LabelRows, *, numbers: bool = False, sparse: bool = False) -> Any:
        """Return the closed multi-hot targets of rows of labels.

        Args:
            rows: for each row a label, an iterable of labels or None; a label is a path or an
                unambiguous bare name, at any level. Or a frame or an (N, L) array of names, one
                column per level.
            numbers: integers are class numbers. Otherwise an integer is a name, and raises where
                no class has it, or where it could also be the number of another class.
            sparse: return a SciPy CSR array, for when N x C does not fit.

        Returns:
            (N, C) bool, closed under ancestors.
        """
        offsets, found = self.close(*self.look_up(rows, numbers=numbers))
        shape = (len(offsets) - 1, len(self))
        if sparse:
            from scipy.sparse import csr_array

            return csr_array((np.ones(len(found), dtype=bool), found, offsets), shape=shape)
        import torch

        targets = torch.zeros(shape, dtype=torch.bool)
        flat = np.repeat(np.arange(shape[0]) * shape[1], np.diff(offsets)) + found
        return targets.view(-1).index_fill_(0, torch.from_numpy(flat), True).view(shape)

    def decode(self, targets: Tensor | csr_array, *, terminal: bool = True) -> list[list[str]]:
        """Return the labels of each row of targets.

        Args:
            targets: (N, C) bool tensor, or a SciPy sparse array.
            terminal: name the most specific classes only; otherwise every positive class.
        """
        if tuple(targets.shape[1:]) != (len(self),):
            raise HierlearnError(f"targets {tuple(targets.shape)} must be (N, {len(self)})")
        import torch

        if isinstance(targets, torch.Tensor):
            rows, numbers = (part.numpy() for part in torch.where(targets.cpu() != 0))
        else:
            # SciPy's nonzero leaves out stored zeros; its indices may be unsorted and of 32 bits.
            rows, numbers = (part.astype(np.int64) for part in targets.nonzero())
            order = np.lexsort((numbers, rows))
            rows, numbers = rows[order], numbers[order]
        if terminal:
            keep = self.most_specific(rows, numbers)
            rows, numbers = rows[keep], numbers[keep]
        labels: list[list[str]] = [[] for _ in range(targets.shape[0])]
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            labels[row].append(self.names[number])
        return labels

    def most_specific(self, rows: Ints, numbers: Ints) -> Any:
        """Return which positive entries (row, class) have no positive child in their row."""
        offsets = self.structure.parent_offsets
        edges, fan_in = expand_ranges(offsets, numbers)
        covered = np.repeat(rows, fan_in) * len(self) + self.structure.parent_ids[edges]
        return ~np.isin(rows * len(self) + numbers, covered)

    # ------------------------------------------------------------------ along the hierarchy

    def max_up(self, x: Tensor) -> Tensor:
        """Give each class the maximum over itself and its descendants; x is (..., C)."""
        return self._propagate(x, "up", "max")

    def sum_up(self, x: Tensor) -> Tensor:
        """Give each class the sum over itself and its descendants, each once; x is (..., C)."""
        return self._propagate(x, "up", "sum")

    def logsumexp_up(self, x: Tensor) -> Tensor:
        """Give each class log(sum(exp)) over itself and its descendants; x is (..., C)."""
        return self._propagate(x, "up", "logsumexp")

    def max_down(self, x: Tensor) -> Tensor:
        """Give each class the maximum over itself and its ancestors; x is (..., C)."""
        return self._propagate(x, "down", "max")

    def sum_down(self, x: Tensor) -> Tensor:
        """Give each class the sum over itself and its ancestors, each once; x is (..., C)."""
        return self._propagate(x, "down", "sum")

    def _propagate(self, x: Tensor, direction: str, reduce: str) -> Tensor:
        from hierlearn.hierarchy import propagate

        propagate.check(x, len(self))
        route = propagate.routes_on(self, x.device)
        if reduce == "logsumexp":
            return propagate.logsumexp_up(x, route)
        return propagate.sweep(x, route, reduce, upward=direction == "up")

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
        form = [self.named_by, self.sep, self.bare_names, self.structure.parent_lists]
        return hashlib.sha256(json.dumps(form, separators=(",", ":")).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return self is other or self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hierarchy.from_json, (self.to_json(),)

    def to_json(self) -> str:
        """Return the hierarchy as JSON text that ``from_json`` and ``read`` take."""
        beside = ("aliases", "pruned", "obsolete")
        form = {
            "format": FORMAT,
            "version": VERSION,
            "named_by": self.named_by,
            "sep": self.sep,
            "root": self.root,
            "names": self.bare_names,
            "parents": self.structure.parent_lists,
            **({"titles": self.titles} if self.has_titles else {}),
            **{name: value for name in beside if (value := getattr(self, name))},
            **({"namespaces": self.namespaces} if self.namespace_names else {}),
        }
        return json.dumps(form, ensure_ascii=False)

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

    def draw(self, *, depth: int | None = None, breadth: int | None = 12) -> str:
        """Return the hierarchy as a text tree, the number of descendants behind each class.

        Args:
            depth: fold whatever lies deeper than this level.
            breadth: show at most this many children of a class.
        """
        return draw.as_text(self, depth, breadth)
