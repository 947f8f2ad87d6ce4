"""Every builder gives the same hierarchy, whatever the order of its input."""

import random

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierlearn.hierarchy import Hierarchy
from strategies import Taxonomy, dags, taxonomies, trees

EXPECTED = (
    "animal",
    "plant",
    "animal/cat",
    "animal/dog",
    "plant/oak",
    "animal/dog/bulldog",
    "animal/dog/pug",
)


def nested(taxonomy, above=()):
    """Return the tree below a node as nested dictionaries."""
    below = [node for node, parents in enumerate(taxonomy.parents) if parents == above]
    return {taxonomy.names[node]: nested(taxonomy, (node,)) for node in below}


def level_rows(taxonomy):
    """Return the path of every node as a row of equal width, empty at the end."""
    paths = [name.split("/") for name in taxonomy.ids]
    width = max(map(len, paths))
    return [path + [None] * (width - len(path)) for path in paths]


def all_ways(taxonomy):
    """Return the hierarchy by every builder that can express the taxonomy."""
    ids, parents = taxonomy.ids, taxonomy.parents
    graph = nx.relabel_nodes(taxonomy.graph, dict(enumerate(ids)))
    built = {
        "edges": Hierarchy.from_edges(taxonomy.edges),
        "parents": Hierarchy.from_parents(
            {ids[node]: [ids[p] for p in above] for node, above in enumerate(parents)}
        ),
        "networkx": Hierarchy.from_networkx(graph, direction="parent-to-child"),
    }
    if not taxonomy.is_tree:
        return built
    single = [above[0] if above else -1 for above in parents]
    rows = level_rows(taxonomy)
    columns = [f"level{place}" for place in range(len(rows[0]))]
    return built | {
        "paths": Hierarchy.from_paths(ids),
        "leaf paths": Hierarchy.from_paths(
            [ids[node] for node in range(len(ids)) if node not in single]
        ),
        "one parent": Hierarchy.from_parents(
            {ids[node]: None if p < 0 else ids[p] for node, p in enumerate(single)}
        ),
        "array": Hierarchy.from_parents(single, taxonomy.names),
        "nested": Hierarchy.from_nested(nested(taxonomy)),
        "pandas": Hierarchy.from_frame(pd.DataFrame(rows, columns=columns)),
        "pandas NA": Hierarchy.from_frame(pd.DataFrame(rows, columns=columns, dtype="string")),
        "polars": Hierarchy.from_frame(
            pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")
        ),
    }


@given(taxonomies())
def test_all_builders_agree(taxonomy):
    first, *others = all_ways(taxonomy).items()
    for name, other in others:
        assert other == first[1], name
        assert other.fingerprint == first[1].fingerprint
        assert other.names == first[1].names
        assert other.named_by == first[1].named_by


@given(trees(), st.randoms(use_true_random=False))
def test_the_order_of_paths_does_not_matter(taxonomy, rng):
    ids = taxonomy.ids
    shuffled = rng.sample(ids, len(ids))
    assert Hierarchy.from_paths(shuffled) == Hierarchy.from_paths(ids)


@given(taxonomies(), st.randoms(use_true_random=False))
def test_the_order_of_edges_does_not_matter(taxonomy, rng):
    edges = taxonomy.edges
    one, other = Hierarchy.from_edges(edges), Hierarchy.from_edges(rng.sample(edges, len(edges)))
    assert one.fingerprint == other.fingerprint
    assert one.names == other.names


def test_the_order_of_a_large_input_does_not_matter():
    rng = random.Random(0)
    paths = [f"{a}/x{b}/{c}" for a in range(12) for b in range(5) for c in range(7)]
    first = Hierarchy.from_paths(paths)
    rng.shuffle(paths)
    assert Hierarchy.from_paths(paths) == first
    assert first.names[:12] == tuple(str(a) for a in range(12))


