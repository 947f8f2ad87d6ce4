"""Titles: what people call the classes, kept by whatever makes one hierarchy from another."""

import copy
import json
import pickle

import networkx as nx
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierlearn.errors import HierarchyError, LabelError
from hierlearn.hierarchy import Hierarchy, LabelSpace
from hierlearn.hierarchy.names import inherit_titles, shorten, with_title
from strategies import taxonomies

CODES = Hierarchy.from_paths(["1/A00-A09/A00", "1/A00-A09/A01", "2/C00"])
TITLES = {"1": "Infections", "1/A00-A09/A00": "Cholera", "2/C00": "Lip"}


@pytest.fixture
def codes():
    return CODES.with_titles(TITLES)


@st.composite
def titled(draw):
    """A random hierarchy, and the titles of some of its classes by name."""
    hierarchy, _ = draw(taxonomies()).build()
    words = st.text(min_size=1, max_size=8).map(lambda text: " ".join(text.split())).filter(bool)
    titles = draw(st.dictionaries(st.sampled_from(hierarchy.names), words))
    return hierarchy.with_titles(titles), titles


def by_name(hierarchy):
    """The titles of a hierarchy, one class at a time."""
    found = {name: hierarchy.title(name) for name in hierarchy.names}
    return {name: title for name, title in found.items() if title is not None}


# ---------------------------------------------------------------------- what they are


def test_titles_are_in_the_order_of_the_classes(codes):
    assert codes.names == ("1", "2", "1/A00-A09", "2/C00", "1/A00-A09/A00", "1/A00-A09/A01")
    assert codes.titles == ("Infections", None, None, "Lip", "Cholera", None)
    assert codes.title("A00") == codes.title(4) == "Cholera"
    assert codes.title("2") is None
    assert codes.has_titles
    assert CODES.titles == (None,) * 6
    assert not CODES.has_titles


def test_titles_are_no_part_of_equality(codes):
    assert codes == CODES
    assert hash(codes) == hash(CODES)
    assert codes.fingerprint == CODES.fingerprint
    assert LabelSpace(codes) == LabelSpace(CODES)


def test_new_titles_replace_old_ones_and_others_stay(codes):
    changed = codes.with_titles({"A00": "Cholera, all forms", "C00": None, 1: "Neoplasms"})
    assert by_name(changed) == {
        "1": "Infections",
        "2": "Neoplasms",
        "1/A00-A09/A00": "Cholera, all forms",
    }
    assert by_name(codes) == TITLES  # a hierarchy does not change


def test_a_title_is_one_line():
    assert CODES.with_titles({"A00": " Cholera\n\tof  all kinds "}).title("A00") == (
        "Cholera of all kinds"
    )
    assert CODES.with_titles({"A00": " \n"}).title("A00") is None


@pytest.mark.parametrize(
    ("titles", "error", "message"),
    [
        ({"C0O": "Lip"}, LabelError, "unknown label 'C0O'; did you mean"),
        ({9: "Cholera"}, LabelError, r"class number 9 is outside 0\.\.5"),
        ({"A00": 3}, HierarchyError, "the title of 'A00' is 3, which is not text"),
        (
            {"A00": "Cholera", "1/A00-A09/A00": "Colera"},
            HierarchyError,
            "class '1/A00-A09/A00' has two titles, 'Cholera' and 'Colera'; keep one",
        ),
    ],
)
def test_what_cannot_be_a_title_raises(titles, error, message):
    with pytest.raises(error, match=message):
        CODES.with_titles(titles)


def test_titles_cannot_be_set(codes):
    with pytest.raises(AttributeError, match="immutable"):
        codes.titles = ()


# ---------------------------------------------------------------------- what keeps them


@given(titled())
def test_every_exchange_keeps_titles(drawn):
    hierarchy, titles = drawn
    graph = hierarchy.to_networkx()
    made = [
        hierarchy,
        Hierarchy.from_json(hierarchy.to_json()),
        pickle.loads(pickle.dumps(hierarchy)),
        copy.deepcopy(hierarchy),
        Hierarchy.from_networkx(graph),
        pickle.loads(pickle.dumps(LabelSpace(hierarchy))).hierarchy,
    ]
    for one in made:
        assert one == hierarchy
        assert by_name(one) == titles
    assert nx.get_node_attributes(graph, "title") == titles


@given(titled(), st.data())
def test_a_part_keeps_the_titles_of_its_classes(drawn, data):
    hierarchy, titles = drawn
    classes = data.draw(st.lists(st.sampled_from(hierarchy.names), min_size=1))
    part = hierarchy.restrict(classes)
    assert by_name(part) == {name: titles[name] for name in part.names if name in titles}


@given(titled())
def test_stored_titles_follow_their_classes_into_another_order(drawn):
    hierarchy, titles = drawn
    form = json.loads(hierarchy.to_json())
    count = len(hierarchy)
    turned = {key: form[key][::-1] for key in ("names", "titles") if key in form}
    parents = [[count - 1 - one for one in above] for above in form["parents"][::-1]]
    again = Hierarchy.from_json(json.dumps({**form, **turned, "parents": parents}))
    assert again == hierarchy
    assert by_name(again) == titles


def test_a_file_without_titles_is_as_it_always_was(codes):
    plain = json.loads(CODES.to_json())
    assert set(plain) == {"format", "version", "named_by", "sep", "root", "names", "parents"}
    assert {**plain, "titles": list(codes.titles)} == json.loads(codes.to_json())


@pytest.mark.parametrize("titles", ["Cholera", ["Cholera"], [None] * 7])
def test_stored_titles_that_do_not_fit_raise(titles):
    form = {**json.loads(CODES.to_json()), "titles": titles}
    with pytest.raises(HierarchyError, match="damaged: names and titles do not fit"):
        Hierarchy.from_json(json.dumps(form))


