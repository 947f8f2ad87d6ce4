"""What the test of every loss needs to compare it with its naive reference."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from reference.links import log_probabilities
from tolerances import Tolerance

# Double precision; the sums of a batch have fewer than a hundred terms.
CLOSE = Tolerance(rtol=1e-10, atol=1e-10)
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])


def sigmoid_log_probabilities(batch):
    """Log p and log(1 - p) of a batch as nested lists, from the reference sigmoid link."""
    return log_probabilities(batch.logits.tolist(), batch.parents, "sigmoid")


def assert_same(found, expected):
    """Compare a tensor with the numbers or nested lists of a reference."""
    expected = torch.tensor(expected, dtype=torch.float64).reshape(found.shape)
    CLOSE.assert_close(found, expected)


def assert_entry_losses(loss, batch, expected):
    """Compare with N x C values: unknown entries cost 0, the mean is over known entries."""
    expected = torch.tensor(expected, dtype=torch.float64)
    known = expected.numel()
    if batch.mask is not None:
        expected[~batch.mask] = 0
        known = max(int(batch.mask.sum()), 1)
    loss.reduction = "none"
    CLOSE.assert_close(loss(batch.logits, batch.targets, batch.mask), expected)
    loss.reduction = "mean"
    assert_same(loss(batch.logits, batch.targets, batch.mask), float(expected.sum()) / known)


def assert_row_losses(loss, batch, expected):
    """Compare with one value per row; the mean is over rows with a label."""
    loss.reduction = "none"
    assert_same(loss(batch.logits, batch.targets), expected)
    loss.reduction = "mean"
    labeled = max(int(batch.targets.any(dim=1).sum()), 1)
    assert_same(loss(batch.logits, batch.targets), sum(expected) / labeled)


def assert_needs_tree(loss):
    with pytest.raises(HierlearnError, match=rf"{loss.__name__} needs a tree, but a class of this"):
        loss(DAG)
