"""Levels, heights, relatives, closures and class order against naive loops and networkx."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.names import natural_ranks
from hierlearn.hierarchy.structure import Cycle, arrange, csr_from_pairs, expand_ranges
from reference import hierarchy as reference
from strategies import NAMES, dags, labeled, taxonomies, trees


def mapped(numbers, nodes):
    return tuple(sorted(numbers[node] for node in nodes))


@given(taxonomies())
def test_levels_and_heights(taxonomy):
    h, numbers = taxonomy.build()
    assert h.levels[numbers].tolist() == reference.levels(taxonomy.parents)
    assert h.heights[numbers].tolist() == reference.heights(taxonomy.parents)
    assert h.root_height == reference.root_height(taxonomy.parents)
    assert h.leaves.tolist() == list(mapped(numbers, reference.leaves(taxonomy.parents)))
    assert h.is_tree == taxonomy.is_tree
    assert len(h) == len(taxonomy)


@given(taxonomies())
def test_relatives_by_number(taxonomy):
    h, numbers = taxonomy.build()
    for node, number in enumerate(numbers):
        parents = taxonomy.parents
        assert h.parents(number) == mapped(numbers, parents[node])
        assert h.children(number) == mapped(numbers, reference.children(parents, node))
        assert h.ancestors(number) == mapped(numbers, reference.ancestors(parents, node))
        assert h.descendants(number) == mapped(numbers, reference.descendants(parents, node))


@given(taxonomies())
def test_relatives_by_name_are_names(taxonomy):
    h, _ = taxonomy.build()
    for number, name in enumerate(h.names):
        for relatives in (h.parents, h.children, h.ancestors, h.descendants):
            assert relatives(name) == tuple(h.names[c] for c in relatives(number))


@given(taxonomies())
def test_networkx_agrees(taxonomy):
    h, numbers = taxonomy.build()
    graph = taxonomy.graph
    assert nx.is_directed_acyclic_graph(graph)
    assert h.depth == nx.dag_longest_path_length(graph) + 1 == h.root_height
    for level, generation in enumerate(nx.topological_generations(graph), start=1):
        assert np.flatnonzero(h.levels == level).tolist() == list(mapped(numbers, generation))
    for node, number in enumerate(numbers):
        assert h.ancestors(number) == mapped(numbers, nx.ancestors(graph, node))
        assert h.descendants(number) == mapped(numbers, nx.descendants(graph, node))


@given(taxonomies())
def test_class_order(taxonomy):
    h, _ = taxonomy.build()
    order = reference.class_order(taxonomy.parents, taxonomy.names)
    assert h.bare_names == tuple(taxonomy.names[node] for node in order)
    assert h.names == tuple(taxonomy.ids[node] for node in order)
    assert [list(h.parents(c)) for c in range(len(h))] == taxonomy.in_class_order()


@given(taxonomies())
def test_levels_are_contiguous_slices(taxonomy):
    h, _ = taxonomy.build()
    assert sum(h.level_sizes) == len(h)
    assert len(h.level_sizes) == len(h.level_slices) == h.depth
    begin = 0
    for level, (size, part) in enumerate(zip(h.level_sizes, h.level_slices, strict=True), start=1):
        assert (part.start, part.stop) == (begin, begin + size)
        assert size > 0
        assert np.all(h.levels[part] == level)
        begin += size


@given(trees())
def test_siblings_stand_together_in_a_tree(taxonomy):
    h, _ = taxonomy.build()
    for c in range(len(h)):
        below = h.children(c)
        assert below == tuple(range(below[0], below[0] + len(below))) if below else True
    parents = h.structure.first_parents
    assert all(np.all(np.diff(parents[part]) >= 0) for part in h.level_slices)


@given(taxonomies())
def test_parents_lie_at_smaller_levels(taxonomy):
    h, _ = taxonomy.build()
    for c in range(len(h)):
        assert h.levels[c] == 1 + max((h.levels[p] for p in h.parents(c)), default=0)
        for p in h.parents(c):
            assert p < c
            assert h.structure.has_edge(p, c)
            assert not h.structure.has_edge(c, p)


@given(labeled())
def test_closure(drawn):
    taxonomy, rows = drawn
    h, numbers = taxonomy.build()
    for row in rows:
        closed = h.closure([numbers[node] for node in row])
        assert closed == mapped(numbers, reference.closure(taxonomy.parents, row))
        assert h.closure(closed) == closed
        if row:
            by_name = h.closure([taxonomy.ids[node] for node in row])
            assert by_name == tuple(h.names[c] for c in closed)


def test_closure_of_nothing_and_of_mixed_labels(small_tree):
    assert small_tree.closure([]) == ()
    assert small_tree.closure(["pug", 1]) == ("animal", "plant", "animal/dog", "animal/dog/pug")


@given(dags())
def test_a_dag_is_no_tree(taxonomy):
    h, _ = taxonomy.build()
    assert not h.is_tree
    assert h.named_by == "id"
    assert repr(h).startswith(f"Hierarchy({len(h)} classes, DAG, levels ")


def test_a_diamond_counts_shared_ancestors_once(diamond):
    assert diamond.levels.tolist() == [1, 2, 2, 3]
    assert diamond.heights.tolist() == [2, 1, 1, 0]
    assert diamond.ancestors("d") == ("a", "b", "c")
    assert diamond.descendants("a") == ("b", "c", "d")


def test_the_level_is_the_longest_path():
    h = Hierarchy.from_edges([("a", "c"), ("a", "b"), ("b", "c"), ("a", "d")])
    assert dict(zip(h.names, h.levels.tolist(), strict=True)) == {"a": 1, "b": 2, "d": 2, "c": 3}
    assert h.heights[h.index("a")] == 2


@given(st.lists(NAMES, max_size=8))
def test_natural_order(names):
    ranks = natural_ranks(names).tolist()
    assert sorted(ranks) == list(range(len(names)))
    by_rank = [names[ranks.index(rank)] for rank in range(len(names))]
    assert by_rank == sorted(names, key=reference.natural_key)


def test_natural_order_by_hand():
    h = Hierarchy.from_paths(["x10", "x9", "x1", "x01", "10", "2", "y", "x"])
    assert h.names == ("2", "10", "x", "x01", "x1", "x9", "x10", "y")


@pytest.mark.parametrize("size", [1, 2, 700])
def test_a_long_chain(size):
    h = Hierarchy.from_parents(np.arange(size) - 1)
    assert h.levels.tolist() == list(range(1, size + 1))
    assert h.heights.tolist() == list(range(size))[::-1]
    assert h.ancestors(size - 1) == tuple(range(size - 1))
    assert h.level_sizes == (1,) * size


@pytest.mark.parametrize("most", [1, 3])
def test_a_large_graph(most):
    rng = np.random.default_rng(most)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(600))
    for node in range(1, 600):
        above = rng.integers(0, node, size=rng.integers(0, most + 1))
        graph.add_edges_from((int(p), node) for p in above)
    h = Hierarchy.from_networkx(graph, named_by="id")
    assert h.is_tree == (most == 1)
    level = {n: m for m, g in enumerate(nx.topological_generations(graph), start=1) for n in g}
    for node in range(0, 600, 7):
        name = str(node)
        assert h.levels[h.index(name)] == level[node]
        assert set(h.ancestors(name)) == {str(p) for p in nx.ancestors(graph, node)}
        assert set(h.descendants(name)) == {str(k) for k in nx.descendants(graph, node)}


def test_every_array_is_read_only(small_tree, diamond):
    for h in (small_tree, diamond):
        structure = h.structure
        arrays = [h.levels, h.heights, h.leaves, *structure.closure, *structure.children]
        arrays += [structure.parent_offsets, structure.parent_ids, structure.level_offsets]
        arrays += [structure.edge_children, structure.first_parents]
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_expand_ranges_and_csr():
    offsets, values = csr_from_pairs(np.array([2, 0, 2, 3]), np.array([9, 5, 4, 7]), 5)
    assert offsets.tolist() == [0, 1, 1, 3, 4, 4]
    assert values.tolist() == [5, 4, 9, 7]
    positions, counts = expand_ranges(offsets, np.array([2, 1, 0, 2]))
    assert values[positions].tolist() == [4, 9, 5, 4, 9]
    assert counts.tolist() == [2, 0, 1, 2]


def test_a_cycle_is_found_below_what_can_be_placed():
    # 0 stands above the cycle 2 -> 3 -> 4 -> 2, and 1, where the search begins, below it.
    parent, child = np.array([0, 4, 2, 3, 3]), np.array([2, 2, 3, 4, 1])
    with pytest.raises(Cycle) as found:
        arrange(child, parent, 5, np.arange(5))
    assert found.value.nodes == [2, 3, 4]
