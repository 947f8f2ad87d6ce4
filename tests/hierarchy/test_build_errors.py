"""What no builder accepts, and the sentence that says so."""

import json
import re
from itertools import pairwise

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given

from hierlearn.errors import HierarchyError
from hierlearn.hierarchy import Hierarchy
from strategies import taxonomies

FORM = {
    "format": "hierlearn.hierarchy",
    "version": 1,
    "named_by": "path",
    "sep": "/",
    "root": "root",
    "names": ["a", "b"],
    "parents": [[], [0]],
}


def refused(message, build, *args, **kwargs):
    with pytest.raises(HierarchyError, match=re.escape(message)):
        build(*args, **kwargs)


CYCLE = [("x", "c"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Hierarchy.from_edges(CYCLE),
        lambda: Hierarchy.from_networkx(nx.DiGraph(CYCLE)),
        lambda: Hierarchy.from_parents(
            {"x": None, "a": "c", "b": ["a"], "c": ["x", "b"], "d": "c"}
        ),
        lambda: Hierarchy.from_parents([2, 0, 1, -1, 2], ["a", "b", "c", "x", "d"]),
        lambda: Hierarchy.from_json(
            json.dumps(FORM | {"names": list("abcxd"), "parents": [[2], [0], [1, 3], [], [2]]})
        ),
    ],
)
def test_a_cycle_is_named_from_parent_to_child(build):
    with pytest.raises(HierarchyError) as error:
        build()
    found = re.fullmatch(r"cycle: (.*); remove one of these edges", str(error.value))
    walk = found[1].split(" -> ")
    assert walk[0] == walk[-1]
    assert set(pairwise(walk)) == {
        ("'a'", "'b'"),
        ("'b'", "'c'"),
        ("'c'", "'a'"),
    }


@pytest.mark.parametrize(
    "build",
    [
        lambda: Hierarchy.from_edges([("b", "a"), ("a", "a")]),
        lambda: Hierarchy.from_parents({"a": ["a", "b"], "b": None}),
        lambda: Hierarchy.from_parents([0, -1], ["a", "b"]),
        lambda: Hierarchy.from_networkx(nx.DiGraph([("a", "a")])),
        lambda: Hierarchy.from_json(json.dumps(FORM | {"parents": [[0], []]})),
    ],
)
def test_a_class_above_itself(build):
    refused("class is its own parent: 'a' -> 'a'; remove one of these edges", build)


@given(taxonomies())
def test_closing_any_path_makes_a_cycle(taxonomy):
    graph = taxonomy.graph
    path = nx.dag_longest_path(graph)
    graph.add_edge(path[-1], path[0])
    assert not nx.is_directed_acyclic_graph(graph)
    with pytest.raises(HierarchyError, match=r"^(cycle|class is its own parent): "):
        Hierarchy.from_networkx(graph, direction="parent-to-child")


@pytest.mark.parametrize(
    "build",
    [
        lambda: Hierarchy.from_paths([]),
        lambda: Hierarchy.from_edges([]),
        lambda: Hierarchy.from_parents({}),
        lambda: Hierarchy.from_parents([]),
        lambda: Hierarchy.from_parents(np.zeros(0, dtype=int), []),
        lambda: Hierarchy.from_parents({"top": None}, root="top"),
        lambda: Hierarchy.from_nested({}),
        lambda: Hierarchy.from_nested([]),
        lambda: Hierarchy.from_nested(None),
        lambda: Hierarchy.from_networkx(nx.DiGraph()),
        lambda: Hierarchy.from_frame(pd.DataFrame()),
        lambda: Hierarchy.from_frame(pd.DataFrame({"a": [None, None]})),
        lambda: Hierarchy.from_frame(pl.DataFrame({"a": []})),
        lambda: Hierarchy.from_frame(pd.DataFrame({"a": ["x"]}), []),
        lambda: Hierarchy.from_json(json.dumps(FORM | {"names": [], "parents": []})),
    ],
)
def test_no_classes(build):
    refused("a hierarchy needs at least one class; this one has none", build)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a/b", "c", "a/b"], "duplicate path 'a/b': entries 0 and 2; list it once"),
        (["a", "a//b"], "path 'a//b' has an empty part; write a/b/c"),
        (["/a"], "path '/a' has an empty part"),
        (["a/"], "path 'a/' has an empty part"),
        ([""], "path '' has an empty part"),
        (["a/ /b"], "path 'a/ /b' has an empty part"),
        (["a", 5], "path 1 is 5, which is not text"),
        (["a", None], "path 1 is None, which is not text"),
        ([b"a"], "path 0 is b'a', which is not text"),
        ([["a", "b"]], "path 0 is ['a', 'b'], which is not text"),
        ("a/b", "paths must be a list of paths, not the string 'a/b'"),
    ],
)
def test_paths(paths, message):
    refused(message, Hierarchy.from_paths, paths)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([("a", "b"), ("a", "c"), ("a", "b")], "duplicate edge 'a' -> 'b': entries 0 and 2"),
        ([(None, "a"), ("", "a")], "duplicate edge None -> 'a': entries 0 and 1"),
        ([("b", "a"), (None, "a")], "class 'a' stands at the top and below 'b'"),
        ([("", "a"), ("b", "a")], "class 'a' stands at the top and below 'b'"),
        ([("1", "2"), (1, 2)], "duplicate edge '1' -> '2': entries 0 and 1"),
        ([("a", "b"), ("a", None)], "edge 1 is ('a', None); its child is empty"),
        ([("a", "")], "edge 0 is ('a', ''); its child is empty"),
        ([("a", " ")], "a class name must not be empty, but one is ' '"),
        ([("a", "b\0")], r"class name 'b\x00' holds a NUL character; no text file may"),
        ([("a", "b", "c")], "edge 0 is ('a', 'b', 'c'); an edge is (parent, child)"),
        (["ab"], "edge 0 is 'ab'; an edge is (parent, child)"),
        ([5], "edge 0 is 5; an edge is (parent, child)"),
        ([("a", 1.5)], "a class name is text, not 1.5 (float)"),
        ([("a", True)], "a class name is text, not True (bool)"),
        ([("a", "x/b")], "class name 'x/b' holds the separator '/'; choose another with sep="),
        ([("a", "a/b/c")], "class name 'b/c' holds the separator '/'"),
        ([("a", "a/")], "a class name must not be empty, but one is ''"),
        ([("a", "c"), ("b", "c"), ("a", "a/d")], "class name 'a/d' holds the separator '/'"),
        ([("a", "b"), ("a", "a/b")], "duplicate path 'a/b': name each class once"),
    ],
)
def test_edges(edges, message):
    refused(message, Hierarchy.from_edges, edges)


