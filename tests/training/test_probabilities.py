"""The probabilities of every member."""

import pytest
import torch
from torch import nn

from hierlearn import Labels
from hierlearn.links import SoftmaxLink
from hierlearn.networks import NETWORKS, InputSpec, read_output
from hierlearn.networks.ensemble import ensemble_of
from hierlearn.training.probabilities import member_probabilities
from hierlearn.training.rows import Rows
from training.datasets import CPU, TREE, partial_problem

DATASET = partial_problem(rows=20)
LINK = SoftmaxLink(TREE)


def read(found):
    return read_output(found, LINK, overrides_link=True)


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("size", [3, 20, 4096])
def test_probabilities_of_every_member(members, size):
    rows = Rows(DATASET.inputs, Labels(DATASET.labels, TREE), CPU)
    made = [NETWORKS["mlp"](TREE, InputSpec.numbers(4), width=5, dropout=0.5) for _ in range(2)]
    network = ensemble_of(made).train() if members else made[0].train()
    found = member_probabilities(network, rows, read, batch=size)
    assert network.training
    expected = [LINK.probabilities(one.eval()(rows.inputs).logits) for one in made[: members or 1]]
    torch.testing.assert_close(found, expected)
    assert not found[0].requires_grad


def test_networks_stay_in_the_mode_they_were_in():
    rows = Rows(DATASET.inputs, Labels(DATASET.labels, TREE), CPU)
    network = nn.Linear(4, 8).eval()
    member_probabilities(network, rows, read)
    assert not network.training
