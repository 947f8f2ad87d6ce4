"""Titles: what people call the classes, such as "Cholera" for ``A00``.

A title is shown beside a class and names nothing: labels, equality and the fingerprint know classes
by their names alone. Titles are one line each, and any class may lack one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierarchyError
from hierlearn.hierarchy.names import is_missing
from hierlearn.hierarchy.nodes import Nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label

WIDEST = 60  # characters of a title on a terminal and in a drawing


class Titled(Nodes):
    """The part of a Hierarchy that knows titles."""

    titles: tuple[str | None, ...]  # of every class, None where it has none

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
        return self._titled(
            tuple(found.get(number, title) for number, title in enumerate(self.titles))
        )

    def _titled(self, titles: tuple[str | None, ...]) -> Self:
        """Return the hierarchy with these titles; all that does not depend on them is shared."""
        new = object.__new__(type(self))
        vars(new).update({**vars(self), "titles": titles})
        return new


def checked_title(value: object, name: object) -> str | None:
    """Return a title in one line, None where there is none; raise on what is no text.

    Args:
        value: the title, or a mark of a missing one.
        name: the class, for the error.
    """
    if is_missing(value):
        return None
    if not isinstance(value, str):
        raise HierarchyError(f"the title of {name!r} is {value!r}, which is not text")
    return " ".join(value.split()) or None


def set_title(titles: dict[Any, str | None], key: Any, title: str | None, name: object) -> None:
    """Note a title; raise where the class has another one already.

    Args:
        titles: changed in place.
        key: of the class among them.
        title: the title.
        name: the class, for the error.
    """
    if key in titles and titles[key] != title:
        raise HierarchyError(
            f"class {name!r} has two titles, {titles[key]!r} and {title!r}; keep one of them"
        )
    titles[key] = title


def inherit_titles(new: Hierarchy, old: Hierarchy) -> Hierarchy:
    """Return a hierarchy with the titles of another one for classes of the same name without one.

    Args:
        new: the hierarchy; its own titles stay.
        old: the hierarchy that it was made from.
    """
    if not old.has_titles:
        return new
    known = dict(zip(old.names, old.titles, strict=True))
    pairs = zip(new.names, new.titles, strict=True)
    return new._titled(tuple(known.get(name) if own is None else own for name, own in pairs))


def with_title(hierarchy: Hierarchy, name: str, most: int = WIDEST) -> str:
    """Return ``A00 (Cholera)``: a class and its title, shortened, where it has one."""
    title = hierarchy.title(name)
    return name if title is None else f"{name} ({shorten(title, most)})"


def joined_titles(hierarchy: Hierarchy, names: Iterable[str], sep: str) -> str:
    """Return the titles of several classes in one cell, one after each separator."""
    return sep.join(hierarchy.title(name) or "" for name in names)


def shorten(text: str, longest: int) -> str:
    """Return a text of at most ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"
