"""OBO files (Gene Ontology, HPO): terms with their names and their parents."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hierlearn.errors import HierarchyError, place
from hierlearn.files import read_text
from hierlearn.hierarchy.hierarchy import Hierarchy

if TYPE_CHECKING:
    from pathlib import Path

PARENT = re.compile(r"(?:is_a:|relationship:\s*part_of\s)\s*(\S+)")
TERM = re.compile(r"^\[Term\][^\S\n]*$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
REMARK = re.compile(r"\s!\s.*$|\s\{[^{}]*=[^{}]*\}\s*$")  # a comment, modifiers
ESCAPE = re.compile(r"\\(.)")


@dataclass
class Term:
    """A term of an OBO file."""

    id: str = ""
    name: str | None = None
    parents: list[tuple[int, str]] = field(default_factory=list)  # with their lines
    is_obsolete: bool = False


def read_obo(path: Path, form: str | None, sep: str, root: str | None) -> Hierarchy:  # noqa: ARG001
    """Read the terms of an OBO file; is_a and part_of lead to the parents, names are titles."""
    text = read_text(path)
    terms: dict[str, Term] = {}
    first, scanned = 1, 0  # the line of the stanza, counted on from the one before
    for stanza in TERM.finditer(text):
        first += text.count("\n", scanned, stanza.start())
        scanned = stanza.start()
        term = parse_term(stanza[1], first)
        if not term.id:
            raise HierarchyError(f"{place(path, first)}: a [Term] without an id")
        if term.id in terms:
            raise HierarchyError(f"{place(path, first)}: duplicate term {term.id!r}")
        if not term.is_obsolete:
            terms[term.id] = term
    for term in terms.values():
        for line_number, parent in term.parents:
            if parent not in terms and parent != root:
                raise HierarchyError(
                    f"{place(path, line_number)}: term {term.id!r} has the unknown or obsolete "
                    f"parent {parent!r}"
                )
    # A term may be both is_a and part_of the same parent: that is one edge.
    above = {key: sorted({parent for _, parent in term.parents}) for key, term in terms.items()}
    titles = {key: term.name for key, term in terms.items()}
    return Hierarchy.from_parents(above, sep=sep, root=root, named_by="id", titles=titles)


def parse_term(stanza: str, first: int) -> Term:
    """Return the term of a stanza whose first line is given."""
    term = Term()
    for offset, line in enumerate(stanza.split("\n")):
        if line.startswith("id:"):
            term.id = next(iter(line[3:].split()), "")  # a modifier or a comment may follow
        elif line.startswith("name:"):
            term.name = unescape(REMARK.sub("", line[5:]))
        elif line.startswith("is_obsolete:"):
            term.is_obsolete = line[12:].strip().lower().startswith("true")
        elif match := PARENT.match(line):
            term.parents.append((first + offset, match[1]))
    return term


def unescape(text: str) -> str:
    """Return the text that OBO writes with backslashes; escaped white space is a space."""
    return ESCAPE.sub(lambda match: " " if match[1] in "ntW" else match[1], text)
