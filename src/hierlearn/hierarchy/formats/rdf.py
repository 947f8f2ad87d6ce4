"""RDF files, through rdflib: thesauri in SKOS and class trees in OWL, in Turtle, XML or JSON.

| statement | what becomes of it |
|---|---|
| skos:broader, skos:narrower | the parents of a concept; several make a DAG |
| skos:topConceptOf, skos:hasTopConcept | the concept is a top class |
| skos:prefLabel | the title, in one language |
| skos:notation | the name, where every concept has one; else the last part of its address |
| rdfs:subClassOf, rdfs:label | parents and titles of a file without SKOS |
| owl:deprecated true | the concept or class is left out |

The address of a concept is another label of it. Nothing is fetched: a context of JSON-LD stands in
the file itself, and owl:imports is not followed.
"""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.parsers import expat

from hierlearn.errors import HierarchyError, place, quoted, shown
from hierlearn.files import read_text
from hierlearn.files.reading import needed, parse_json, plain_ending
from hierlearn.hierarchy.hierarchy import Hierarchy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


SYNTAX = {".ttl": "turtle", ".nt": "nt", ".rdf": "xml", ".owl": "xml", ".jsonld": "json-ld"}
SKOS = "http://www.w3.org/2004/02/skos/core#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
ROOTS = {f"{OWL}Thing", f"{RDFS}Resource"}  # stand above every class and mean the implicit root
BASE = "file:///"  # of addresses that the file leaves open
XML = re.compile(r"\s*<(?:\?xml|!|[\w.-]+:RDF)")
ENGLISH = "en"


class Content(NamedTuple):
    """What a file says, by addresses.

    Attributes:
        parents: of each class.
        labels: of each class, each with its language.
        notations: of each class.
        what: what a class is called there.
    """

    parents: dict[str, set[str]]
    labels: dict[str, list[tuple[str, str]]]
    notations: dict[str, list[str]]
    what: str


def read_rdf(
    path: Path,
    sep: str,
    root: str | None = None,
    language: str | None = None,
) -> Hierarchy:
    """Read the concepts, or the classes, of an RDF file.

    Args:
        path: the file.
        sep: the separator of the hierarchy.
        root: a class that stands for the implicit root.
        language: of the titles, such as "de"; by default English, or what there is.
    """
    content = content_of(path, load(path))
    names = names_of(content)
    above = {
        names[one]: sorted(names[parent] for parent in parents)
        for one, parents in content.parents.items()
    }
    made = Hierarchy.from_parents(above, sep=sep, root=root, named_by="id")
    known = {address: name for address, name in names.items() if name != root}
    titles = titles_of(content, language)
    made = made.with_titles({known[one]: titles[one] for one in titles if one in known})
    return made.with_aliases(
        aliases={address: [name] for address, name in known.items() if address != name}
    )


def load(path: Path) -> Any:
    """Return the graph of a file."""
    with needed(path, "reading RDF", "rdflib", HierarchyError):
        import rdflib
    text = read_text(path)
    syntax = SYNTAX[plain_ending(path)]
    if syntax == "json-ld":
        refuse_addresses(parse_json(text, path, HierarchyError), path)
    elif syntax == "xml":
        if XML.match(text):
            refuse_entities(text, path)
        else:
            syntax = "turtle"  # what .owl holds otherwise
    graph = rdflib.Graph()
    log = logging.getLogger("rdflib")
    level = log.level
    log.setLevel(logging.CRITICAL)  # not of addresses with blanks, and of values of no type
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rdflib, about itself
            graph.parse(data=text, format=syntax, publicID=BASE)
    except Exception as error:  # of several parsers, which check little
        line = getattr(error, "lines", None)  # of Turtle, from 0
        number = getattr(error, "getLineNumber", lambda: None)()  # of XML
        if isinstance(line, int) or number is not None:
            at = place(path, line + 1 if isinstance(line, int) else number)
            why = getattr(error, "_why", None) or getattr(error, "_msg", f"not {syntax}")
            raise HierarchyError(f"{at}: {why}") from error
        reason = (str(error).splitlines() or [""])[0][:160] or type(error).__name__
        raise HierarchyError(f"{path} is not RDF that can be read ({reason})") from error
    finally:
        log.setLevel(level)
    return graph


