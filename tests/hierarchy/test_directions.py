"""Graphs and separators that are probably meant in another way than they would be read."""

import networkx as nx
import pytest
from hypothesis import given

from hierlearn.errors import DataWarning, HierarchyError
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.names import find_other_sep, warn_of_other_sep
from strategies import taxonomies

TREE = [("animal", "dog"), ("animal", "cat"), ("dog", "pug"), ("dog", "bulldog")]


def test_a_graph_from_child_to_parent_is_not_taken_silently():
    reversed_edges = nx.DiGraph([(child, parent) for parent, child in TREE])
    message = (
        "it would have 3 top classes and 1 leaves; pass direction='child-to-parent' if they run"
    )
    with pytest.raises(HierarchyError, match=message):
        Hierarchy.from_networkx(reversed_edges)
    found = Hierarchy.from_networkx(reversed_edges, direction="child-to-parent")
    assert found == Hierarchy.from_edges(TREE)
    assert Hierarchy.from_networkx(nx.DiGraph(TREE)) == found
    as_said = Hierarchy.from_networkx(reversed_edges, direction="parent-to-child")
    assert as_said.parents("animal") == ("dog", "cat") or not as_said.is_tree
    with pytest.raises(HierarchyError, match="direction must be 'parent-to-child' or 'child-to-p"):
        Hierarchy.from_networkx(reversed_edges, direction="up")


def test_a_multigraph_as_obonet_makes_it():
    graph = nx.MultiDiGraph()
    graph.add_edge("GO:2", "GO:1", key="is_a")
    graph.add_edge("GO:3", "GO:1", key="is_a")
    graph.add_edge("GO:3", "GO:1", key="part_of")
    with pytest.raises(HierarchyError, match="as obonet's do"):
        Hierarchy.from_networkx(graph)
    found = Hierarchy.from_networkx(graph, direction="child-to-parent", named_by="id")
    assert found.parents("GO:3") == ("GO:1",)


@given(taxonomies())
def test_a_graph_that_was_written_here_knows_its_direction(taxonomy):
    hierarchy, _ = taxonomy.build()
    assert Hierarchy.from_networkx(hierarchy.to_networkx()).structure.count == len(hierarchy)


@pytest.mark.parametrize("sep", [" > ", ">", "|", "::", " -> ", "\\"])
def test_a_forgotten_separator_is_named(sep):
    paths = [sep.join(("animal", breed, name)) for breed in ("dog", "cat") for name in "xy"]
    with pytest.warns(DataWarning, match="look like paths joined by") as caught:
        warn_of_other_sep(paths, "/")
    message = str(caught[0].message)
    assert f"{paths[0]!r} look like paths joined by {sep!r}, but sep is '/'" in message
    assert Hierarchy.from_paths(paths, sep=sep).depth == 3


def test_a_slash_within_names_does_not_hide_a_forgotten_separator():
    paths = ["Food/Drinks > Tea", "Tools > Hammers", "Tools > Saws"]
    assert find_other_sep(paths, "/") == (" > ", "Food/Drinks > Tea")


@pytest.mark.parametrize(
    "paths",
    [
        ["a/b", "a/c"],
        ["a > b", "c", "d", "e"],  # in few of them
        ["p -> q"],  # alone
        ["x|y", "z|w"],  # nothing is shared
        ["salt & pepper", "C++", "C#"],
        ["a|1/b", "a|1/c", "a|1/d", "a|2"],  # the separator is in most of them
    ],
)
def test_other_names_raise_no_suspicion(paths):
    assert find_other_sep(paths, "/") is None
