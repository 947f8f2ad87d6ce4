"""What prepare chooses by the labels: where rows may end, how to decide, the weighted priors."""

import numpy as np
import pytest
import torch

from hierlearn import Dataset, Hierarchy, Labels
from hierlearn.training import Plan
from hierlearn.training.choose import Facts, choose_decoder
from hierlearn.training.prepare import PrepareOptions, prepare
from hierlearn.training.recipes import RECIPES

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("rows", "below", "decoder"),
    [
        ([["a/b"], ["d"]], "negative", "leaf"),
        ([["a"], ["a/b"]], "negative", "leaf"),
        ([["a", "a/b"], ["d"]], "negative", "leaf"),  # one path, named twice
        ([["a/b", "d"], []], "negative", "coherent"),
        ([["a/b"], []], "negative", "stop"),
        ([["a/b"], []], "ignore", "leaf"),
    ],
)
def test_the_decoder_fits_the_labels(rows, below, decoder):
    found = Facts.of(Labels(rows, TREE, unlabeled_descendants=below))
    assert choose_decoder(found, RECIPES["flat"], Plan()) == decoder
    wanted = "hier-f1" if decoder == "leaf" else decoder
    assert choose_decoder(found, RECIPES["flat"], Plan(optimize="hier-f1")) == wanted
    dataset = Dataset(np.zeros((2, 1)), rows, TREE)
    assert prepare(dataset, Plan(unlabeled_descendants=below), CPU).decision.decoder == decoder


@pytest.mark.parametrize("loss", ["bce", "leaf-ce"])
def test_the_priors_count_weights(loss):
    """The share of a class among weighted rows, as among repeated ones but for the half rows."""
    rows = [["a/b"], ["a/c"], ["d"], ["d"]] * 100
    weights = np.array([3.0, 1.0, 2.0, 2.0] * 100)
    inputs = np.zeros((400, 1))
    plan = Plan(loss=loss, network="linear")
    ready = prepare(Dataset(inputs, rows, TREE), plan, CPU, PrepareOptions(weights=weights))
    p = ready.network(torch.zeros(1, 1)).probabilities.detach()[0]
    expected = torch.tensor([4 / 8, 4 / 8, 3 / 8, 1 / 8])  # a, d, a/b, a/c
    torch.testing.assert_close(p, expected, atol=0.003, rtol=0)


def test_standardizing_is_a_choice():
    dataset = Dataset(np.array([[1.0], [3.0]]), [["a/b"], ["d"]], TREE)
    assert prepare(dataset, Plan(), CPU).rows.inputs.tolist() == [[-1.0], [1.0]]
    assert prepare(dataset, Plan(standardize=False), CPU).rows.inputs.tolist() == [[1.0], [3.0]]
