"""Reading a hierarchy from a file: its extension determines the format, ``form`` the rest.

| extension | content |
|---|---|
| .json | what ``to_json`` writes; nested objects; a parent map; a list of edges or of paths |
| .csv .tsv | columns parent and child: edges; one column path: paths; else one column per level |
| .txt .paths | one path per line; blank lines and lines that begin with # are skipped |
| .arff | the hierarchical attribute of a Clus header |
| .obo | terms with is_a and part_of; see ``obo`` |
| .ttl .rdf .owl .jsonld .nt | thesauri in SKOS, classes in OWL; see ``rdf`` |

All may be compressed: .obo.gz. Titles come from a column ``title`` of a table (or that which
``title_column`` names), from the key ``title`` of an object in JSON, from the names of OBO terms,
and from the labels of RDF.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError, HierarchyError, arg, place, quoted, unknown_name
from hierlearn.files import read_rows, read_text
from hierlearn.files.reading import parse_json, plain_ending
from hierlearn.hierarchy.formats.build import FORMAT, NODE_KEYS
from hierlearn.hierarchy.formats.obo import read_obo
from hierlearn.hierarchy.formats.rdf import SYNTAX, read_rdf
from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.names import (
    checked_sep,
    checked_title,
    has_gap,
    level_path,
    set_title,
    split_path,
    warn_of_gaps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


FORMS = ("nested", "parents", "edges", "paths", "levels")
ONLY = {  # what an option is for, where a file does not take it
    "title_column": f"{arg('title_column')} names a column of a CSV or TSV file",
    "relationships": f"{arg('relationships')} names lines of an OBO file",
    "language": "language is that of the titles in an RDF file",
}
ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s'"]\S*))
        \s*(?P<kind>.*)$""",
    re.IGNORECASE | re.VERBOSE,
)
NUMERIC = ("numeric", "real", "integer")
DAG_ROOT = "root"


def read_hierarchy(
    path: Path | str,
    *,
    form: str | None = None,
    sep: str = "/",
    root: str | None = None,
    **more: Any,
) -> Hierarchy:
    """Read the hierarchy in ``path``; see ``Hierarchy.read``, ``more`` are its other options."""
    path = Path(path)
    checked_sep(sep)
    if form is not None and form not in FORMS:
        raise HierarchyError(unknown_name("form", form, FORMS))
    ending = plain_ending(path)
    reader = READERS.get(ending)
    if reader is None:
        raise HierarchyError(
            f"{path}: the extension {path.suffix!r} names no known format; "
            f"use one of {', '.join(READERS)}"
        )
    if form is not None and form not in reader.forms:
        known = f"use {', '.join(reader.forms)}" if reader.forms else "it has one form only"
        raise HierarchyError(f"{path}: a {ending} file cannot have the form {form!r}; {known}")
    if root is not None and not reader.takes_root:
        raise HierarchyError(
            f"{path}: {arg('root=')} names a node of edges, parent maps, OBO and RDF files; "
            f"a {ending} file has none"
        )
    for name in more:
        if name not in reader.takes:
            raise HierarchyError(f"{path}: {ONLY[name]}; a {ending} file has none")
    try:
        return reader.read(path, form, sep, root, **more)
    except HierarchyError as error:
        message = str(error)
        raise HierarchyError(
            message if message.startswith(str(path)) else f"{path}: {message}"
        ) from None


