"""Aliases, pruned classes, obsolete terms and namespaces: of OBO files, and after restrict."""

import gzip
import re

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from hierlearn.errors import DataError, HierarchyError, LabelError
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels

ONTOLOGY = """format-version: 1.2
default-namespace: process

[Term]
id: GO:1
name: process
alt_id: GO:10
alt_id: GO:11

[Term]
id: GO:2
name: growth \\(of cells\\) ! a comment
is_a: GO:1

[Term]
id: GO:3
name: function
namespace: function

[Term]
id: GO:4
is_a: GO:3
namespace: function
relationship: part_of GO:2
relationship: regulates GO:1

[Term]
id: GO:20
is_obsolete: true
replaced_by: GO:2

[Term]
id: GO:21
is_obsolete: true
replaced_by: GO:20
alt_id: GO:22

[Term]
id: GO:23
is_obsolete: true
consider: GO:4
consider: GO:10

[Term]
id: GO:24
is_obsolete: true

[Term]
id: GO:25
is_obsolete: true
replaced_by: GO:26

[Term]
id: GO:26
is_obsolete: true
replaced_by: GO:25

[Term]
id: GO:27
is_obsolete: true
replaced_by: GO:2
replaced_by: GO:4
"""


@pytest.fixture
def ontology(tmp_path):
    path = tmp_path / "go.obo"
    path.write_text(ONTOLOGY)
    return Hierarchy.read(path)


def test_other_ids_stand_for_the_terms_of_today(ontology):
    assert ontology.aliases == {
        "GO:10": ("GO:1",),
        "GO:11": ("GO:1",),
        "GO:20": ("GO:2",),
        "GO:21": ("GO:2",),
        "GO:22": ("GO:2",),
        "GO:27": ("GO:2", "GO:4"),
    }
    assert ontology.index("GO:21") == ontology.index("GO:2")
    assert [ontology.names[n] for n in ontology.resolve("GO:27")] == ["GO:2", "GO:4"]
    assert "GO:21" not in ontology  # it is no class
    labels = Labels([["GO:10"], ["GO:27"]], ontology)
    assert labels.targets().equal(ontology.encode([["GO:1"], ["GO:2", "GO:4"]]))
    assert ontology.obsolete == {
        "GO:23": ("GO:4", "GO:1"),
        "GO:24": (),
        "GO:25": (),
        "GO:26": (),
    }


def test_titles_and_namespaces(ontology):
    assert ontology.title("GO:2") == "growth (of cells)"
    assert dict(zip(ontology.names, ontology.namespaces, strict=True)) == {
        "GO:1": "process",
        "GO:2": "process",
        "GO:3": "function",
        "GO:4": "function",
    }
    assert [ontology.names[n] for n in ontology.in_namespace("function")] == ["GO:3", "GO:4"]
    with pytest.raises(HierarchyError, match="unknown namespace 'functoin'; did you mean"):
        ontology.in_namespace("functoin")
    with pytest.raises(HierarchyError, match="has no namespaces"):
        Hierarchy.from_paths(["a"]).in_namespace("a")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("GO:23", "label 'GO:23' is an obsolete term; consider 'GO:4', 'GO:1'"),
        ("GO:24", "label 'GO:24' is an obsolete term; nothing replaces it"),
        ("GO:27", "label 'GO:27' was replaced by 'GO:2', 'GO:4'; name one of them"),
        ("GO:9", "unknown label 'GO:9'"),
    ],
)
def test_why_a_label_is_no_class(ontology, label, message):
    with pytest.raises(LabelError, match=re.escape(message)):
        ontology.index(label)
    with pytest.raises(LabelError, match="unknown label"):
        ontology.index(label, exact=True)


def test_relationships_are_a_choice(tmp_path, ontology):
    path = tmp_path / "go.obo"
    assert ontology.parents("GO:4") == ("GO:3", "GO:2")
    assert Hierarchy.read(path, relationships=["is_a"]).parents("GO:4") == ("GO:3",)
    every = Hierarchy.read(path, relationships=["is_a", "part_of", "regulates"])
    assert set(every.parents("GO:4")) == {"GO:1", "GO:2", "GO:3"}
    with pytest.raises(HierarchyError, match=r"no term has the relationship 'part-of'; the file"):
        Hierarchy.read(path, relationships=["part-of"])
    with pytest.raises(HierarchyError, match="relationships is a list such as"):
        Hierarchy.read(path, relationships="is_a")
    (tmp_path / "tree.txt").write_text("a/b")
    with pytest.raises(HierarchyError, match=r"relationships names lines of an OBO file; a .txt"):
        Hierarchy.read(tmp_path / "tree.txt", relationships=["is_a"])


