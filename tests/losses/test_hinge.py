"""HingeLoss against tests/reference/hinge.py, and scikit-learn's LinearSVC."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.losses import HingeLoss
from losses.oracle_checks import assert_needs_tree, assert_row_losses
from losses.random_batches import random_batch
from reference.hinge import hinge


@pytest.mark.parametrize("margin", [1.0, 4.0])
@pytest.mark.parametrize("seed", range(20))
def test_the_reference(seed, margin):
    batch = random_batch(seed, masked=False)
    expected = hinge(*batch.lists, batch.parents, margin)
    assert_row_losses(HingeLoss(batch.hierarchy, margin=margin), batch, expected)


def test_an_unknown_class_is_left_out():
    h = Hierarchy.from_paths(["a", "b", "c"])
    x, y = torch.tensor([[1.0, 2.0, -1.0]]), torch.tensor([[True, False, False]])
    mask = torch.tensor([[True, False, True]])
    assert float(HingeLoss(h)(x, y, mask)) == (4 - 1) ** 2 + (4 - 1) ** 2
    assert float(HingeLoss(h)(x, y)) == (4 - 1) ** 2 + (4 + 2) ** 2 + (4 - 1) ** 2


def test_the_margin_scales_the_logits_alone():
    batch = random_batch(3, masked=False)
    one = HingeLoss(batch.hierarchy, margin=1)(batch.logits, batch.targets)
    four = HingeLoss(batch.hierarchy)(4 * batch.logits, batch.targets)
    torch.testing.assert_close(four, 16 * one)


@pytest.mark.parametrize("margin", [0, -1, float("inf"), float("nan")])
def test_a_margin_that_is_none_is_refused(margin):
    with pytest.raises(HierlearnError, match="margin must be a number above 0"):
        HingeLoss(Hierarchy.from_paths(["a", "b"]), margin=margin)


def test_a_dag_is_refused():
    assert_needs_tree(HingeLoss)
