"""Lowest common ancestors against naive loops and networkx, one by one and as arrays."""

import itertools
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from hierlearn.errors import LabelError
from hierlearn.hierarchy import Hierarchy
from reference import hierarchy as reference
from strategies import dags, taxonomies, trees


def all_pairs(h):
    return np.meshgrid(np.arange(len(h)), np.arange(len(h)), indexing="ij")


@given(taxonomies())
def test_every_pair(taxonomy):
    h, _ = taxonomy.build()
    parents = taxonomy.in_class_order()
    nodes = range(len(h))
    expected = [[reference.lca(parents, a, b) for b in nodes] for a in nodes]
    heights = [[reference.lca_height(parents, a, b) for b in nodes] for a in nodes]
    assert h.lcas(*all_pairs(h)).tolist() == expected
    assert h.lca_heights(*all_pairs(h)).tolist() == heights


@given(trees())
def test_networkx_agrees_on_trees(taxonomy):
    h, numbers = taxonomy.build()
    graph = taxonomy.graph
    tops = [node for node in graph if graph.in_degree(node) == 0]
    graph.add_edges_from((-1, node) for node in tops)
    pairs = list(itertools.combinations_with_replacement(range(len(h)), 2))
    for (a, b), found in nx.tree_all_pairs_lowest_common_ancestor(graph, root=-1, pairs=pairs):
        expected = -1 if found == -1 else numbers[found]
        assert h.lcas(numbers[a], numbers[b]) == expected
    a, b = pairs[len(pairs) // 2]
    found = nx.lowest_common_ancestor(graph, a, b)
    assert h.lca(numbers[a], numbers[b]) == (None if found == -1 else numbers[found])


@given(dags())
def test_a_dag_gives_a_common_ancestor_of_least_height(taxonomy):
    h, numbers = taxonomy.build()
    graph = taxonomy.graph
    own = [{numbers[k] for k in nx.ancestors(graph, node)} | {numbers[node]} for node in graph]
    for a, b in itertools.product(graph, graph):
        common = own[a] & own[b]
        found = int(h.lcas(numbers[a], numbers[b]))
        if common:
            assert found in common
            assert h.heights[found] == min(h.heights[c] for c in common)
        else:
            assert found == -1


@given(taxonomies())
def test_identities(taxonomy):
    h, _ = taxonomy.build()
    a, b = all_pairs(h)
    found = h.lcas(a, b)
    assert np.array_equal(found, found.T)
    assert np.array_equal(np.diagonal(found), np.arange(len(h)))
    for c in range(len(h)):
        for above in h.ancestors(c):
            assert found[c, above] == above


@given(taxonomies())
def test_one_pair_equals_the_array(taxonomy):
    h, _ = taxonomy.build()
    found = h.lcas(*all_pairs(h))
    for a, b in itertools.product(range(len(h)), repeat=2):
        expected = None if found[a, b] < 0 else int(found[a, b])
        assert h.lca(a, b) == expected
        assert h.lca(h.names[a], h.names[b]) == (None if expected is None else h.names[expected])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("shape", ["flat", "chain", "binary", "star"])
def test_sizes_around_powers_of_two(size, shape):
    place = np.arange(size)
    parents = {
        "flat": np.full(size, -1),
        "chain": place - 1,
        "binary": (place + 1) // 2 - 1,
        "star": np.minimum(place, 1) - 1,
    }[shape]
    h = Hierarchy.from_parents(parents)
    lists = [list(h.parents(c)) for c in range(size)]
    expected = [[reference.lca(lists, a, b) for b in range(size)] for a in range(size)]
    assert h.lcas(*all_pairs(h)).tolist() == expected


@pytest.mark.parametrize("kind", ["tree", "DAG"])
def test_chunks_change_nothing(monkeypatch, small_tree, kind):
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "f"), ("c", "f")]
    h = small_tree if kind == "tree" else Hierarchy.from_edges(edges)
    whole = h.lcas(*all_pairs(h))
    monkeypatch.setattr("hierlearn.hierarchy.hierarchy.PAIRS_AT_ONCE", 5)
    assert np.array_equal(h.lcas(*all_pairs(h)), whole)