def test_a_compressed_file(tmp_path, ontology):
    path = tmp_path / "go.obo.gz"
    path.write_bytes(gzip.compress(ONTOLOGY.encode()))
    assert Hierarchy.read(path) == ontology
    assert Hierarchy.read(path).aliases == ontology.aliases
    path.write_bytes(gzip.compress(ONTOLOGY.encode())[:-20])
    with pytest.raises(DataError, match="is not a whole gzip file"):
        Hierarchy.read(path)
    path.write_text(ONTOLOGY)
    with pytest.raises(DataError, match="is not a whole gzip file: Not a gzipped file"):
        Hierarchy.read(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("id: A\nis_a:", "line 3: 'is_a:' names no term; write its id"),
        ("id: A\nis_a: ! whole", "line 3: 'is_a: ! whole' names no term; write its id"),
        ("id: A\nrelationship: part_of", "line 3: 'relationship: part_of' names no term"),
        ("id: A\nalt_id:", "line 3: 'alt_id:' names no term"),
        ("id: A\nid: B", "line 3: term 'A' has a second id"),
        ("id: A\n<html>nothing here</html>", "line 3: '<html>nothing here</html>' is no line"),
    ],
)
def test_hostile_lines_are_one_sentence(tmp_path, lines, message):
    path = tmp_path / "h.obo"
    path.write_text(f"[Term]\n{lines}\n")
    with pytest.raises(HierarchyError, match=re.escape(f"h.obo, {message}")) as caught:
        Hierarchy.read(path)
    assert "\n" not in str(caught.value)


def test_json_keeps_all_of_it(ontology):
    small = ontology.restrict(["GO:2"])
    for one in (ontology, small):
        back = Hierarchy.from_json(one.to_json())
        assert back == one
        for name in ("aliases", "pruned", "obsolete", "namespaces"):
            assert getattr(back, name) == getattr(one, name)
    plain = Hierarchy.from_paths(["a/b"]).to_json()
    assert not any(word in plain for word in ("aliases", "pruned", "obsolete", "namespaces"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"GO:10": ["GO:1"]', '"GO:10": ["GO:99"]'),
        ('"GO:10": ["GO:1"]', '"GO:10": "GO:1"'),
        ('"GO:10": ["GO:1"]', '"GO:2": ["GO:1"]'),
        ('"namespaces": ["process"', '"namespaces": [1'),
        ('"namespaces": [', '"namespaces": ["more", '),
    ],
)
def test_damaged_json_is_refused(ontology, before, after):
    text = ontology.to_json()
    changed = text.replace(before, after)
    assert changed != text
    with pytest.raises(HierarchyError, match="the JSON of a hierarchy is damaged"):
        Hierarchy.from_json(changed)


def test_restrict_maps_aliases_and_labels_up(ontology):
    small = ontology.restrict(["GO:2", "GO:3"])
    assert small.names == ("GO:1", "GO:3", "GO:2")
    assert small.pruned == {"GO:4": ("GO:3", "GO:2"), "GO:27": ("GO:2", "GO:3")}
    assert small.aliases == {k: v for k, v in ontology.aliases.items() if k != "GO:27"}
    assert small.namespaces == ("process", "function", "process")
    assert small.encode([["GO:4"], ["GO:10"]]).equal(small.encode([["GO:2", "GO:3"], ["GO:1"]]))
    with pytest.raises(LabelError, match="'GO:4' was pruned from this hierarchy; its rows count"):
        small.index("GO:4")
    only = small.restrict(["GO:3"])
    assert only.resolve("GO:4") == (0,)
    assert only.resolve("GO:2") == ()
    assert only.encode([["GO:2"]]).sum() == 0
    with pytest.raises(LabelError, match="no ancestor of it was kept"):
        only.index("GO:2")


def test_bare_names_of_pruned_classes():
    h = Hierarchy.from_paths(["animal/dog/pug", "animal/cat", "plant/rose", "plant/pug"])
    small = h.restrict(["animal/dog", "plant"])
    assert small.resolve("animal/dog/pug") == (small.index("dog"),)
    assert small.resolve("cat") == (small.index("animal"),)
    with pytest.raises(LabelError, match="unknown label 'pug'"):
        small.resolve("pug")  # it could be either


@given(taxonomy=strategies.taxonomies(9), data=st.data())
@settings(max_examples=60)
def test_pruned_labels_stand_for_the_nearest_kept_ancestors(taxonomy, data):
    h, _ = taxonomy.build()
    kept = data.draw(st.lists(st.sampled_from(h.names), min_size=1, unique=True))
    small = h.restrict(kept)
    graph = h.to_networkx()
    inside = set(kept).union(*(nx.ancestors(graph, one) for one in kept))
    assert set(small.names) == inside
    assert set(small.pruned) == set(h.names) - inside
    for name, found in small.pruned.items():
        above = nx.ancestors(graph, name) & inside
        nearest = {one for one in above if not nx.descendants(graph, one) & above}
        assert set(found) == nearest
        assert len(found) == len(nearest)
    # The targets of mapped labels are the columns of the kept classes.
    rows = [[name] for name in h.names]
    columns = [h.index(name) for name in small.names]
    assert small.encode(rows).equal(h.encode(rows)[:, columns])