@given(taxonomies())
def test_a_root_in_the_input_changes_nothing_but_its_name(taxonomy):
    root = "the root"
    h = Hierarchy.from_edges(taxonomy.edges)
    edges = [(root if above is None else above, below) for above, below in taxonomy.edges]
    parents = {below: [a for a, b in edges if b == below] for _, below in edges}
    graph = nx.DiGraph(edges)
    ways = [
        Hierarchy.from_edges(edges, root=root),
        Hierarchy.from_parents(parents, root=root),
        Hierarchy.from_parents({root: None, **parents}, root=root),
        Hierarchy.from_networkx(graph, root=root),
    ]
    for other in ways:
        assert other == h
        assert other.root == root


def test_a_root_that_is_a_number():
    ways = [
        Hierarchy.from_edges([(0, 1), (1, 2)], root="0"),
        Hierarchy.from_parents({1: 0, 2: 1}, root="0"),
        Hierarchy.from_networkx(nx.DiGraph([(0, 1), (1, 2)]), root="0"),
    ]
    for h in ways:
        assert h.names == ("1", "1/2")


@pytest.mark.parametrize(
    "content",
    [
        {"animal": {"dog": ["bulldog", "pug"], "cat": {}}, "plant": ["oak"]},
        {"animal": {"dog": {"bulldog": None, "pug": []}, "cat": None}, "plant": "oak"},
        [{"animal": ["cat", {"dog": ("pug", "bulldog")}]}, {"plant": {"oak": {}}}],
        [
            {
                "name": "animal",
                "children": [{"name": "cat"}, {"name": "dog", "children": ["pug", "bulldog"]}],
            },
            {"name": "plant", "children": [{"name": "oak", "children": []}]},
        ],
        {"plant": [{"name": "oak"}], "animal": [{"dog": ["pug", "bulldog"]}, "cat"]},
    ],
)
def test_nested_forms(content):
    h = Hierarchy.from_nested(content)
    assert h.names == EXPECTED
    assert h.is_tree


def test_nested_with_one_top_node_by_name():
    h = Hierarchy.from_nested({"name": "animal", "children": ["dog", "cat"]})
    assert h.names == ("animal", "animal/cat", "animal/dog")


def test_a_class_called_name():
    assert Hierarchy.from_nested({"name": ["a", "b"]}).names == ("name", "name/a", "name/b")
    h = Hierarchy.from_nested({"name": {"x": {}}, "children": {"y": {}}})
    assert h.names == ("children", "name", "children/y", "name/x")


def test_numbers_are_ids():
    ways = [
        Hierarchy.from_edges([(1, 2), (1, 10), (np.int64(2), 3)]),
        Hierarchy.from_parents({1: None, 2: 1, 10: 1, 3: [2]}),
        Hierarchy.from_parents([-1, 0, 1, 0], ["1", "2", "3", "10"]),
        Hierarchy.from_nested({1: {2: [{3: None}], 10: {}}}),
        Hierarchy.from_frame(pd.DataFrame({"a": [1, 1], "b": [2, 10], "c": ["3", None]})),
    ]
    for h in ways:
        assert h.names == ("1", "1/2", "1/10", "1/2/3")


def test_a_parent_array_names_its_nodes_by_place():
    h = Hierarchy.from_parents(np.array([2, 2, -1, 0], dtype=np.int32))
    assert h.names == ("2", "2/0", "2/1", "2/0/3")
    assert Hierarchy.from_parents([-1] * 12).names == tuple(str(n) for n in range(12))


@pytest.mark.parametrize("missing", [None, "", float("nan"), np.nan, pd.NA])
def test_missing_parents_and_cells(missing):
    assert Hierarchy.from_edges([(missing, "a"), ("a", "b")]).names == ("a", "a/b")
    assert Hierarchy.from_parents({"a": missing, "b": "a"}).names == ("a", "a/b")
    assert Hierarchy.from_parents({"a": [missing], "b": ["a"]}).names == ("a", "a/b")
    frame = pd.DataFrame({"one": ["a", "a"], "two": pd.Series(["b", missing], dtype=object)})
    assert Hierarchy.from_frame(frame).names == ("a", "a/b")


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames(kind):
    frame = kind(
        {
            "width": [1.5, 2.5, 3.5, 4.5],
            "species": ["dog", "cat", "dog", "oak"],
            "breed": ["pug", None, "pug", None],
            "kingdom": ["animal", "animal", "animal", "plant"],
        }
    )
    h = Hierarchy.from_frame(frame, ["kingdom", "species", "breed"])
    assert h.names == tuple(name for name in EXPECTED if "bulldog" not in name)
    assert Hierarchy.from_frame(frame, ("kingdom",)).names == ("animal", "plant")