def test_ids_are_never_taken_apart():
    message = "class name 'a/b' holds the separator '/'; choose another with sep="
    refused(message, Hierarchy.from_edges, [("a", "a/b")], named_by="id")
    refused(message, Hierarchy.from_parents, {"a": None, "a/b": "a"}, named_by="id")


def test_the_root_is_no_child():
    message = "edge 1 makes the root 'top' a child of 'a'"
    refused(message, Hierarchy.from_edges, [("top", "a"), ("a", "top")], root="top")
    refused("'top'", Hierarchy.from_parents, {"top": "a", "a": None}, root="top")
    graph = nx.DiGraph([("a", "top"), ("top", "b")])
    refused("'top'", Hierarchy.from_networkx, graph, root="top")


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ({"a": "b"}, "class 'a' has the unknown parent 'b'; list it too, with parent None"),
        (
            {"dog": None, "pug": "dgo"},
            "class 'pug' has the unknown parent 'dgo'; did you mean 'dog'",
        ),
        ({"a": None, "b": ["a", "z"]}, "class 'b' has the unknown parent 'z'"),
        ({"a": None, "b": ["a", "a"]}, "duplicate edge 'a' -> 'b'"),
        ({"a": None, "b": 1.5}, "a class name is text, not 1.5 (float)"),
        ({"": None}, "a class name must not be empty, but one is ''"),
        ({None: None}, "a class name is text, not None (NoneType)"),
        ({"a/b": None}, "class name 'a/b' holds the separator '/'; choose another with sep="),
        ({1: None, "1": None}, "duplicate"),
    ],
)
def test_parent_maps(parents, message):
    refused(message, Hierarchy.from_parents, parents)


def test_a_map_takes_no_names():
    message = "names go with a parent array; a mapping names its classes itself"
    refused(message, Hierarchy.from_parents, {"a": None}, ["a"])


@pytest.mark.parametrize(
    ("parents", "names", "message"),
    [
        ([-1, 5], None, "node 1 has the unknown parent 5; parents are 0..1, or -1 at the top"),
        ([-1, 2], None, "node 1 has the unknown parent 2; parents are 0..1, or -1 at the top"),
        ([-1, 0, -2], None, "node 2 has the unknown parent -2"),
        ([-1, 0], ["a"], "1 names do not fit 2 parents"),
        ([-1], ["a", "b"], "2 names do not fit 1 parents"),
        ([-1.0, 0.0], None, "parents must be one row of integers, not float64 (2,)"),
        ([True, False], None, "parents must be one row of integers, not bool (2,)"),
        ([None, 0], None, "parents must be one row of integers, not object (2,)"),
        ([[-1, 0]], None, "parents must be one row of integers, not int64 (1, 2)"),
        (-1, None, "parents must be one row of integers, not int64 ()"),
        ([-1, 0, 0], ["a", "b", "b"], "duplicate path 'a/b': name each class once"),
        ([-1, -1], ["a", "a"], "duplicate path 'a': name each class once"),
        ([-1], [" "], "a class name must not be empty, but one is ' '"),
        ([-1, 0], ["a", "a/b"], "class name 'a/b' holds the separator '/'"),
    ],
)
def test_parent_arrays(parents, names, message):
    refused(message, Hierarchy.from_parents, parents, names)


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        ({"a": {"b": 5}}, "under 'a/b': 5 (int) is neither a name nor a dict or list"),
        (5, "at the top: 5 (int) is neither a name nor a dict or list"),
        ({"a": True}, "under 'a': True (bool) is neither a name nor a dict or list"),
        ({"a": ["b", "b"]}, "duplicate path 'a/b': name each class once"),
        (["a", {"a": ["b"]}], "duplicate path 'a': name each class once"),
        ({"a": {"": {}}}, "a class name must not be empty, but one is ''"),
        ({"a": ["x/y"]}, "class name 'x/y' holds the separator '/'; choose another with sep="),
        ({None: {}}, "a class name is text, not None (NoneType)"),
    ],
)
def test_nested(nested, message):
    refused(message, Hierarchy.from_nested, nested)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames(kind):
    gap = kind({"a": ["x", "x"], "b": ["y", None], "c": ["z", "w"]})
    message = "no column 'd' in the frame; it has 'a', 'b', 'c'"
    refused(message, Hierarchy.from_frame, gap, ["a", "d"])
    refused("row 1: class name 'x/y' holds", Hierarchy.from_frame, kind({"a": ["x", "x/y"]}))
    refused("row 0: a class name is text, not 1.5", Hierarchy.from_frame, kind({"a": [1.5]}))
    refused("row 0: a class name must not be empty", Hierarchy.from_frame, kind({"a": [" "]}))


