"""The header of a Clus ARFF file: its attributes, and the hierarchy in its class attribute.

Clus writes a taxonomy into the type of an attribute, ``@ATTRIBUTE class hierarchical ...``, in one
of two forms. Tree: the path of every class, ``1,1/1,1/1/0``. DAG: the edges ``parent/child``
below a root of the name ``root``, ``root/GO3,GO3/GO7,...``. A file whose entries all have two
parts, one of them below ``root``, is of the DAG form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hierlearn.errors import DataError, HierarchyError, place
from hierlearn.hierarchy.hierarchy import Hierarchy

if TYPE_CHECKING:
    from pathlib import Path

ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s'"]\S*))
        \s*(?P<kind>.*)$""",
    re.IGNORECASE | re.VERBOSE,
)
NUMERIC = ("numeric", "real", "integer")
DAG_ROOT = "root"


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
        raise HierarchyError(f"{place(path, attribute.line)}: {error}") from None
