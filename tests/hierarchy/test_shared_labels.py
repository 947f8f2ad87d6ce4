"""Labels of rows that share their lists are the labels of the rows."""

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import LabelError
from hierlearn.hierarchy.labels import Labels, labels_of_rows

TREE = Hierarchy.from_paths(["a/b/d", "a/b/e", "a/c", "f/g", "f/h"])
DAG = Hierarchy.from_edges([("a", "b"), ("c", "b"), ("b", "d"), ("c", "e")])


def shared_rows(hierarchy, rows=40, seed=0):
    """Return rows that share a few lists, some of them without a label."""
    draw = np.random.default_rng(seed)
    names = hierarchy.names
    sets = [[], *([names[k] for k in draw.choice(len(names), 1 + k % 2)] for k in range(5))]
    return [sets[k] for k in draw.integers(0, len(sets), rows)]


@pytest.mark.parametrize("hierarchy", [TREE, DAG])
@pytest.mark.parametrize("policy", ["negative", "ignore"])
def test_shared_lists_have_the_labels_of_the_rows(hierarchy, policy):
    rows = shared_rows(hierarchy)
    found = labels_of_rows(rows, hierarchy, unlabeled_descendants=policy)
    plain = Labels(rows, hierarchy, unlabeled_descendants=policy)
    assert found.of_row is not None
    assert plain.of_row is None
    assert len(found) == len(plain)
    assert len(found.sets[0]) - 1 <= 6
    for name in ("annotated", "closed", "terminal"):
        for mine, theirs in zip(getattr(found, name), getattr(plain, name), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    for name in ("terminal_classes", "terminal_counts", "counts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    assert found.single_path == plain.single_path
    assert repr(found) == repr(plain)
    for picked in (None, [3, 3, 0], slice(5, 9), np.arange(40) % 3 == 0, []):
        assert torch.equal(found.targets(picked), plain.targets(picked))
        assert torch.equal(found.mask(picked), plain.mask(picked))
    weights = np.random.default_rng(1).uniform(0, 2, 40)
    for given in (None, weights):
        for mine, theirs in zip(
            found.weighted_counts(given), plain.weighted_counts(given), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_rows_of_one_path_have_their_terminal_class():
    one, other = ["a/c"], ["f/g"]
    found = labels_of_rows([one, other, one, one], TREE)
    assert found.single_path
    assert [TREE.names[number] for number in found.terminal_ids()] == ["a/c", "f/g", "a/c", "a/c"]


def test_lists_that_are_not_shared_are_looked_up_one_by_one():
    found = labels_of_rows([["a/c"], ["f/g"], ["a/c"]], TREE)
    assert found.of_row is None


def test_an_unknown_label_names_its_row():
    one, other = ["a/c"], ["a/x"]
    with pytest.raises(LabelError, match="row 3: unknown label 'a/x'"):
        labels_of_rows([one, one, one, other, other], TREE)


def test_other_labels_have_another_identity():
    one, other = ["a/c"], ["f/g"]
    rows = [[one, other, one, one], [one, one, other, one], [other, one, other, other]]
    found = [labels_of_rows(some, TREE).identity() for some in rows]
    assert len({b"".join(array.tobytes() for array in arrays) for arrays in found}) == 3
