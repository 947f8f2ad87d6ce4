"""Thesauri in SKOS and class trees in OWL, beside a naive reading of the same triples."""

import gzip
import re
import socket
import time

import pytest

from hierlearn import Hierarchy
from hierlearn.errors import HierarchyError

PREFIXES = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix : <http://example.org/pets#> .
"""
SKOS = (
    PREFIXES
    + """
:scheme a skos:ConceptScheme ; skos:hasTopConcept :animal .
:animal a skos:Concept ; skos:prefLabel "animal"@en , "Tier"@de , "animal"@fr .
:plant a skos:Concept ; skos:topConceptOf :scheme ; skos:prefLabel "plant" .
:dog a skos:Concept ; skos:broader :animal ; skos:prefLabel "Hund"@de-AT , "dog"@en-GB .
:pug a skos:Concept ; skos:prefLabel "Mops"@de ; skos:altLabel "carlin"@en .
:cat skos:broader :animal , :pet ; a skos:Concept .
:pet a skos:Concept ; skos:topConceptOf :scheme .
:dog skos:narrower :pug ; skos:related :cat .
:pug skos:broader :dog .
:gone a skos:Concept ; owl:deprecated true ; skos:broader :animal .
"""
)
CLASSES = (
    PREFIXES
    + """
:Animal a owl:Class ; rdfs:label "animal"@en ; rdfs:subClassOf owl:Thing .
:Dog a owl:Class ; rdfs:subClassOf :Animal , [ a owl:Restriction ] ; rdfs:label "dog" .
:Cat rdfs:subClassOf :Animal . :Animal rdfs:subClassOf rdfs:Resource .
owl:Thing a owl:Class .
"""
)
XML = """<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [<!ENTITY skos "http://www.w3.org/2004/02/skos/core#">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="&skos;"
  xml:base="http://example.org/pets">
<skos:Concept rdf:about="#animal"><skos:prefLabel xml:lang="en">animal</skos:prefLabel>
  <skos:narrower><skos:Concept rdf:about="#dog"/></skos:narrower></skos:Concept>
</rdf:RDF>
"""
JSON = """{"@context": {"skos": "http://www.w3.org/2004/02/skos/core#",
  "broader": {"@id": "skos:broader", "@type": "@id"}, "label": "skos:prefLabel"},
 "@graph": [{"@id": "http://example.org/pets#animal", "@type": "skos:Concept", "label": "animal"},
  {"@id": "http://example.org/pets#dog", "@type": "skos:Concept",
   "broader": "http://example.org/pets#animal"}]}
"""


def naive_edges(text):
    """Child and parent of every broader and narrower of Turtle that is written as above."""
    edges = set()
    for statement in re.split(r" \.\s", re.sub(r'"[^"]*"(@[\w-]+)?', '""', text)):
        if statement.strip().startswith("@") or not statement.strip():
            continue
        subject, *rest = statement.split(None, 1)
        for part in rest[0].split(";"):
            predicate, objects = part.split(None, 1)
            for one in objects.replace(" ", "").strip().split(","):
                if predicate == "skos:broader":
                    edges.add((subject.strip(), one.strip()))
                elif predicate == "skos:narrower":
                    edges.add((one.strip(), subject.strip()))
    return edges


def write(tmp_path, text, name="pets.ttl"):
    path = tmp_path / name
    path.write_text(text)
    return path


def edges_of(h):
    return {(h.names[c], h.names[p]) for c in range(len(h)) for p in h.parents(c)}


def test_a_thesaurus_has_the_edges_of_a_naive_reading(tmp_path):
    h = Hierarchy.read(write(tmp_path, SKOS))
    kept = {(child[1:], parent[1:]) for child, parent in naive_edges(SKOS) if child != ":gone"}
    assert (
        edges_of(h)
        == kept
        == {("dog", "animal"), ("pug", "dog"), ("cat", "animal"), ("cat", "pet")}
    )
    assert set(h.names) == {"animal", "plant", "pet", "dog", "pug", "cat"}
    assert not h.is_tree
    assert h.index("http://example.org/pets#pug") == h.index("pug")
    assert Hierarchy.from_json(h.to_json()) == h


@pytest.mark.parametrize(
    ("language", "titles"),
    [
        (None, {"animal": "animal", "plant": "plant", "dog": "dog", "pug": "Mops", "cat": None}),
        ("de", {"animal": "Tier", "plant": None, "dog": "Hund", "pug": "Mops", "cat": None}),
        ("EN", {"animal": "animal", "plant": None, "dog": "dog", "pug": None, "cat": None}),
    ],
)
def test_titles_in_a_language(tmp_path, language, titles):
    h = Hierarchy.read(write(tmp_path, SKOS), language=language)
    assert {name: h.title(name) for name in titles} == titles


def test_notations_are_names_where_every_concept_has_one(tmp_path):
    text = SKOS
    for code, name in enumerate(("animal", "plant", "dog", "pug", "cat", "pet")):
        text += f':{name} skos:notation "{code}.1" .\n'
    h = Hierarchy.read(write(tmp_path, text))
    assert ("2.1", "0.1") in edges_of(h)
    assert h.title("0.1") == "animal"
    assert h.index("http://example.org/pets#dog") == h.index("2.1")
    some = Hierarchy.read(write(tmp_path, SKOS + ':dog skos:notation "2" .\n'))
    assert "dog" in some.names


@pytest.mark.parametrize("address", ["urn:" + "a" * 50_000 + "/x", "http://x/" + "/#" * 25_000])
def test_an_address_of_any_length_takes_no_time(tmp_path, address):
    begin = time.process_time()
    h = Hierarchy.read(write(tmp_path, f"{PREFIXES}<{address}> a skos:Concept ."), sep=" > ")
    assert len(h) == 1
    assert time.process_time() - begin < 5


def test_a_tree_of_classes(tmp_path):
    for name in ("pets.ttl", "pets.owl"):
        h = Hierarchy.read(write(tmp_path, CLASSES, name))
        assert edges_of(h) == {("Dog", "Animal"), ("Cat", "Animal")}
        assert set(h.names) == {"Animal", "Dog", "Cat"}
        assert h.title("Dog") == "dog"


@pytest.mark.parametrize(("name", "text"), [("p.rdf", XML), ("p.owl", XML), ("p.jsonld", JSON)])
def test_other_syntaxes(tmp_path, name, text):
    h = Hierarchy.read(write(tmp_path, text, name))
    assert edges_of(h) == {("dog", "animal")}
    assert h.title("animal") == "animal"


def test_a_compressed_file_and_a_root(tmp_path):
    (tmp_path / "pets.ttl.gz").write_bytes(gzip.compress(SKOS.encode()))
    h = Hierarchy.read(tmp_path / "pets.ttl.gz", root="animal")
    assert edges_of(h) == {("pug", "dog"), ("cat", "pet")}
    assert h.root == "animal"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            ":a skos:broader :b . :b skos:broader :c . :c skos:broader :a .",
            "cycle: 'a' -> 'c' -> 'b' -> 'a'; remove one of these edges",
        ),
        (":a skos:broader :a .", "'a'"),
        (
            ":a skos:broader :b .",
            "'http://example.org/pets#a' has the unknown or deprecated parent",
        ),
        (
            ":s skos:hasTopConcept :a . :a a skos:Concept . :b a skos:Concept .",
            "concept 'http://example.org/pets#b' has no broader concept and is no top concept; add",
        ),
        (":a a skos:Concept . <http://x.org/a> a skos:Concept .", "two concepts have the name 'a'"),
        ("[] a skos:Concept .", "a concept without an address (a blank node); give it one"),
        (":a rdfs:label 'b' .", "has neither concepts of SKOS nor classes of OWL or RDFS"),
        (":a a skos:Concept\n:b", "pets.ttl, line 6: expected '.' or '}' or ']'"),
        (":a a skos:Concept ; skos:notation 'x/y' .", "'x/y' holds the separator '/'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, wrong):
    with pytest.raises(HierarchyError) as caught:
        Hierarchy.read(write(tmp_path, PREFIXES + text))
    assert wrong in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "pets.ttl"))


def test_a_language_that_nothing_is_written_in(tmp_path):
    wrong = (
        "no label is in the language 'it'; the file has 'none', 'de', 'de-at', 'en', 'en-gb', 'fr'"
    )
    with pytest.raises(HierarchyError, match=wrong):
        Hierarchy.read(write(tmp_path, SKOS), language="it")
    with pytest.raises(HierarchyError, match="language is that of the titles in an RDF file"):
        Hierarchy.read(write(tmp_path, "a/b\n", "h.txt"), language="it")


CONTEXTS = [
    '"http://example.org/context.jsonld"',
    '["http://example.org/context.jsonld", {}]',
    '{"a": {"@id": "http://x", "@context": "http://example.org/context.jsonld"}}',
    '{"@import": "http://example.org/context.jsonld"}',
]


@pytest.mark.parametrize("context", CONTEXTS)
def test_nothing_is_fetched(tmp_path, monkeypatch, context):
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it was fetched"))
    text = f'{{"@context": {context}, "@id": "http://x/y"}}'
    with pytest.raises(HierarchyError, match=r"'http://example\.org/context\.jsonld' lies"):
        Hierarchy.read(write(tmp_path, text, "p.jsonld"))


def test_entities_are_neither_opened_nor_multiplied(tmp_path):
    (tmp_path / "secret").write_text("secret words")
    for other in (f'SYSTEM "file://{tmp_path}/secret"', '"&skos;&skos;"'):
        text = XML.replace("<!ENTITY", f"<!ENTITY s {other}><!ENTITY", 1)
        text = text.replace(">animal<", ">&s;<")
        wrong = "p.rdf: the entity 's' stands for other entities or files; write what it stands for"
        with pytest.raises(HierarchyError, match=wrong):
            Hierarchy.read(write(tmp_path, text, "p.rdf"))
