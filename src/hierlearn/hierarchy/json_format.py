"""The JSON form of a hierarchy, as ``to_json`` writes it and ``from_json`` reads it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.errors import HierarchyError
from hierlearn.files.reading import parse_json as read_value
from hierlearn.hierarchy.names import NAMINGS, checked, checked_sep
from hierlearn.hierarchy.titles import checked_title

if TYPE_CHECKING:
    from hierlearn.hierarchy.nodes import NamedBy
    from hierlearn.hierarchy.structure import Structure
    from hierlearn.hierarchy.titles import Titled

FORMAT = "hierlearn.hierarchy"
VERSION = 1
BESIDE = ("aliases", "pruned", "obsolete")


class JsonForm(NamedTuple):
    """The content of the JSON, checked."""

    names: list[str]  # bare
    parents: list[list[int]]  # the numbers of each class's parents
    sep: str
    root: str
    named_by: NamedBy
    titles: list[str | None] | None = None  # of each class, where any has one
    beside: dict[str, Any] = {}  # noqa: RUF012  what ``with_aliases`` takes


def to_json(hierarchy: Titled) -> str:
    """Return a hierarchy as JSON text."""
    form = {
        "format": FORMAT,
        "version": VERSION,
        "named_by": hierarchy.named_by,
        "sep": hierarchy.sep,
        "root": hierarchy.root,
        "names": hierarchy.bare_names,
        "parents": parent_lists(hierarchy.structure),
        **({"titles": hierarchy.titles} if hierarchy.has_titles else {}),
        **{name: value for name in BESIDE if (value := getattr(hierarchy, name))},
        **({"namespaces": hierarchy.namespaces} if hierarchy.namespace_names else {}),
    }
    return json.dumps(form, ensure_ascii=False)


def parent_lists(structure: Structure) -> list[list[int]]:
    """Return the numbers of each class's parents."""
    flat, offsets = structure.parent_ids.tolist(), structure.parent_offsets.tolist()
    return [flat[a:b] for a, b in pairwise(offsets)]


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
