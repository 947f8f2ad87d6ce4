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

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.errors import DataError, HierarchyError, arg, place, quoted, unknown_name
from hierlearn.files import read_rows, read_text
from hierlearn.files.reading import parse_json, plain_ending
from hierlearn.hierarchy.formats.build import (
    FORMAT,
    NODE_KEYS,
    Source,
    nodes_from_edges,
    nodes_from_levels,
    nodes_from_paths,
)
from hierlearn.hierarchy.formats.obo import read_obo
from hierlearn.hierarchy.formats.rdf import SYNTAX, read_rdf
from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.names import checked_sep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TABLE_FORMS = ("edges", "parents", "paths", "levels")
JSON_FORMS = ("nested", "parents", "edges", "paths")
FORMS = dict.fromkeys((*JSON_FORMS, *TABLE_FORMS))
ONLY = {  # what an option is for, where a file does not take it
    "root": f"{arg('root=')} names a node of edges, parent maps, OBO and RDF files",
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


class Reader(NamedTuple):
    """How a format is read, the forms it may hold, and the other options it takes."""

    read: Callable[..., Hierarchy]
    forms: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def read_hierarchy(
    path: Path | str, *, form: str | None = None, sep: str = "/", **options: Any
) -> Hierarchy:
    """Read the hierarchy in ``path``; see ``Hierarchy.read``."""
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
    for name in options:
        if name not in reader.options:
            raise HierarchyError(f"{path}: {ONLY[name]}; a {ending} file has none")
    if form is not None:
        options["form"] = form
    try:
        return reader.read(path, sep, **options)
    except HierarchyError as error:
        message = str(error)
        raise HierarchyError(
            message if message.startswith(str(path)) else f"{path}: {message}"
        ) from None


def read_json(path: Path, sep: str, form: str | None = None, root: str | None = None) -> Hierarchy:
    """Read any of the JSON forms."""

    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise HierarchyError(f"duplicate path: the key {repeated!r} occurs twice in one object")
        return found

    text = read_text(path)
    value = parse_json(text, path, HierarchyError, object_pairs_hook=no_repeats)
    if isinstance(value, dict) and value.get("format") == FORMAT:
        if form is not None or root is not None:
            raise HierarchyError("the file was written by to_json and needs no form and no root")
        return Hierarchy.from_json(text)
    form = form or json_form(value)
    check_root(form, root)
    if form == "nested":
        return Hierarchy.from_nested(value, sep=sep)
    if form == "parents" and isinstance(value, dict):
        return Hierarchy.from_parents(value, sep=sep, root=root)
    if form == "parents" or not isinstance(value, list):
        kind = type(value).__name__
        raise HierarchyError(f"the JSON is a {kind}, which is not of the form {form!r}")
    titles = [one.get("title") if isinstance(one, dict) else None for one in value]
    if form == "paths":
        paths = [one["path"] if is_titled_path(one) else one for one in value]
        nodes = nodes_from_paths(zip(itertools.count(), paths, titles, strict=False), sep)
        return Hierarchy.from_nodes(nodes, sep, named_by="path")
    edges = [
        (one.get("parent"), one.get("child")) if isinstance(one, dict) else one for one in value
    ]
    nodes = nodes_from_edges(zip(itertools.count(), edges, titles, strict=False), root)
    return Hierarchy.from_nodes(nodes, sep, root=root, ids=True)


def check_root(form: str, root: str | None) -> None:
    """Raise if a root is given for a form that has none."""
    if root is not None and form in ("nested", "paths", "levels"):
        raise HierarchyError(
            f"{arg('root=')} names a node of edges or parent maps; {form} have none"
        )


def json_form(value: Any) -> str:
    """Return the form of a JSON value; raise where it could have two."""
    if isinstance(value, list):
        if all(isinstance(one, str) or is_titled_path(one) for one in value):
            return "paths"
        if all(isinstance(one, list) and len(one) == 2 for one in value):
            return "edges"
        if all(isinstance(one, dict) and {"parent", "child"} <= set(one) for one in value):
            return "edges"
        return "nested"
    if not isinstance(value, dict):
        raise HierarchyError(f"the JSON is {value!r}, not an object or a list")
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


def is_titled_path(entry: Any) -> bool:
    """Whether an entry of a JSON list is a path with its title."""
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        return False
    return set(entry) <= {"path", "title"}


def read_table(
    path: Path,
    sep: str,
    form: str | None = None,
    root: str | None = None,
    title_column: str | None = None,
) -> Hierarchy:
    """Read a CSV or TSV file of edges, paths or level columns, and titles."""
    header, table = read_rows(path)
    if "" in header:
        number = header.index("") + 1
        raise HierarchyError(f"{place(path, 1)}: column {number} has no name; name it or drop it")
    lower = [name.lower() for name in header]
    at = lower.index("title") if "title" in lower and len(header) > 1 else None
    if title_column is not None:
        if title_column not in header:
            raise HierarchyError(f"no column {title_column!r}; the columns are {quoted(header)}")
        if title_column.lower() in ("parent", "child", "path") or len(header) == 1:
            raise HierarchyError(
                f"the column {title_column!r} names classes and cannot hold their titles"
            )
        at = header.index(title_column)
    titles = itertools.repeat(None) if at is None else [row.pop(at) for _, row in table]
    lower = [name for number, name in enumerate(lower) if number != at]
    ends = {"parent", "child"} & set(lower)
    if len(ends) == 1:
        raise HierarchyError(
            f"edges need both columns, 'parent' and 'child'; found {', '.join(header)}"
        )
    form = form or ("edges" if ends else "paths" if lower == ["path"] else "levels")
    check_root(form, root)
    lines, cells = (line for line, _ in table), (row for _, row in table)
    source = Source(path, "lines")
    if form == "levels":
        nodes = nodes_from_levels(zip(lines, cells, titles, strict=False), sep, source)
    elif form == "paths":
        paths = (row[0] for row in cells)
        nodes = nodes_from_paths(zip(lines, paths, titles, strict=False), sep, source)
    else:
        if not ends:
            raise HierarchyError(f"edges need the columns 'parent' and 'child'; found {header}")
        above, below = lower.index("parent"), lower.index("child")
        edges = ((row[above], row[below]) for row in cells)
        nodes = nodes_from_edges(zip(lines, edges, titles, strict=False), root, source)
        return Hierarchy.from_nodes(nodes, sep, root=root, ids=True)
    return Hierarchy.from_nodes(nodes, sep, named_by="path")


def read_paths(path: Path, sep: str) -> Hierarchy:
    """Read a text file with one path per line."""
    lines = enumerate((line.strip() for line in read_text(path).split("\n")), start=1)
    entries = ((number, line, None) for number, line in lines if line and line[0] != "#")
    nodes = nodes_from_paths(entries, sep, Source(path, "lines"))
    return Hierarchy.from_nodes(nodes, sep, named_by="path")


def read_arff_header(path: Path, sep: str) -> Hierarchy:
    """Read the hierarchical attribute of a Clus ARFF file."""
    attributes, _ = read_header(path, read_text(path).split("\n"))
    return hierarchy_of(attributes[class_position(attributes, path)], path, sep=sep)


READERS: dict[str, Reader] = {
    ".json": Reader(read_json, JSON_FORMS, ("root",)),
    ".csv": Reader(read_table, TABLE_FORMS, ("root", "title_column")),
    ".tsv": Reader(read_table, TABLE_FORMS, ("root", "title_column")),
    ".txt": Reader(read_paths, ("paths",)),
    ".paths": Reader(read_paths, ("paths",)),
    ".arff": Reader(read_arff_header),
    ".obo": Reader(read_obo, (), ("root", "relationships")),
    **dict.fromkeys(SYNTAX, Reader(read_rdf, (), ("root", "language"))),
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


def class_position(attributes: Sequence[Attribute], path: Path | str) -> int:
    """Return the place of the one hierarchical attribute."""
    found = [at for at, one in enumerate(attributes) if one.kind == "hierarchical"]
    if not found:
        raise DataError(
            f"{path} has no class: a Clus file needs '@attribute class hierarchical ...'"
        )
    if len(found) > 1:
        line = attributes[found[1]].line
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


def read_header(path: Path | str, lines: list[str]) -> tuple[list[Attribute], int]:
    """Return the attributes of an ARFF file, and the number of its @data line."""
    attributes: list[Attribute] = []
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        word = line.split(None, 1)[0].lower() if line else ""
        if not line or line.startswith("%") or word == "@relation":
            continue
        if word == "@data":
            return attributes, number
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
