"""OBO files (Gene Ontology, HPO): terms with their names, namespaces, parents and other ids.

| line | what becomes of it |
|---|---|
| id, name, namespace | the class, its title and its namespace (or default-namespace) |
| is_a, relationship | the parents: is_a and part_of, unless ``relationships`` names others |
| is_obsolete | the term is left out |
| alt_id, replaced_by | labels that stand for a term: ``Hierarchy.aliases`` |
| consider | what an error suggests instead of an obsolete term: ``Hierarchy.obsolete`` |
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hierlearn.errors import HierarchyError, place, quoted
from hierlearn.files import read_text
from hierlearn.hierarchy.hierarchy import Hierarchy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hierlearn.hierarchy.formats.build import Targets


RELATIONSHIPS = ("is_a", "part_of")
TERM = re.compile(r"^\[Term\][^\S\n]*$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
DEFAULT_NAMESPACE = re.compile(r"^default-namespace:[^\S\n]*(\S+)", re.MULTILINE)
REMARK = re.compile(r"\s!\s.*$|\s\{[^{}]*=[^{}]*\}\s*$")  # a comment, modifiers
ESCAPE = re.compile(r"\\(.)")
IDS = ("alt_id", "replaced_by", "consider")  # lines that hold one id


@dataclass
class Term:
    """A term of an OBO file."""

    id: str = ""
    line: int = 0
    name: str | None = None
    namespace: str | None = None
    is_obsolete: bool = False
    parents: list[tuple[int, str, str]] = field(default_factory=list)  # line, relationship, id
    alt_id: list[str] = field(default_factory=list)
    replaced_by: list[str] = field(default_factory=list)
    consider: list[str] = field(default_factory=list)


def read_obo(
    path: Path,
    sep: str,
    root: str | None = None,
    relationships: Sequence[str] | None = None,
) -> Hierarchy:
    """Read the terms of an OBO file.

    Args:
        path: the file, which may be compressed by gzip.
        sep: the separator of the hierarchy.
        root: a term that stands for the implicit root.
        relationships: what leads to a parent; by default is_a and part_of.
    """
    terms = read_terms(path, read_text(path))
    live = {key: term for key, term in terms.items() if not term.is_obsolete}
    if isinstance(relationships, str) or (relationships is not None and not relationships):
        raise HierarchyError(
            f"relationships is a list such as ['is_a', 'part_of'], not {relationships!r}"
        )
    known = {*RELATIONSHIPS} if relationships is None else {"is_a"}
    known |= {kind for term in terms.values() for _, kind, _ in term.parents}
    wanted = relationships or RELATIONSHIPS
    for one in wanted:
        if one not in known:
            raise HierarchyError(
                f"no term has the relationship {one!r}; the file has {quoted(sorted(known), 20)}"
            )
    above: dict[str, set[str]] = {key: set() for key in live}  # is_a and part_of may be one edge
    for key, term in live.items():
        for line, kind, parent in term.parents:
            if kind in wanted and parent not in live and parent != root:
                raise HierarchyError(
                    f"{place(path, line)}: term {key!r} has the unknown or obsolete "
                    f"parent {parent!r}"
                )
            if kind in wanted:
                above[key].add(parent)
    made = Hierarchy.from_parents(above, sep=sep, root=root, named_by="id")
    classes = {key: term for key, term in live.items() if key != root}
    aliases, obsolete = other_ids(terms, classes)
    return made.with_titles({key: term.name for key, term in classes.items()}).with_aliases(
        aliases=aliases,
        obsolete=obsolete,
        namespaces={key: term.namespace for key, term in classes.items()},
    )


def read_terms(path: Path, text: str) -> dict[str, Term]:
    """Return all terms by id, obsolete ones too."""
    header = text.partition("\n[")[0]
    default = DEFAULT_NAMESPACE.search(header)
    terms: dict[str, Term] = {}
    first, scanned = 1, 0  # the line of the stanza, counted on from the one before
    for stanza in TERM.finditer(text):
        first += text.count("\n", scanned, stanza.start())
        scanned = stanza.start()
        term = parse_term(stanza[1], first, path)
        if not term.id:
            raise HierarchyError(f"{place(path, first)}: a [Term] without an id")
        if term.id in terms:
            raise HierarchyError(f"{place(path, first)}: duplicate term {term.id!r}")
        if term.namespace is None and default is not None:
            term.namespace = default[1]
        terms[term.id] = term
    return terms


def parse_term(stanza: str, first: int, path: Path) -> Term:
    """Return the term of a stanza whose first line is given."""
    term = Term(line=first)
    continued = False
    for number, line in enumerate(stanza.split("\n"), start=first):
        tag, colon, rest = line.partition(":")
        tag = tag.strip()
        if not continued and not colon and tag and not tag.startswith("!"):
            raise HierarchyError(
                f"{place(path, number)}: {line.strip()[:60]!r} is no line of an OBO file; "
                f"write tag: value"
            )
        continued = line.endswith("\\")
        if tag == "id":
            if term.id:
                raise HierarchyError(f"{place(path, number)}: term {term.id!r} has a second id")
            term.id = (rest.split() or [""])[0]
        elif tag == "name":
            text = REMARK.sub("", rest)  # escaped white space is a space
            term.name = ESCAPE.sub(lambda one: " " if one[1] in "ntW" else one[1], text)
        elif tag == "namespace":
            term.namespace = (rest.split() or [""])[0] or None
        elif tag == "is_obsolete":
            term.is_obsolete = rest.strip().lower().startswith("true")
        elif tag == "is_a":
            term.parents.append((number, "is_a", needed_id(rest, line, number, path)))
        elif tag == "relationship":
            kind, _, target = rest.strip().partition(" ")
            term.parents.append((number, kind, needed_id(target, line, number, path)))
        elif tag in IDS:
            getattr(term, tag).append(needed_id(rest, line, number, path))
    return term


def needed_id(text: str, line: str, number: int, path: Path) -> str:
    """Return the id that a line names; raise where there is none."""
    found = (text.split() or [""])[0]  # a modifier or a comment may follow
    if not found or found.startswith(("!", "{")):
        raise HierarchyError(f"{place(path, number)}: {line.strip()!r} names no term; write its id")
    return found


def other_ids(terms: dict[str, Term], classes: dict[str, Term]) -> tuple[Targets, Targets]:
    """Return which classes other ids stand for, and what to consider for obsolete terms.

    Args:
        terms: all terms.
        classes: those that are classes.
    """
    owners: dict[str, list[str]] = {}
    for key, term in terms.items():
        for other in term.alt_id:
            owners.setdefault(other, []).append(key)

    def current(start: str) -> tuple[str, ...]:
        """Follow alt_id and replaced_by to classes."""
        found: dict[str, None] = {}
        seen, waiting = {start}, [start]
        while waiting:
            one = waiting.pop(0)
            if one in classes:
                found[one] = None
                continue
            replaced = terms[one].replaced_by if one in terms else ()
            fresh = [other for other in (*replaced, *owners.get(one, ())) if other not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
        return tuple(found)

    gone = {key for key, term in terms.items() if term.is_obsolete}
    others = [other for other in {**owners, **dict.fromkeys(sorted(gone))} if other not in classes]
    aliases = {other: names for other in others if (names := current(other))}
    obsolete = {}
    for other in others:
        if other not in aliases and other in gone:
            advice = (current(one) for one in terms[other].consider)
            obsolete[other] = tuple(dict.fromkeys(name for names in advice for name in names))
    return aliases, obsolete