def read_json(path: Path, form: str | None, sep: str, root: str | None) -> Hierarchy:
    """Read any of the JSON forms."""
    text = read_text(path)
    value = parse_json(text, path, HierarchyError, object_pairs_hook=_no_repeats)
    if isinstance(value, dict) and value.get("format") == FORMAT:
        if form is not None or root is not None:
            raise HierarchyError("the file was written by to_json and needs no form and no root")
        return Hierarchy.from_json(text)
    form = form or json_form(value)
    check_root(form, root)
    if form == "nested":
        return Hierarchy.from_nested(value, sep=sep)
    if form == "paths" and isinstance(value, list):
        paths = [one["path"] if is_titled_path(one) else one for one in value]
        titles = {one["path"]: one.get("title") for one in value if is_titled_path(one)}
        return Hierarchy.from_paths(paths, sep=sep).with_titles(titles)
    if form == "parents" and isinstance(value, dict):
        return Hierarchy.from_parents(value, sep=sep, root=root)
    if form == "edges" and isinstance(value, list):
        pairs = [
            (one.get("parent"), one.get("child")) if isinstance(one, dict) else one for one in value
        ]
        titles = {}
        for one in value:
            child = one.get("child") if isinstance(one, dict) else None
            if isinstance(child, (str, int)) and one.get("title") is not None:
                set_title(titles, child, one["title"], child)
        return Hierarchy.from_edges(pairs, sep=sep, root=root, titles=titles)
    raise HierarchyError(f"the JSON is a {type(value).__name__}, which is not of the form {form!r}")


def check_root(form: str, root: str | None) -> None:
    """Raise if a root is given for a form that has none."""
    if root is not None and form in ("nested", "paths", "levels"):
        raise HierarchyError(
            f"{arg('root=')} names a node of edges or parent maps; {form} have none"
        )


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
    if all(isinstance(one, str) or is_titled_path(one) for one in entries):
        return "paths"
    if all(isinstance(one, list) and len(one) == 2 for one in entries):
        return "edges"
    if all(isinstance(one, dict) and {"parent", "child"} <= set(one) for one in entries):
        return "edges"
    return "nested"


def is_titled_path(entry: Any) -> bool:
    """Whether an entry of a JSON list is a path with its title."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("path"), str)
        and {
            "path",
            "title",
        }
        >= set(entry)
    )


def object_form(value: dict[str, Any]) -> str:
    """Return the form of a JSON object."""
    if isinstance(value.get("name"), str) and set(value) <= set(NODE_KEYS):
        return "nested"
    kinds = {type(one) for one in value.values()}
    if str in kinds:
        return "parents"
    if dict not in kinds and any(isinstance(one, list) and one for one in value.values()):
        raise HierarchyError(
            "an object of lists could list children or parents; "
            f"say which with {arg('form', 'nested')} or {arg('form', 'parents')}"
        )
    return "nested"


def read_table(
    path: Path,
    form: str | None,
    sep: str,
    root: str | None,
    title_column: str | None = None,
) -> Hierarchy:
    """Read a CSV or TSV file of edges, paths or level columns, and titles."""
    header, table = read_rows(path)
    if "" in header:
        number = header.index("") + 1
        raise HierarchyError(f"{place(path, 1)}: column {number} has no name; name it or drop it")
    at = title_place(header, title_column)
    titles = {} if at is None else {line: row.pop(at) for line, row in table}
    lower = [name.lower() for place, name in enumerate(header) if place != at]
    if len({"parent", "child"} & set(lower)) == 1:
        raise HierarchyError(
            f"edges need both columns, 'parent' and 'child'; found {', '.join(header)}"
        )
    if form is None:
        is_edges = {"parent", "child"} <= set(lower)
        form = "edges" if is_edges else "paths" if lower == ["path"] else "levels"
    check_root(form, root)
    if form == "levels":
        entries = list(level_paths(path, table, sep))
        hierarchy = Hierarchy.from_paths(list(dict.fromkeys(p for _, p in entries if p)), sep=sep)
        return hierarchy.with_titles(titles_by_name(path, entries, titles))
    if form == "paths":
        entries = [(line, row[0]) for line, row in table]
        hierarchy = Hierarchy.from_paths(distinct_paths(path, entries, sep), sep=sep)
        return hierarchy.with_titles(titles_by_name(path, entries, titles))
    if not {"parent", "child"} <= set(lower):
        raise HierarchyError(f"edges need the columns 'parent' and 'child'; found {header}")
    above, below = lower.index("parent"), lower.index("child")
    edges = distinct_edges(path, ((line, row[above], row[below]) for line, row in table))
    named = titles_by_name(path, ((line, row[below]) for line, row in table), titles)
    return Hierarchy.from_edges(edges, sep=sep, root=root, titles=named)


def title_place(header: list[str], title_column: str | None) -> int | None:
    """Return the place of the column of titles; None where a table has none.

    A column ``title`` holds titles unless it is the only one.
    """
    if title_column is None:
        lower = [name.lower() for name in header]
        return lower.index("title") if "title" in lower and len(header) > 1 else None
    if title_column not in header:
        raise HierarchyError(f"no column {title_column!r}; the columns are {quoted(header)}")
    if title_column.lower() in ("parent", "child", "path") or len(header) == 1:
        raise HierarchyError(
            f"the column {title_column!r} names classes and cannot hold their titles"
        )
    return header.index(title_column)


def titles_by_name(
    path: Path, entries: Iterable[tuple[int, str]], titles: dict[int, str]
) -> dict[str, str | None]:
    """Return the titles of classes.

    Args:
        path: the file, for errors.
        entries: lines, each with the class that it names.
        titles: the title in each line; an empty one says nothing.
    """
    found: dict[str, str | None] = {}
    for line, name in entries:
        title = checked_title(titles.get(line), name)
        if title is None:
            continue
        if not name:
            raise HierarchyError(f"{place(path, line)}: the title {title!r} has no class")
        try:
            set_title(found, name, title, name)
        except HierarchyError as error:
            raise HierarchyError(f"{place(path, line)}: {error.message}") from None
    return found


def level_paths(
    path: Path, table: list[tuple[int, list[str]]], sep: str
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a table with one column per level, each with its path."""
    gaps: list[tuple[int, str]] = []
    for line, row in table:
        try:
            found = sep.join(level_path(row, sep))
        except HierarchyError as error:
            raise HierarchyError(f"{place(path, line)}: {error.message}") from None
        if has_gap(row):
            gaps.append((line, found))
        yield line, found
    if gaps:
        warn_of_gaps(path, len(gaps), f"line {gaps[0][0]}", gaps[0][1])


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
            raise HierarchyError(f"{place(path, number)}: {error.message}") from None
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