def test_a_hierarchy_inherits_the_titles_that_it_lacks(codes):
    grown = Hierarchy.from_paths([*CODES.names, "2/C01"]).with_titles({"A00": "Other"})
    found = inherit_titles(grown, codes)
    assert found == grown
    assert by_name(found) == {**TITLES, "1/A00-A09/A00": "Other"}


# ---------------------------------------------------------------------- builders and files


def test_a_frame_may_have_a_column_of_titles():
    frame = pd.DataFrame(
        {"top": ["a", "a", "b"], "code": [None, "x", "y"], "what": ["A", "X", None]}
    )
    made = Hierarchy.from_frame(frame, title_column="what")
    assert made.names == ("a", "b", "a/x", "b/y")
    assert by_name(made) == {"a": "A", "a/x": "X"}
    same = Hierarchy.from_frame(frame, ["top", "code"], title_column="what")
    assert same.titles == made.titles
    with pytest.raises(HierarchyError, match="'what' is named as level and as titles"):
        Hierarchy.from_frame(frame, ["top", "what"], title_column="what")
    with pytest.raises(HierarchyError, match="no column 'nothing' in the frame"):
        Hierarchy.from_frame(frame, title_column="nothing")
    twice = pd.DataFrame({"top": ["a", "a"], "what": ["A", "B"]})
    with pytest.raises(HierarchyError, match="row 1: class 'a' has two titles, 'A' and 'B'"):
        Hierarchy.from_frame(twice, title_column="what")


WANTED = {"animal": "Animals", "animal/dog": "Dog, domestic"}


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("h.csv", 'parent,child,title\n,animal,Animals\nanimal,dog,"Dog, domestic"\n', {}),
        ("h.tsv", "Title\tparent\tchild\nDog, domestic\tanimal\tdog\nAnimals\t\tanimal\n", {}),
        ("h.csv", 'path,title\nanimal,Animals\nanimal/dog,"Dog, domestic"\n', {}),
        ("h.csv", 'kind,title,breed\nanimal,Animals,\nanimal,"Dog, domestic",dog\n', {}),
        (
            "h.csv",
            'kind,breed,what\nanimal,,Animals\nanimal,dog,"Dog, domestic"\nanimal,dog,\n',
            {"title_column": "what"},
        ),
        (
            "h.json",
            '{"name": "animal", "title": "Animals", "children": '
            '[{"name": "dog", "title": "Dog, domestic"}]}',
            {},
        ),
        (
            "h.json",
            '[{"parent": null, "child": "animal", "title": "Animals"}, '
            '{"parent": "animal", "child": "dog", "title": "Dog, domestic"}]',
            {},
        ),
        (
            "h.json",
            '[{"path": "animal", "title": "Animals"}, '
            '{"path": "animal/dog", "title": "Dog, domestic"}]',
            {},
        ),
    ],
)
def test_files_with_titles(tmp_path, name, text, options):
    (tmp_path / name).write_text(text)
    made = Hierarchy.read(tmp_path / name, **options)
    assert made.names == ("animal", "animal/dog")
    assert by_name(made) == WANTED


def test_a_lone_column_of_titles_is_a_level(tmp_path):
    (tmp_path / "h.csv").write_text("title\nengineer\n")
    assert Hierarchy.read(tmp_path / "h.csv").names == ("engineer",)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        (
            "h.csv",
            "parent,child,title\na,c,C\nb,c,D\n",
            {},
            "h.csv, line 3: class 'c' has two titles, 'C' and 'D'; keep one of them",
        ),
        ("h.csv", "top,title\na,A\n,B\n", {}, "h.csv, line 3: the title 'B' has no class"),
        ("h.csv", "top,what\na,A\n", {"title_column": "wat"}, "no column 'wat'; the columns are"),
        (
            "h.csv",
            "parent,child\na,b\n",
            {"title_column": "child"},
            "the column 'child' names classes and cannot hold their titles",
        ),
        ("h.json", '["a"]', {"title_column": "t"}, "a .json file has none"),
        ("h.json", '{"name": "a", "title": 5}', {}, "the title of 'a' is 5, which is not text"),
    ],
)
def test_files_whose_titles_are_refused(tmp_path, name, text, options, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(HierarchyError) as caught:
        Hierarchy.read(tmp_path / name, **options)
    assert message in str(caught.value)


def test_names_of_obo_terms_are_titles(tmp_path):
    (tmp_path / "h.obo").write_text(
        "[Term]\nid: T:1\nname: whole ! a comment\n\n"
        '[Term]\nid: T:2\nname: part \\(of it\\)\\: half {source="x"}\nis_a: T:1\n\n'
        "[Term]\nid: T:3\nis_a: T:1\n"
    )
    made = Hierarchy.read(tmp_path / "h.obo")
    assert by_name(made) == {"T:1": "whole", "T:2": "part (of it): half"}
    below = Hierarchy.read(tmp_path / "h.obo", root="T:1")
    assert by_name(below) == {"T:2": "part (of it): half"}


# ---------------------------------------------------------------------- how they are shown


def test_a_drawing_shows_titles(codes):
    assert codes.draw() == (
        "root  6 classes, 3 levels, tree\n"
        "├── 1  Infections  3\n"
        "│   └── A00-A09  2\n"
        "│       ├── A00  Cholera\n"
        "│       └── A01\n"
        "└── 2  1\n"
        "    └── C00  Lip"
    )


def test_long_titles_are_cut():
    made = CODES.with_titles({"A00": "x" * 100, "A01": "<b>&"})
    assert f"A00  {'x' * 59}…\n" in made.draw()
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
    assert with_title(made, "A01") == "A01 (<b>&)"
    assert with_title(made, "C00") == "C00"