def refuse_addresses(value: Any, path: Path) -> None:
    """Raise on a context of JSON-LD that would be fetched from elsewhere."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, dict):
            waiting.extend(one.values())
            context = one.get("@context", [])
            every = context if isinstance(context, list) else [context]
            fetched = [each for each in every if isinstance(each, str)]
            if isinstance(one.get("@import"), str):
                fetched.append(one["@import"])
            if fetched:
                raise HierarchyError(
                    f"{path}: the context {shown(fetched[0])} lies elsewhere, and nothing is "
                    f"fetched; write it into the file, or convert the file to Turtle"
                )


def refuse_entities(text: str, path: Path) -> None:
    """Raise on entities of XML that stand for other entities or files; others are short names."""

    def declared(name: str, _: bool, value: str | None, *__: Any) -> None:
        if value is None or "&" in value:
            raise HierarchyError(
                f"{path}: the entity {shown(name)} stands for other entities or files; write what "
                f"it stands for"
            )

    def begun(*_: Any) -> None:
        raise StopIteration  # declarations come before the first element

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = declared
    parser.StartElementHandler = begun
    with suppress(StopIteration, expat.ExpatError):  # what is no XML, rdflib says
        parser.Parse(text, True)


def content_of(path: Path, graph: Any) -> Content:
    """Return the classes of a graph: its SKOS concepts, or else the classes of a tree."""
    from rdflib import URIRef

    def pairs(predicate: str) -> Iterable[tuple[Any, Any]]:
        return graph.subject_objects(URIRef(predicate))  # type: ignore[no-any-return]

    def of_type(*kinds: str) -> set[Any]:
        return {one for kind in kinds for one in graph.subjects(URIRef(TYPE), URIRef(kind))}

    edges = [*pairs(f"{SKOS}broader"), *((b, a) for a, b in pairs(f"{SKOS}narrower"))]
    tops = {one for one, _ in pairs(f"{SKOS}topConceptOf")}
    tops |= {one for _, one in pairs(f"{SKOS}hasTopConcept")}
    described = of_type(f"{SKOS}Concept") | tops
    label, what = f"{SKOS}prefLabel", "concept"
    if not (described or edges):
        edges = [pair for pair in pairs(f"{RDFS}subClassOf") if is_named(*pair)]
        described = set(filter(is_named, of_type(f"{OWL}Class", f"{RDFS}Class")))
        label, what = f"{RDFS}label", "class"
        edges = [(below, above) for below, above in edges if str(above) not in ROOTS]
    gone = {one for one, value in pairs(f"{OWL}deprecated") if str(value).lower() in ("true", "1")}
    known = described | {one for edge in edges for one in edge}
    known = {one for one in known - gone if str(one) not in ROOTS}
    if not known:
        raise HierarchyError(f"{path} has neither concepts of SKOS nor classes of OWL or RDFS")
    for one in known:
        if not is_named(one):
            raise HierarchyError(f"{path}: a {what} without an address (a blank node); give it one")
    parents: dict[str, set[str]] = {str(one): set() for one in sorted(known)}
    for below, above in edges:
        if below in gone:
            continue
        if above in gone or (above, None, None) not in graph:
            raise HierarchyError(
                f"{path}: {what} {str(below)!r} has the unknown or deprecated parent "
                f"{str(above)!r}; add it, or remove the statement"
            )
        parents[str(below)].add(str(above))
    top_names = {str(one) for one in tops}
    lost = [one for one, above in parents.items() if not above and one not in top_names]
    if tops and lost:
        more = f", and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        raise HierarchyError(
            f"{path}: concept {lost[0]!r} has no broader concept and is no top concept{more}; add "
            f"skos:broader or skos:topConceptOf to it"
        )
    content = Content(parents, {}, {}, what)
    for found, predicate in ((content.labels, label), (content.notations, f"{SKOS}notation")):
        for one, value in pairs(predicate):
            if str(one) in parents:
                language = (getattr(value, "language", None) or "").lower()
                entry: Any = str(value).strip()
                entry = (language, entry) if predicate == label else entry
                found.setdefault(str(one), []).append(entry)
    return content


def is_named(*nodes: Any) -> bool:
    """Whether nodes of a graph have addresses."""
    from rdflib import URIRef

    return all(isinstance(one, URIRef) for one in nodes)


def names_of(content: Content) -> dict[str, str]:
    """Return the name of each class: its notation, or the last part of its address."""
    notations = content.notations
    by_notation = all(notations.get(one) for one in content.parents)
    names, owners = {}, dict[str, str]()
    for one in content.parents:
        last = one.rstrip("/#").replace("#", "/").rpartition("/")[2]
        name = min(notations[one]) if by_notation else last or one
        if owners.setdefault(name, one) != one:
            raise HierarchyError(
                f"two {content.what}{'es' if content.what == 'class' else 's'} have the name "
                f"{name!r}, {owners[name]!r} and {one!r}; give each skos:notation of its own"
            )
        names[one] = name
    return names


def titles_of(content: Content, language: str | None) -> Mapping[str, str]:
    """Return the title of each class that has one in a language.

    Args:
        content: of the file.
        language: such as "de", for "de-AT" too; None for English, else none, else the first.
    """
    spoken = sorted({spoken for labels in content.labels.values() for spoken, _ in labels})
    if language is not None and not any(is_spoken(one, language) for one in spoken):
        known = quoted([one or "none" for one in spoken], 20) if spoken else "no labels"
        raise HierarchyError(f"no label is in the language {language!r}; the file has {known}")

    def rank(entry: tuple[str, str]) -> tuple[bool, bool, str, str]:
        is_other = not is_spoken(entry[0], language or ENGLISH)
        return (is_other, entry[0] != "", *entry)

    titles = {}
    for one, labels in content.labels.items():
        best = min(labels, key=rank)
        if language is None or is_spoken(best[0], language):
            titles[one] = best[1]
    return titles


def is_spoken(tag: str, language: str) -> bool:
    """Whether the tag of a text is that of a language, or of a region of it."""
    return tag == language.lower() or tag.startswith(f"{language.lower()}-")
