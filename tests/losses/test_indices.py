"""Class indices become the targets that Hierarchy.encode makes of their names."""

import doctest
import re

import numpy as np
import pytest
import torch

import hierlearn
from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError, LabelError
from hierlearn.losses import BCELoss, indices, targets_from_indices
from hierlearn.losses.indices import IndexTable

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_parents({"x": [], "y": [], "z": ["x", "y"], "w": ["z", "y"], "v": ["x"]})


def draw(count, size=20):
    return torch.from_numpy(np.random.default_rng(0).integers(0, count, size))


@pytest.mark.parametrize("hierarchy", [TREE, DAG, Hierarchy.from_paths(["a", "b"])])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_the_targets_are_those_of_the_names(hierarchy, dtype):
    leaves = [hierarchy.names[number] for number in hierarchy.leaves]
    index = draw(len(leaves)).to(dtype)
    found = targets_from_indices(index, hierarchy)
    assert found.dtype == torch.bool
    assert torch.equal(found, hierarchy.encode([leaves[int(i)] for i in index]))


def test_indices_count_the_terminal_classes_or_the_given_names():
    space = LabelSpace(TREE, ["a/b"])
    assert len(space.terminals) == 6
    index = draw(6)
    expected = TREE.encode([space.terminal_names[int(i)] for i in index])
    assert torch.equal(targets_from_indices(index, space), expected)
    names = ["h", "c", "a", "a/b/d"]  # bare names, inner classes, an order of the user's own
    index = draw(4)
    expected = TREE.encode([names[int(i)] for i in index])
    assert torch.equal(targets_from_indices(index, TREE, names), expected)
    assert torch.equal(targets_from_indices(index, TREE, np.array(names)), expected)


def test_shapes_of_members_and_of_no_rows():
    members = torch.stack([draw(5), draw(5).flip(0)])
    found = targets_from_indices(members, TREE)
    assert found.shape == (2, 20, len(TREE))
    assert torch.equal(found[1], targets_from_indices(members[1], TREE))
    assert targets_from_indices(torch.zeros(0, dtype=torch.long), TREE).shape == (0, len(TREE))


def test_a_loss_takes_them():
    logits = torch.zeros(20, len(TREE))
    assert BCELoss(TREE, validate=True)(logits, targets_from_indices(draw(5), TREE)).isfinite()


def test_the_table_is_made_once_and_is_small():
    indices.cached_table.cache_clear()
    for _ in range(3):
        targets_from_indices(draw(5), TREE, ["h", "c", "d", "e", "g"])
    assert indices.cached_table.cache_info().misses == 1
    deep = Hierarchy.from_paths([f"{number % 10}/{number}" for number in range(1000)])
    assert IndexTable(deep).closures.shape == (1000, 2)


def test_compiled():
    table = IndexTable(TREE)
    compiled = torch.compile(table, fullgraph=True, backend="eager")
    assert torch.equal(compiled(draw(5)), table(draw(5)))


@pytest.mark.parametrize(
    ("index", "names", "message"),
    [
        ([5], None, "class index 5 is outside 0..4, of 5 terminal classes"),
        ([0, -100], None, "class index -100 is outside 0..4, of 5 terminal classes"),
        ([2], ["h", "c"], "class index 2 is outside 0..1, of 2 class names"),
        ([0.0], None, "class indices are integers, not torch.float32"),
        ([True], None, "class indices are integers, not torch.bool"),
        ([0], ["h", "x"], "row 1: unknown label 'x' (of 8 classes)"),
        ([0], ["h", None], "class_names has no class for index 1; name one class for each index"),
        ([0], "h", "labels must be a list with one entry per row, not the string 'h'"),
    ],
)
def test_what_is_wrong_is_said(index, names, message):
    with pytest.raises(HierlearnError, match=f"^{re.escape(message)}$"):
        targets_from_indices(torch.tensor(index), TREE, names)


def test_a_wrong_name_is_a_label_error():
    with pytest.raises(LabelError):
        IndexTable(TREE, ["no such class"])


def test_it_is_public_and_its_examples_hold():
    assert hierlearn.targets_from_indices is targets_from_indices
    assert doctest.testmod(indices).failed == 0
