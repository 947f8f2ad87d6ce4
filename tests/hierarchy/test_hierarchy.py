"""Identity, exchange, immutability and parts of a hierarchy."""

import copy
import doctest
import importlib
import json
import pickle
import re
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hierlearn
from hierlearn.errors import HierarchyError, LabelError
from hierlearn.hierarchy import Hierarchy
from strategies import dags, labeled, taxonomies, trees


def same(one, other):
    """Whether two hierarchies agree in all they show, not in the fingerprint alone."""
    return (
        one == other
        and one.names == other.names
        and one.bare_names == other.bare_names
        and (one.sep, one.root, one.named_by) == (other.sep, other.root, other.named_by)
        and np.array_equal(one.levels, other.levels)
        and all(one.parents(c) == other.parents(c) for c in range(len(one)))
    )


@given(taxonomies())
def test_json_round_trip(taxonomy):
    h, _ = taxonomy.build()
    text = h.to_json()
    assert same(Hierarchy.from_json(text), h)
    assert Hierarchy.from_json(text).to_json() == text
    assert same(Hierarchy.from_json(json.dumps(json.loads(text))), h)  # escaped to ASCII


def test_json_keeps_separator_root_and_naming():
    h = Hierarchy.from_edges([("top", "ä"), ("ä", "b")], sep=" > ", root="top", named_by="id")
    again = Hierarchy.from_json(h.to_json())
    assert (again.sep, again.root, again.named_by) == (" > ", "top", "id")
    assert "ä" in h.to_json()
    assert json.loads(h.to_json()) == {
        "format": "hierlearn.hierarchy",
        "version": 1,
        "named_by": "id",
        "sep": " > ",
        "root": "top",
        "names": ["ä", "b"],
        "parents": [[], [0]],
    }


@given(taxonomies())
def test_networkx_round_trip(taxonomy):
    h, _ = taxonomy.build()
    graph = h.to_networkx()
    assert nx.is_directed_acyclic_graph(graph)
    assert list(graph) == list(h.names)
    assert nx.is_isomorphic(graph, taxonomy.graph)
    assert graph.number_of_edges() == sum(len(h.parents(c)) for c in range(len(h)))
    assert same(Hierarchy.from_networkx(graph), h)


@given(taxonomies())
def test_pickle_and_copies(taxonomy):
    h, _ = taxonomy.build()
    h.leaves, h.fingerprint, h.lcas(0, 0)  # what was computed must not be in the way
    for twin in (
        pickle.loads(pickle.dumps(h)),
        copy.copy(h),
        copy.deepcopy(h),
        copy.deepcopy([h])[0],
    ):
        assert same(twin, h)
        assert hash(twin) == hash(h)
    assert copy.deepcopy(h) is h


@given(taxonomies(), taxonomies())
def test_equal_means_equal_fingerprint(one, other):
    first, second = one.build()[0], other.build()[0]
    equal = first.names == second.names and set(map(str, one.edges)) == set(map(str, other.edges))
    assert (first == second) == (first.fingerprint == second.fingerprint) == equal
    assert len({first, second}) == (1 if equal else 2)


def test_what_makes_hierarchies_differ(small_tree):
    paths = ["animal/dog/pug", "animal/dog/bulldog", "animal/cat", "plant/oak"]
    same_again = Hierarchy.from_paths(paths[::-1])
    assert same_again == small_tree
    assert same_again is not small_tree
    others = [
        Hierarchy.from_paths(paths[1:]),
        Hierarchy.from_paths([*paths, "plant/fir"]),
        Hierarchy.from_paths([path.replace("pug", "Pug") for path in paths]),
        Hierarchy.from_paths([path.replace("/", ".") for path in paths], sep="."),
        Hierarchy.from_parents(
            [-1 if not above else above[0] for above in map(small_tree.parents, range(7))],
            small_tree.bare_names,
            named_by="id",
        ),
    ]
    for other in others:
        assert other != small_tree
        assert other.fingerprint != small_tree.fingerprint
    assert small_tree != small_tree.names
    assert small_tree.__eq__("animal") is NotImplemented


def test_the_name_of_the_root_makes_no_difference():
    one = Hierarchy.from_edges([("top", "a")], root="top")
    assert one == Hierarchy.from_paths(["a"])
    assert (one.root, Hierarchy.from_paths(["a"]).root) == ("top", "root")


def test_fingerprints_never_change(small_tree, diamond):
    # Pipeline files hold them: a new value here makes every saved model a stranger.
    tree = "1aeb2a3a7dacc92d410b0f505e1a37af2f7a45017a976210095b9292c043cd87"
    dag = "9dc7127dbbf6bef64ed4c0d76bb6776b5f7a33ec45085e05f9eea42bdaaf633f"
    assert small_tree.fingerprint == tree
    assert diamond.fingerprint == dag


def test_attributes_cannot_be_set(small_tree):
    for name in ("names", "sep", "structure", "levels", "anything", "_routes"):
        with pytest.raises(AttributeError, match=f"Hierarchy is immutable; {name} cannot be set"):
            setattr(small_tree, name, 1)
        with pytest.raises(AttributeError, match=f"immutable; {name} cannot be deleted"):
            delattr(small_tree, name)
    with pytest.raises(AttributeError):
        small_tree.structure.parent_ids = np.zeros(1)
    with pytest.raises(TypeError, match="build a Hierarchy with"):
        Hierarchy()
    with pytest.raises(TypeError, match="build a Hierarchy with"):
        Hierarchy(["a", "b"])