@dataclass(frozen=True)
class Reader:
    """How a format is read, and the forms it may hold."""

    read: Callable[..., Hierarchy]
    forms: tuple[str, ...]
    takes_root: bool = True
    takes: tuple[str, ...] = ()  # further options


READERS: dict[str, Reader] = {
    ".json": Reader(read_json, ("nested", "parents", "edges", "paths")),
    ".csv": Reader(read_table, ("edges", "parents", "paths", "levels"), takes=("title_column",)),
    ".tsv": Reader(read_table, ("edges", "parents", "paths", "levels"), takes=("title_column",)),
    ".txt": Reader(read_paths, ("paths",), takes_root=False),
    ".paths": Reader(read_paths, ("paths",), takes_root=False),
    ".arff": Reader(read_arff_header, (), takes_root=False),
    ".obo": Reader(read_obo, (), takes=("relationships",)),
    **{ending: Reader(read_rdf, (), takes=("language",)) for ending in SYNTAX},
}


# ----------------------------------------------------------------------
# The header of a Clus ARFF file: its attributes, and the hierarchy in its class attribute.
#
# Clus writes a taxonomy into the type of an attribute, ``@ATTRIBUTE class hierarchical ...``, in
# one of two forms. Tree: the path of every class, ``1,1/1,1/1/0``. DAG: the edges ``parent/child``
# below a root of the name ``root``, ``root/GO3,GO3/GO7,...``. A file whose entries all have two
# parts, one of them below ``root``, is of the DAG form.


@dataclass(frozen=True)
class Attribute:
    """One attribute: numeric, nominal (with its values) or the hierarchical class."""

    name: str
    kind: str  # "numeric", "nominal" or "hierarchical"
    values: tuple[str, ...]  # nominal values, or the entries of the hierarchy
    line: int


