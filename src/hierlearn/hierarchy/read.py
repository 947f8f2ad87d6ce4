"""Reading a hierarchy from a file: its extension determines the format, ``form`` the rest.

| extension | content |
|---|---|
| .json | what ``to_json`` writes; nested objects; a parent map; a list of edges or of paths |
| .csv .tsv | columns parent and child: edges; one column path: paths; else one column per level |
| .txt .paths | one path per line; blank lines and lines that begin with # are skipped |
| .arff | the hierarchical attribute of a Clus header |
| .obo | terms with is_a and part_of; obsolete terms are skipped |
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierarchyError, place, unknown_name
from hierlearn.files import read_rows, read_text
from hierlearn.hierarchy.clus import hierarchy_of, read_header
from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.json_format import FORMAT
from hierlearn.hierarchy.names import level_path, split_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FORMS = ("nested", "parents", "edges", "paths", "levels")


def read_hierarchy(
    path: Path | str, *, form: str | None = None, sep: str = "/", root: str | None = None
) -> Hierarchy:
    """Read the hierarchy in ``path``; see ``Hierarchy.read``."""
    path = Path(path)
    if form is not None and form not in FORMS:
        raise HierarchyError(unknown_name("form", form, FORMS))
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise HierarchyError(
            f"{path}: the extension {path.suffix!r} names no known format; "
            f"use one of {', '.join(READERS)}"
        )
    if form is not None and form not in reader.forms:
        known = f"use {', '.join(reader.forms)}" if reader.forms else "it has one form only"
        raise HierarchyError(f"{path}: a {path.suffix} file cannot have the form {form!r}; {known}")
    if root is not None and not reader.takes_root:
        raise HierarchyError(
            f"{path}: root= names a node of edges, parent maps and OBO files; "
            f"a {path.suffix} file has none"
        )
    try:
        return reader.read(path, form, sep, root)
    except HierarchyError as error:
        message = str(error)
        raise HierarchyError(
            message if message.startswith(str(path)) else f"{path}: {message}"
        ) from None


def read_json(path: Path, form: str | None, sep: str, root: str | None) -> Hierarchy:
    """Read any of the JSON forms."""
    text = read_text(path)
    try:
        value = json.loads(text, object_pairs_hook=_no_repeats)
    except RecursionError:
        raise HierarchyError("the JSON is nested too deeply; write edges or paths") from None
    except json.JSONDecodeError as error:
        raise HierarchyError(f"{place(path, error.lineno)}: not JSON: {error.msg}") from None
    if isinstance(value, dict) and value.get("format") == FORMAT:
        if form is not None or root is not None:
            raise HierarchyError("the file was written by to_json and needs no form and no root")
        return Hierarchy.from_json(text)
    form = form or json_form(value)
    check_root(form, root)
    if form == "nested":
        return Hierarchy.from_nested(value, sep=sep)
    if form == "paths" and isinstance(value, list):
        return Hierarchy.from_paths(value, sep=sep)
    if form == "parents" and isinstance(value, dict):
        return Hierarchy.from_parents(value, sep=sep, root=root)
    if form == "edges" and isinstance(value, list):
        pairs = [
            (one.get("parent"), one.get("child")) if isinstance(one, dict) else one for one in value
        ]
        return Hierarchy.from_edges(pairs, sep=sep, root=root)
    raise HierarchyError(f"the JSON is a {type(value).__name__}, which is not of the form {form!r}")


def check_root(form: str, root: str | None) -> None:
    """Raise if a root is given for a form that has none."""
    if root is not None and form in ("nested", "paths", "levels"):
        raise HierarchyError(f"root= names a node of edges or parent maps; {form} have none")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise HierarchyError(f"duplicate path: the key {repeated!r} occurs twice in one object")
    return found


def json_form(value: Any) -> str:
    """Return the form of a JSON value; raise where it could have two."""
    if isinstance(value, list):
        return list_form(value)
    if isinstance(value, dict):
        return object_form(value)
    raise HierarchyError(f"the JSON is {value!r}, not an object or a list")


def list_form(entries: list[Any]) -> str:
    """Return the form of a JSON list."""
    if all(isinstance(one, str) for one in entries):
        return "paths"
    if all(isinstance(one, list) and len(one) == 2 for one in entries):
        return "edges"
    if all(isinstance(one, dict) and {"parent", "child"} <= set(one) for one in entries):
        return "edges"
    return "nested"


def object_form(value: dict[str, Any]) -> str:
    """Return the form of a JSON object."""
    if isinstance(value.get("name"), str) and set(value) <= {"name", "children"}:
        return "nested"
    kinds = {type(one) for one in value.values()}
    if str in kinds:
        return "parents"
    if dict not in kinds and any(isinstance(one, list) and one for one in value.values()):
        raise HierarchyError(
            "an object of lists could list children or parents; "
            "say which with form='nested' or form='parents'"
        )
    return "nested"


def read_table(path: Path, form: str | None, sep: str, root: str | None) -> Hierarchy:
    """Read a CSV or TSV file of edges, paths or level columns."""
    header, table = read_rows(path)
    lower = [name.lower() for name in header]
    if "" in lower:
        number = lower.index("") + 1
        raise HierarchyError(f"{place(path, 1)}: column {number} has no name; name it or drop it")
    if len({"parent", "child"} & set(lower)) == 1:
        raise HierarchyError(
            f"edges need both columns, 'parent' and 'child'; found {', '.join(header)}"
        )
    if form is None:
        is_edges = {"parent", "child"} <= set(lower)
        form = "edges" if is_edges else "paths" if lower == ["path"] else "levels"
    check_root(form, root)
    if form == "levels":
        return Hierarchy.from_paths(list(level_paths(path, table, sep)), sep=sep)
    if form == "paths":
        entries = [(line, row[0]) for line, row in table]
        return Hierarchy.from_paths(distinct_paths(path, entries, sep), sep=sep)
    if not {"parent", "child"} <= set(lower):
        raise HierarchyError(f"edges need the columns 'parent' and 'child'; found {header}")
    above, below = lower.index("parent"), lower.index("child")
    edges = distinct_edges(path, ((line, row[above], row[below]) for line, row in table))
    return Hierarchy.from_edges(edges, sep=sep, root=root)


def level_paths(path: Path, table: list[tuple[int, list[str]]], sep: str) -> dict[str, None]:
    """Return the distinct paths of rows with one column per level."""
    found: dict[str, None] = {}
    for line, row in table:
        try:
            found[sep.join(level_path(row, sep))] = None
        except HierarchyError as error:
            raise HierarchyError(f"{place(path, line)}: {error}") from None
    return found


def read_paths(path: Path, form: str | None, sep: str, root: str | None) -> Hierarchy:  # noqa: ARG001
    """Read a text file with one path per line."""
    lines = enumerate((line.strip() for line in read_text(path).split("\n")), start=1)
    entries = [(number, line) for number, line in lines if line and not line.startswith("#")]
    return Hierarchy.from_paths(distinct_paths(path, entries, sep), sep=sep)


def distinct_paths(path: Path, entries: Iterable[tuple[int, str]], sep: str) -> list[str]:
    """Return the paths of numbered lines; raise on duplicates and empty parts."""
    seen: dict[str, int] = {}
    for number, entry in entries:
        if entry in seen:
            raise HierarchyError(
                f"{place(path, number)}: duplicate path {entry!r}, first on line {seen[entry]}"
            )
        try:
            split_path(entry, sep)
        except HierarchyError as error:
            raise HierarchyError(f"{place(path, number)}: {error}") from None
        seen[entry] = number
    return list(seen)


def distinct_edges(
    path: Path, entries: Iterable[tuple[int, str, str]]
) -> list[tuple[str | None, str]]:
    """Return the edges of numbered lines; raise on duplicates and missing children."""
    seen: dict[tuple[str | None, str], int] = {}
    for number, above, below in entries:
        edge = (above or None, below)
        if not below:
            raise HierarchyError(f"{place(path, number)}: edge {edge!r}: its child is empty")
        if edge in seen:
            raise HierarchyError(
                f"{place(path, number)}: duplicate edge {above!r} -> {below!r}, "
                f"first on line {seen[edge]}"
            )
        seen[edge] = number
    return list(seen)


def read_arff_header(
    path: Path,
    form: str | None,  # noqa: ARG001
    sep: str,
    root: str | None,  # noqa: ARG001
) -> Hierarchy:
    """Read the hierarchical attribute of a Clus ARFF file."""
    header = read_header(path, read_text(path).split("\n"))
    return hierarchy_of(header.attributes[header.class_position(path)], path, sep=sep)


OBO_PARENT = re.compile(r"(?:is_a:|relationship:\s*part_of\s)\s*(\S+)")
OBO_TERM = re.compile(r"^\[Term\][^\S\n]*$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)


def read_obo(path: Path, form: str | None, sep: str, root: str | None) -> Hierarchy:  # noqa: ARG001
    """Read the terms of an OBO file; is_a and part_of lead to the parents."""
    text = read_text(path)
    terms: dict[str, list[tuple[int, str]]] = {}  # the parents of each, with their lines
    first, scanned = 1, 0  # the line of the stanza, counted on from the one before
    for stanza in OBO_TERM.finditer(text):
        first += text.count("\n", scanned, stanza.start())
        scanned = stanza.start()
        term, parents, is_obsolete = obo_term(stanza[1], first)
        if not term:
            raise HierarchyError(f"{place(path, first)}: a [Term] without an id")
        if term in terms:
            raise HierarchyError(f"{place(path, first)}: duplicate term {term!r}")
        if not is_obsolete:
            terms[term] = parents
    for term, parents in terms.items():
        for line_number, parent in parents:
            if parent not in terms and parent != root:
                raise HierarchyError(
                    f"{place(path, line_number)}: term {term!r} has the unknown or obsolete "
                    f"parent {parent!r}"
                )
    # A term may be both is_a and part_of the same parent: that is one edge.
    above = {term: sorted({parent for _, parent in parents}) for term, parents in terms.items()}
    return Hierarchy.from_parents(above, sep=sep, root=root, named_by="id")


def obo_term(stanza: str, first: int) -> tuple[str, list[tuple[int, str]], bool]:
    """Return the id of a [Term], its parents with their lines, and whether it is obsolete."""
    term, is_obsolete = "", False
    parents: list[tuple[int, str]] = []
    for offset, line in enumerate(stanza.split("\n")):
        if line.startswith("id:"):
            term = next(iter(line[3:].split()), "")  # a modifier or a comment may follow
        elif line.startswith("is_obsolete:"):
            is_obsolete = line[12:].strip().lower().startswith("true")
        elif match := OBO_PARENT.match(line):
            parents.append((first + offset, match[1]))
    return term, parents, is_obsolete


@dataclass(frozen=True)
class Reader:
    """How a format is read, and the forms it may hold."""

    read: Callable[[Path, str | None, str, str | None], Hierarchy]
    forms: tuple[str, ...]
    takes_root: bool = True


READERS: dict[str, Reader] = {
    ".json": Reader(read_json, ("nested", "parents", "edges", "paths")),
    ".csv": Reader(read_table, ("edges", "parents", "paths", "levels")),
    ".tsv": Reader(read_table, ("edges", "parents", "paths", "levels")),
    ".txt": Reader(read_paths, ("paths",), takes_root=False),
    ".paths": Reader(read_paths, ("paths",), takes_root=False),
    ".arff": Reader(read_arff_header, (), takes_root=False),
    ".obo": Reader(read_obo, ()),
}