def test_a_frame_of_categories_skips_empty_rows():
    frame = pd.DataFrame({"a": ["x", None, "x"], "b": ["y", None, None]}, dtype="category")
    assert Hierarchy.from_frame(frame).names == ("x", "x/y")


@pytest.mark.parametrize("sep", [".", "::", " > ", "|", "\t"])
def test_other_separators(sep):
    paths = [sep.join(path) for path in (["a/x", "b"], ["a/x", "c", "d"])]
    h = Hierarchy.from_paths(paths, sep=sep)
    assert h.names == ("a/x", f"a/x{sep}b", f"a/x{sep}c", f"a/x{sep}c{sep}d")
    assert h.sep == sep
    edges = [("a/x", f"a/x{sep}b"), ("a/x", f"a/x{sep}c"), (f"a/x{sep}c", f"a/x{sep}c{sep}d")]
    assert Hierarchy.from_edges(edges, sep=sep) == h
    assert Hierarchy.from_nested({"a/x": {"b": {}, "c": ["d"]}}, sep=sep) == h
    assert h.index(f"a/x{sep}c") == h.index("c") == 2


def test_ids_and_paths_of_edges():
    # An id that is its parent's id, the separator and a name is a path; others are bare names.
    assert Hierarchy.from_edges([("a", "a/b"), ("a/b", "a/b/c")]).names == ("a", "a/b", "a/b/c")
    assert Hierarchy.from_edges([("a", "b"), ("b", "c")]).names == ("a", "a/b", "a/b/c")
    by_id = Hierarchy.from_edges([("a", "b"), ("b", "c")], named_by="id")
    assert by_id.names == ("a", "b", "c")
    assert by_id != Hierarchy.from_edges([("a", "b"), ("b", "c")])
    assert by_id.index("a/b/c") == by_id.index("c")
    for other in (
        Hierarchy.from_parents({"a": None, "b": "a", "c": "b"}, named_by="id"),
        Hierarchy.from_parents([-1, 0, 1], ["a", "b", "c"], named_by="id"),
        Hierarchy.from_networkx(nx.DiGraph([("a", "b"), ("b", "c")]), named_by="id"),
    ):
        assert other == by_id


def test_edges_need_not_name_the_top():
    assert Hierarchy.from_edges([("a", "b"), (None, "a")]) == Hierarchy.from_edges([["a", "b"]])
    h = Hierarchy.from_edges([("root", "a"), ("b", "a")], root="root")  # below the root and b
    assert h.names == ("b", "b/a")


@given(dags())
def test_parents_may_come_as_any_collection(taxonomy):
    h, _ = taxonomy.build()
    names = taxonomy.names
    for kind in (list, tuple, set, frozenset):
        parents = {
            names[node]: kind(names[p] for p in above)
            for node, above in enumerate(taxonomy.parents)
        }
        assert Hierarchy.from_parents(parents) == h


def test_generators_and_single_nodes():
    single = Taxonomy(("a",), ((),))
    assert {h.names for h in all_ways(single).values()} == {("a",)}
    assert Hierarchy.from_paths(path for path in ["a/b"]).names == ("a", "a/b")
    assert Hierarchy.from_edges((a, b) for a, b in ["ab", "bc"]).depth == 3


def test_a_parallel_edge_of_a_multigraph_is_one_edge():
    graph = nx.MultiDiGraph([("a", "b"), ("a", "b")])
    assert Hierarchy.from_networkx(graph).parents("b") == ("a",)
