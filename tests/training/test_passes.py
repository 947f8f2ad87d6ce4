"""The mean loss of weighted rows over all processes, and the probabilities of every model."""

import numpy as np
import pytest
import torch
from torch import nn

from hierlearn import Labels
from hierlearn.links import SoftmaxLink
from hierlearn.losses import LOSSES
from hierlearn.models import MLP
from hierlearn.training.passes import member_probabilities, weighted_mean
from hierlearn.training.processes import Processes
from hierlearn.training.rows import Rows
from training.problems import CPU, TREE, partial_problem

ALONE = Processes(0, 1, CPU)
DATASET = partial_problem(rows=20)


def batch(below):
    labels = Labels(DATASET.labels, TREE, below=below)
    torch.manual_seed(0)
    return torch.randn(20, 8), labels.targets(), labels.mask()


@pytest.mark.parametrize("below", ["negative", "unknown"])
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "lyu"])
def test_a_mean_times_its_count_is_the_sum(name, below):
    """What processes weigh their means by is what the mean divides by."""
    logits, targets, mask = batch(below)
    mean, total = (LOSSES[name](TREE, reduction=kind) for kind in ("mean", "sum"))
    count = mean.count(targets, mask)
    torch.testing.assert_close(mean(logits, targets, mask) * count, total(logits, targets, mask))


@pytest.mark.parametrize("below", ["negative", "unknown"])
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "lyu"])
def test_the_mean_of_weighted_rows_by_hand(name, below):
    logits, targets, mask = batch(below)
    weights = torch.from_numpy(np.random.default_rng(0).uniform(0, 2, 20)).float()
    loss = LOSSES[name](TREE)
    found = weighted_mean(loss, logits, targets, mask, weights, ALONE)
    if "hcl" in name and name != "hcl-hier":
        weights_of_classes = loss._state[-1]  # the curriculum's own, of the weighted rows
        plain = LOSSES[name](TREE, curriculum=None, reduction="none")
        values = plain(logits, targets, mask) * weights_of_classes
    else:
        values = LOSSES[name](TREE, reduction="none")(logits, targets, mask)
    total = count = 0.0
    for row in range(20):
        if values.dim() == 1:
            if (targets[row] & mask[row]).any():
                total += weights[row] * values[row]
                count += weights[row]
            continue
        for number in range(8):
            if mask[row, number]:
                total += weights[row] * values[row, number]
                count += weights[row]
    torch.testing.assert_close(found, total / count)


def test_the_loss_is_left_as_it_was_even_after_an_error():
    loss = LOSSES["mixed"](TREE, parts={"hcl": 1.0, "bce": 1.0})
    logits, targets, mask = batch("negative")
    with pytest.raises(ValueError, match="must match"):
        weighted_mean(loss, logits, targets[:3], mask, torch.ones(20), ALONE)
    assert [loss.reduction, *(part.reduction for part in loss.parts)] == ["mean"] * 3
    assert loss.parts[0].row_weights is None


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("size", [3, 20, 4096])
def test_probabilities_of_every_model(members, size):
    rows = Rows(DATASET.inputs, Labels(DATASET.labels, TREE), CPU)
    network = MLP(4, 8, width=5, dropout=0.5, members=members).train()
    link = SoftmaxLink(TREE)
    found = member_probabilities(network, rows, link, batch=size)
    assert network.training
    logits = network.eval()(rows.inputs)
    expected = [link.probabilities(one) for one in (logits if members else logits[None])]
    torch.testing.assert_close(found, expected)
    assert not found[0].requires_grad


def test_networks_stay_in_the_mode_they_were_in():
    rows = Rows(DATASET.inputs, Labels(DATASET.labels, TREE), CPU)
    network = nn.Linear(4, 8).eval()
    member_probabilities(network, rows, SoftmaxLink(TREE))
    assert not network.training