def test_large_tree_against_walking_up():
    rng = np.random.default_rng(0)
    h = Hierarchy.from_parents([-1, *(int(rng.integers(-1, node)) for node in range(1, 3000))])
    a, b = rng.integers(0, len(h), (2, 500))
    parents = h.structure.first_parents
    for left, right, found in zip(a.tolist(), b.tolist(), h.lcas(a, b).tolist(), strict=True):
        while left != right:  # the larger number is never above the other
            left, right = (parents[left], right) if left > right else (left, parents[right])
        assert found == left


def test_height_comes_before_depth_in_a_dag():
    # x and y meet in u (level 1, height 1) and in v (level 2, height 2).
    edges = [("u", "x"), ("u", "y"), ("w", "v"), ("v", "m"), ("v", "n"), ("m", "x"), ("n", "y")]
    h = Hierarchy.from_edges(edges)
    assert h.lca("x", "y") == "u"
    assert h.lca_heights(h.index("x"), h.index("y")) == 1
    assert h.lca("m", "n") == "v"
    assert h.lca("m", "y") == "v"
    assert h.lca("u", "v") is None
    assert h.lca_heights(h.index("u"), h.index("v")) == h.root_height == 4


def test_depth_then_class_order_break_ties_in_a_dag():
    deeper = Hierarchy.from_edges(
        [("p", "x"), ("p", "y"), ("r", "q"), ("q", "x"), ("q", "y")]
    )  # p and q have height 1, q is deeper
    assert deeper.lca("x", "y") == "q"
    level = Hierarchy.from_edges([("q", "x"), ("q", "y"), ("p", "x"), ("p", "y")])
    assert level.lca("x", "y") == "p"


def test_names_and_numbers(small_tree):
    h = small_tree
    assert h.lca("pug", "animal/dog/bulldog") == "animal/dog"
    assert h.lca("pug", "cat") == "animal"
    assert h.lca("dog", "pug") == "animal/dog"
    assert h.lca("oak", "cat") is None
    assert h.lca(h.index("pug"), h.index("cat")) == h.index("animal")
    assert isinstance(h.lca(2, 3), int)
    assert h.lca_heights(h.index("oak"), h.index("cat")) == h.root_height == 3


def test_broadcasting(small_tree, diamond):
    for h in (small_tree, diamond):
        every = np.arange(len(h))
        table = h.lcas(every[:, None], every)
        assert table.shape == (len(h), len(h))
        assert np.array_equal(table, h.lcas(*all_pairs(h)))
        assert np.array_equal(h.lcas(2, every), table[2])
        assert np.array_equal(h.lca_heights(every, 1), h.lca_heights(every, np.full(len(h), 1)))
        assert h.lcas(1, 2).shape == ()
        assert h.lcas([], []).shape == (0,)
        assert h.lcas(np.zeros((0, 3), dtype=int), every[:3]).shape == (0, 3)
        assert h.lcas(every.astype(np.uint8), every.tolist()).tolist() == every.tolist()
        assert table.dtype == np.int64


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([0.0, 1.0], [0, 1], "class numbers must be integers, not float64"),
        ([0], [True], "class numbers must be integers, not bool"),
        (["cat"], [0], "class numbers must be integers, not <U3"),
        ([0, 7], [0, 1], "class numbers 0..7 must lie in 0..6"),
        ([0, 1], [-1, 1], "class numbers -1..1 must lie in 0..6"),
    ],
)
def test_bad_numbers(small_tree, a, b, message):
    for method in (small_tree.lcas, small_tree.lca_heights):
        with pytest.raises(LabelError, match=re.escape(message)):
            method(a, b)


def test_unknown_labels(small_tree):
    with pytest.raises(LabelError, match="unknown label 'dgo'; did you mean 'dog'"):
        small_tree.lca("cat", "dgo")
    with pytest.raises(LabelError, match=re.escape("class number 9 is outside 0..6")):
        small_tree.lca(9, 0)
