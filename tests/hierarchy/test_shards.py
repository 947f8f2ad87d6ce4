"""Cutting a hierarchy by whole subtrees, and sums along it of which each shard has a part."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.sharded import ShardedHierarchy
from hierlearn.hierarchy.shards import TOP, cut, depth_first
from shard_threads import in_shards
from strategies import taxonomies, trees
from tolerances import FLOAT64


def named(hierarchy, numbers):
    return [hierarchy.names[number] for number in numbers]


def test_a_tree_is_cut_in_depth_first_order():
    h = Hierarchy.from_paths(["a/b/d", "a/b/e", "a/c", "f/g", "f/h"])
    order = np.argsort(depth_first(h.structure))
    assert named(h, order) == ["a", "a/b", "a/b/d", "a/b/e", "a/c", "f", "f/g", "f/h"]
    shards = cut(h, 2)
    assert named(h, shards.top) == ["a"]
    first, second = shards.shard(0), shards.shard(1)
    assert named(h, first.classes) == ["a", "a/b", "a/b/d", "a/b/e"]
    assert named(h, second.classes) == ["a", "f", "a/c", "f/g", "f/h"]
    # The first shard has stand-ins for what lies below the root and below a, the second for a.
    assert [h.names[p[0]] if len(p) else "root" for p in shards.group_parents] == ["root", "a"]
    assert [len(one.stand_ins) for one in (first, second)] == [2, 1]
    assert repr(first) == "Shard(0 of 2, 4 classes, 1 of them in all shards)"


def test_a_flat_hierarchy_has_no_top():
    shards = cut(Hierarchy.from_paths([f"c{k}" for k in range(10)]), 3)
    assert not len(shards.top)
    assert [len(shards.shard(rank).classes) for rank in range(3)] == [4, 3, 3]


def test_the_parents_of_a_shared_class_join_the_top():
    edges = [("a", "b"), ("a", "c"), ("d", "e"), ("d", "f"), ("b", "s"), ("e", "s"), ("s", "t")]
    h = Hierarchy.from_edges(edges)
    shards = cut(h, 2)
    # Depth first along first parents: a b s t | c d e f. The cut goes through a, and s lies below
    # e, too, which brings its ancestor d.
    assert named(h, shards.top) == ["a", "d", "e"]
    assert named(h, np.flatnonzero(shards.owner == 0)) == ["b", "s", "t"]
    assert named(h, np.flatnonzero(shards.owner == 1)) == ["c", "f"]
    assert [named(h, parents) for parents in shards.group_parents] == [["a"], ["d"], ["a", "e"]]


def test_more_shards_than_subtrees():
    chain = Hierarchy.from_paths(["a/b/c/d/e"])
    shards = cut(chain, 4)
    assert named(chain, shards.top) == ["a", "a/b", "a/b/c", "a/b/c/d"]
    with pytest.raises(HierlearnError, match="5 classes cannot be cut into 6 shards; use fewer"):
        cut(chain, 6)
    with pytest.raises(HierlearnError, match="at least 1 shard, not 0"):
        cut(chain, 0)


@given(taxonomies(max_size=16), st.integers(1, 5))
def test_every_edge_is_in_one_shard_or_begins_in_the_top(taxonomy, world):
    h = taxonomy.build()[0]
    world = min(world, len(h))
    shards = cut(h, world)
    child, parent = h.structure.edge_children, h.structure.parent_ids
    upper, lower = shards.owner[parent], shards.owner[child]
    assert np.all((upper == TOP) | (upper == lower))
    # All classes are somewhere, and outside of the top in one shard only.
    parts = [shards.shard(rank) for rank in range(world)]
    counted = np.concatenate([one.classes[one.counted] for one in parts])
    assert sorted(counted) == list(range(len(h)))
    for one in parts:
        inside = set(one.classes.tolist())
        assert all(set(h.ancestors(int(c))) <= inside for c in one.classes)
        assert np.array_equal(one.hierarchy.levels, h.levels[one.classes])
        assert len(one.classes) - one.is_top.sum() <= -(-len(h) // world)


@given(trees(max_size=30), st.integers(2, 5))
def test_the_top_of_a_tree_is_small(taxonomy, world):
    h = taxonomy.build()[0]
    world = min(world, len(h))
    assert len(cut(h, world).top) <= (world - 1) * (h.depth - 1)


@settings(max_examples=25)  # each starts threads
@given(taxonomies(max_size=14), st.integers(2, 4), st.integers(0, 10**6))
def test_sums_and_maxima_of_a_shard_are_those_of_the_whole(taxonomy, world, seed):
    h = taxonomy.build()[0]
    world = min(world, len(h))
    if world < 2:
        return
    shards = cut(LabelSpace(h), world)
    x = torch.randn(3, len(h), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    names = ("max_up", "sum_up", "logsumexp_up", "max_down", "sum_down")

    def work(exchange):
        part = ShardedHierarchy(shards.shard(exchange.rank), exchange)
        own = x[:, part.classes]
        return part.classes, [getattr(part, name)(own) for name in names]

    for classes, found in in_shards(world, work):
        FLOAT64.assert_close(found, [getattr(h, name)(x)[:, classes] for name in names])
