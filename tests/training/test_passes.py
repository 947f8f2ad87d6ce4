"""The probabilities of every model."""

import pytest
import torch
from torch import nn

from hierlearn import Labels
from hierlearn.links import SoftmaxLink
from hierlearn.networks import MLP
from hierlearn.training.passes import member_probabilities
from hierlearn.training.rows import Rows
from training.datasets import CPU, TREE, partial_problem

DATASET = partial_problem(rows=20)


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
