"""Targets that are not closed raise at the first call; class indices raise with their remedy."""

import copy
import re

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES, BCELoss, HCLLoss, LinearHCLLoss, targets_from_indices

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
each_loss = pytest.mark.parametrize("name", LOSSES)
OPEN = "row 1: targets are not closed: 'a/b/c' is positive but its parent 'a/b' is not"


def batch():
    logits = torch.randn(3, len(TREE), generator=torch.Generator().manual_seed(0))
    targets = TREE.encode(["a/b/c", "a/b/d", "h"])
    broken = targets.clone()
    broken[1] = False
    broken[1, TREE.index("a/b/c")] = True
    return logits, targets, broken


@each_loss
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
def test_leaf_only_targets_do_not_pass_at_the_first_call(name, dtype):
    logits, _, broken = batch()
    loss = LOSSES[name](TREE)
    with pytest.raises(HierlearnError, match=OPEN):
        loss(logits, broken.to(dtype))
    with pytest.raises(HierlearnError, match=OPEN):  # a check that failed is not done
        loss(logits, broken.to(dtype))
    closed = TREE.max_up(broken.byte())  # the remedy of the message
    assert loss(logits, closed.to(dtype)).isfinite()
    loss(logits, broken.to(dtype))  # later calls are not checked
    LOSSES[name](TREE, validate=False)(logits, broken.to(dtype))
    copied = copy.deepcopy(LOSSES[name](TREE))
    with pytest.raises(HierlearnError, match=OPEN):
        copied(logits, broken.to(dtype))


def test_a_fused_linear_layer_checks_too():
    _, _, broken = batch()
    with pytest.raises(HierlearnError, match=OPEN):
        LinearHCLLoss(TREE, 4)(torch.zeros(3, 4), broken)


def test_values_are_not_looked_at_under_a_transform():
    logits, targets, _ = batch()
    loss = BCELoss(TREE)
    torch.func.vmap(lambda x, y: loss(x[None], y[None]))(logits, targets)
    torch.func.grad(lambda x: loss(x, targets))(logits)


def test_the_check_of_a_large_batch_reads_its_first_rows_only(monkeypatch):
    """The cost is bounded whatever the batch, and paid once."""
    logits, targets, broken = batch()
    monkeypatch.setattr("hierlearn.losses.loss.ENTRIES", len(TREE))  # one row
    BCELoss(TREE)(logits, broken)
    looked = []
    monkeypatch.setattr("hierlearn.losses.loss.check_values", lambda *_, **__: looked.append(1))
    loss = HCLLoss(TREE)
    for _ in range(5):
        loss(logits, targets)
    assert len(looked) == 1


@each_loss
def test_class_indices_raise_with_the_way_to_convert_them(name):
    """An index could count all classes or the leaves; the names say which."""
    logits, _, _ = batch()
    loss = LOSSES[name](TREE)
    message = (
        "targets (3,) are class indices, but a loss takes (3, 8) multi-hot targets, closed under "
        "ancestors; pass targets_from_indices(targets, label_space, class_names), with the name of "
        "the class that each index stands for"
    )
    indices = torch.tensor([0, 1, 4])
    with pytest.raises(HierlearnError, match=re.escape(message)):
        loss(logits, indices)
    leaves = [TREE.names[number] for number in TREE.leaves]
    expected = loss(logits, TREE.encode([leaves[0], leaves[1], leaves[4]]))
    targets = targets_from_indices(indices, loss.label_space, leaves)  # the remedy of the message
    torch.testing.assert_close(loss(logits, targets), expected)
    with pytest.raises(HierlearnError, match=r"^targets \(3,\) must match logits \(3, 8\)$"):
        loss(logits, torch.zeros(3))