def test_a_frame_with_two_columns_of_one_name():
    frame = pd.DataFrame([["a", "b"]], columns=["x", "x"])
    refused("'x'", Hierarchy.from_frame, frame)


def test_undirected_graphs():
    message = "the graph is undirected; edges must run from parent to child"
    refused(message, Hierarchy.from_networkx, nx.Graph([("a", "b")]))


@pytest.mark.parametrize("sep", ["", None, 5])
def test_separators(sep):
    message = f"sep must be a non-empty text, not {sep!r}"
    refused(message, Hierarchy.from_paths, ["a"], sep=sep)
    refused(message, Hierarchy.from_edges, [("a", "b")], sep=sep)
    refused(message, Hierarchy.from_parents, {"a": None}, sep=sep)
    refused(message, Hierarchy.from_parents, [-1], sep=sep)
    refused(message, Hierarchy.from_nested, {"a": None}, sep=sep)
    refused(message, Hierarchy.from_frame, pd.DataFrame({"a": ["x"]}), sep=sep)
    refused(message, Hierarchy.from_json, json.dumps(FORM | {"sep": sep}))


def test_unknown_values_of_named_by():
    for build, content in (
        (Hierarchy.from_edges, [("a", "b")]),
        (Hierarchy.from_parents, {"a": None}),
        (Hierarchy.from_parents, [-1]),
        (Hierarchy.from_networkx, nx.DiGraph([("a", "b")])),
    ):
        refused("name", build, content, named_by="names")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: "),
        ('{"format": "hierlearn.hier', "not JSON: "),
        ("[]", "not a hierarchy: the JSON has no 'format': 'hierlearn.hierarchy'"),
        ('{"a": ["b"]}', "not a hierarchy: the JSON has no 'format'"),
        (json.dumps(FORM | {"format": "other"}), "not a hierarchy: the JSON has no 'format'"),
        (json.dumps(FORM | {"version": 2}), "hierarchy version 2 is not 1; it was written by"),
        (json.dumps({k: v for k, v in FORM.items() if k != "version"}), "hierarchy version None"),
    ],
)
def test_foreign_json(text, message):
    refused(message, Hierarchy.from_json, text)


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a"]},
        {"names": ["a", "b", "c"]},
        {"names": None},
        {"names": "ab"},
        {"parents": [[], [2]]},
        {"parents": [[], [-1]]},
        {"parents": [[], 0]},
        {"parents": [[], None]},
        {"parents": [[], ["a"]]},
        {"parents": [[], ["0"]]},
        {"parents": [[], [0.7]]},
        {"parents": [[], [False]]},
        {"parents": [[], [[0]]]},
        {"parents": [[], [0, 0]]},
        {"parents": [[], [10**30]]},
        {"parents": None},
        {"named_by": "other"},
        {"named_by": None},
    ],
    ids=str,
)
def test_damaged_json(change):
    refused("the JSON of a hierarchy is damaged: ", Hierarchy.from_json, json.dumps(FORM | change))


@pytest.mark.parametrize("key", ["named_by", "sep", "names", "parents"])
def test_json_without_a_part(key):
    text = json.dumps({k: v for k, v in FORM.items() if k != key})
    refused(f"the JSON of a hierarchy is damaged: '{key}'", Hierarchy.from_json, text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a", ""]}, "a class name must not be empty"),
        ({"names": ["a", "b/c"]}, "class name 'b/c' holds the separator '/'"),
        ({"parents": [[], []], "names": ["a", "a"]}, "duplicate path 'a': name each class once"),
        ({"named_by": "id", "names": ["a", "a"]}, "duplicate path 'a': name each class once"),
    ],
)
def test_bad_names_in_json(change, message):
    refused(message, Hierarchy.from_json, json.dumps(FORM | change))
