"""Nodes: the names and numbers of the classes, and looking a class up by name."""

from __future__ import annotations

from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast

import numpy as np

from hierlearn.errors import LabelError, did_you_mean, quoted
from hierlearn.hierarchy.aliases import Aliases
from hierlearn.hierarchy.level_columns import as_rows
from hierlearn.hierarchy.structure import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hierlearn.hierarchy.structure import Ints, Structure

Label = str | int
L = TypeVar("L", str, int)
NamedBy = Literal["path", "id"]
MOST_COMPARED = 20_000  # names that an unknown label is compared with
LEVELS_SHOWN = 12  # in one line


class Nodes(Aliases):
    """C named classes in level order, immutable; the part of a Hierarchy that looks up."""

    structure: Structure
    bare_names: tuple[str, ...]
    sep: str
    root: str
    named_by: NamedBy

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Hierarchy is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Hierarchy is immutable; {name} cannot be deleted")

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
        for bare, parent in zip(
            self.bare_names, self.structure.first_parents.tolist(), strict=True
        ):
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
            if name not in found:
                found[name] = number
                continue
            before = found[name]
            found[name] = [*before, number] if isinstance(before, list) else [before, number]
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

    def look_up(
        self, rows: Iterable[Label | Iterable[Label] | None], *, numbers: bool = False
    ) -> tuple[Ints, Ints]:
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
                raise LabelError(f"row {row}: {error}") from None
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