@dataclass(frozen=True)
class Header:
    """The attributes of an ARFF file and the number of its @data line."""

    attributes: tuple[Attribute, ...]
    data_line: int

    def class_position(self, path: Path | str) -> int:
        """Return the place of the one hierarchical attribute."""
        found = [i for i, one in enumerate(self.attributes) if one.kind == "hierarchical"]
        if not found:
            raise DataError(
                f"{path} has no class: a Clus file needs '@attribute class hierarchical ...'"
            )
        if len(found) > 1:
            line = self.attributes[found[1]].line
            raise DataError(f"{place(path, line)}: a second hierarchical attribute; one is allowed")
        return found[0]


def unquote(text: str) -> str:
    """Strip blanks, one pair of quotes and the backslashes of escaped characters."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def split_quoted(text: str) -> list[str]:
    """Split at commas that stand outside quotes."""
    if "'" not in text and '"' not in text:
        return text.split(",")
    parts, begin, quote, escaped = [], 0, "", False
    for place_, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and not text[begin:place_].strip():
            quote = char
        elif char == ",":
            parts.append(text[begin:place_])
            begin = place_ + 1
    if quote:
        raise ValueError(f"a quotation mark {quote} is never closed")
    return [*parts, text[begin:]]


def read_header(path: Path | str, lines: list[str]) -> Header:
    """Read the lines of an ARFF file up to @data."""
    attributes: list[Attribute] = []
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        word = line.split(None, 1)[0].lower() if line else ""
        if not line or line.startswith("%") or word == "@relation":
            continue
        if word == "@data":
            return Header(tuple(attributes), number)
        match = ATTRIBUTE.match(line) if word == "@attribute" else None
        if match is None:
            raise DataError(
                f"{place(path, number)}: expected @attribute or @data, got {line[:60]!r}"
            )
        try:
            attributes.append(read_attribute(match, number))
        except ValueError as error:
            raise DataError(f"{place(path, number)}: {error}") from None
    raise DataError(f"{path} has no @data line; is the file cut off?")


def read_attribute(match: re.Match[str], line: int) -> Attribute:
    """Turn one matched @attribute line into an Attribute."""
    quoted_name = match["single"] if match["single"] is not None else match["double"]
    name = match["bare"] if quoted_name is None else re.sub(r"\\(.)", r"\1", quoted_name)
    kind = match["kind"].strip()
    word = kind.split(None, 1)[0].lower() if kind else ""
    if word in NUMERIC:
        return Attribute(name, "numeric", (), line)
    if kind.startswith("{"):
        if not kind.endswith("}"):
            raise ValueError(f"the values of {name!r} are not closed with }}")
        values = tuple(unquote(value) for value in split_quoted(kind[1:-1]))
        if len(set(values)) < len(values):
            raise ValueError(f"{name!r} lists a value twice")
        return Attribute(name, "nominal", values, line)
    if word == "hierarchical":
        entries = [unquote(entry) for entry in split_quoted(kind[len("hierarchical") :])]
        return Attribute(name, "hierarchical", tuple(e for e in entries if e), line)
    raise ValueError(
        f"attribute {name!r} has the type {kind[:40]!r}; known: numeric, {{a,b,...}}, hierarchical"
    )


def hierarchy_of(attribute: Attribute, path: Path | str, *, sep: str = "/") -> Hierarchy:
    """Build the hierarchy that a hierarchical attribute spells out."""
    entries = list(dict.fromkeys(attribute.values))  # Clus repeats inner classes
    split = [entry.split(sep) for entry in entries]
    is_dag = all(len(parts) == 2 for parts in split) and any(p[0] == DAG_ROOT for p in split)
    try:
        if is_dag:
            return Hierarchy.from_edges(
                [(above, below) for above, below in split], sep=sep, root=DAG_ROOT
            )
        return Hierarchy.from_paths(entries, sep=sep)
    except HierarchyError as error:
        raise HierarchyError(f"{place(path, attribute.line)}: {error.message}") from None