def test_results_are_copies(small_tree, diamond):
    for h in (small_tree, diamond):
        before, every = h.fingerprint, np.arange(len(h))
        lcas, heights = h.lcas(every, 0), h.lca_heights(every, 0)
        expected = lcas.tolist(), heights.tolist()
        lcas[:], heights[:] = 0, 0
        assert (h.lcas(every, 0).tolist(), h.lca_heights(every, 0).tolist()) == expected
        h.encode([0], numbers=True).fill_(True)
        h.encode([0], numbers=True, sparse=True).data[:] = False
        assert h.encode([0], numbers=True).sum() == 1
        assert Hierarchy.from_json(h.to_json()).fingerprint == before


@given(labeled())
def test_restrict(drawn):
    taxonomy, rows = drawn
    h, numbers = taxonomy.build()
    for row in rows:
        if not row:
            continue
        kept = [taxonomy.ids[node] for node in row]
        part = h.restrict(kept)
        assert part.names == h.closure(kept)
        assert (part.sep, part.root, part.named_by) == (h.sep, h.root, h.named_by)
        assert part == h.restrict(numbers[node] for node in row)
        assert part.restrict(kept) == part
        for name in part.names:
            assert part.parents(name) == h.parents(name)
            assert part.levels[part.index(name)] == h.levels[h.index(name)]


@given(taxonomies())
def test_restrict_to_the_leaves_keeps_all(taxonomy):
    h, _ = taxonomy.build()
    assert h.restrict(h.leaves) == h.restrict(h.names) == h


@given(dags())
def test_a_dag_that_becomes_a_tree_keeps_its_names(taxonomy):
    h, _ = taxonomy.build()
    tops = [c for c in range(len(h)) if not h.parents(c)]
    part = h.restrict(tops)
    assert part.is_tree
    assert part.named_by == "id"
    assert part.names == tuple(h.names[c] for c in tops)


def test_restrict_by_hand(diamond, small_tree):
    part = diamond.restrict(["b"])
    assert part.is_tree
    assert part.names == ("a", "b")
    assert part.index("a/b") == part.index("b") == 1
    assert same(Hierarchy.from_json(part.to_json()), part)
    assert Hierarchy.from_networkx(part.to_networkx(), named_by="id") == part
    assert small_tree.restrict(["pug", 1]).names == (
        "animal",
        "plant",
        "animal/dog",
        "animal/dog/pug",
    )


def test_parts_keep_separator_and_root():
    h = Hierarchy.from_edges([("top", "a"), ("a", "b"), ("a", "c")], sep=" > ", root="top")
    for part in (h.restrict(["b"]), h.prune(1, [1, 1, 0])):
        assert part.names == ("a", "a > b")
        assert (part.sep, part.root) == (" > ", "top")


def test_restrict_raises_on_bad_classes(small_tree):
    with pytest.raises(HierarchyError, match="a hierarchy needs at least one class"):
        small_tree.restrict([])
    with pytest.raises(LabelError, match="unknown label 'dgo'; did you mean 'dog'"):
        small_tree.restrict(["dgo"])
    with pytest.raises(LabelError, match="class number 7 is outside"):
        small_tree.restrict([7])


@given(labeled(), st.integers(0, 4))
def test_prune(drawn, least):
    taxonomy, rows = drawn
    h, numbers = taxonomy.build()
    targets = h.encode([[h.names[numbers[node]] for node in row] for row in rows])
    counts = targets.sum(0)
    kept = tuple(
        name for name, count in zip(h.names, counts.tolist(), strict=True) if count >= least
    )
    if not kept:
        with pytest.raises(HierarchyError, match="a hierarchy needs at least one class"):
            h.prune(least, counts)
        return
    for given_counts in (counts, counts.numpy(), counts.tolist()):
        part = h.prune(least, given_counts)
        assert part.names == kept
        assert part.named_by == h.named_by


def test_prune_checks_its_counts(small_tree):
    with pytest.raises(HierarchyError, match=re.escape("counts (6,) must be (7,)")):
        small_tree.prune(1, [1] * 6)
    with pytest.raises(HierarchyError, match=re.escape("counts (1, 7) must be (7,)")):
        small_tree.prune(1, np.ones((1, 7)))
    assert small_tree.prune(2, torch.tensor([3, 1, 0, 2, 1, 1, 1])).names == (
        "animal",
        "animal/dog",
    )


@given(trees())
def test_a_tree_by_path_has_every_prefix(taxonomy):
    h, _ = taxonomy.build()
    for name in h.names:
        parts = name.split("/")
        prefixes = ["/".join(parts[:end]) for end in range(1, len(parts))]
        assert list(h.ancestors(name)) == prefixes


def test_documentation_examples():
    module = importlib.import_module("hierlearn.hierarchy.hierarchy")
    outcome = doctest.testmod(module)
    assert outcome.attempted >= 3
    assert outcome.failed == 0


def test_public_name():
    assert hierlearn.Hierarchy is Hierarchy


def test_torch_is_imported_only_where_it_is_used():
    code = (
        "import sys; from hierlearn import Hierarchy; "
        "h = Hierarchy.from_paths(['a/b', 'a/c']); h.draw(); h.lca('b', 'c'); "
        "h.fingerprint; h.encode(['b'], sparse=True); h.restrict(['b']); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
