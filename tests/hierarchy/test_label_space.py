"""LabelSpace: a hierarchy with its terminal classes, immutable and comparable."""

import copy
import pickle

import pytest

from hierlearn import Hierarchy, Labels, LabelSpace
from hierlearn.errors import HierlearnError, LabelError

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])


def test_the_leaves_are_always_terminal():
    assert LabelSpace(TREE).terminal_names == ("d", "a/b", "a/c")
    assert LabelSpace(TREE, ["a"]).terminal_names == ("a", "d", "a/b", "a/c")
    assert LabelSpace(TREE, ["a", "b", "a"]) == LabelSpace(TREE, ["a"])
    assert not LabelSpace(TREE).has_inner_terminals
    assert LabelSpace(TREE, ["a"]).has_inner_terminals
    assert LabelSpace(TREE, [0]).is_terminal.tolist() == [True, True, True, True]
    assert LabelSpace(TREE).terminal_ids().tolist() == [1, 2, 3]


def test_a_hierarchy_is_accepted():
    assert LabelSpace.of(TREE) == LabelSpace(TREE)
    space = LabelSpace(TREE, ["a"])
    assert LabelSpace.of(space) is space
    assert len(space) == 4


def test_from_labels_and_targets():
    labels = Labels([["a"], ["d"]], TREE)
    assert LabelSpace.from_labels(labels) == LabelSpace(TREE, ["a"])
    assert LabelSpace.from_labels(Labels(["d"], TREE), also=["a"]) == LabelSpace(TREE, ["a"])
    # Nobody knows where the row labeled "a" ends, but it is at a leaf.
    partial = Labels([["a"], ["d"]], TREE, unlabeled_descendants="ignore")
    assert LabelSpace.from_labels(partial) == LabelSpace(TREE)
    assert LabelSpace.from_targets(TREE, labels.targets()) == LabelSpace(TREE, ["a"])
    assert LabelSpace.from_targets(TREE, TREE.encode(["b"])) == LabelSpace(TREE)


def test_equal_spaces_are_equal_whatever_made_them():
    space = LabelSpace(TREE, ["a"])
    for twin in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space), copy.copy(space)):
        assert twin == space
        assert hash(twin) == hash(space)
    assert space != LabelSpace(TREE)
    assert space != "a"
    assert repr(space) == f"LabelSpace({TREE!r}, 4 terminal classes)"


def test_it_cannot_be_changed():
    space = LabelSpace(TREE)
    with pytest.raises(AttributeError, match="immutable"):
        space.terminals = ()
    with pytest.raises(AttributeError, match="immutable"):
        del space.hierarchy
    with pytest.raises(ValueError, match="read-only"):
        space.terminals[0] = 0


def test_what_is_refused():
    with pytest.raises(HierlearnError, match="made of a Hierarchy, not list; build one with"):
        LabelSpace.of(["a"])
    with pytest.raises(HierlearnError, match="a list of classes, not the text 'a'"):
        LabelSpace(TREE, "a")
    with pytest.raises(LabelError, match="99"):
        LabelSpace(TREE, [99])
