"""TabM against loops and networks alone, its gradients, stacked seeds and a training."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from hierlearn import Dataset, Hierarchy, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES
from hierlearn.losses.joint import JointLoss
from hierlearn.networks import NETWORKS, InputSpec, SparseRows, read_output
from hierlearn.networks.ensemble import StackedEnsemble, ensemble_of
from reference.tabm import member_logits, tabm

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
CLASSES = ["a/b/c", "a/b/d", "a/e", "f/g", "h"]


def make(seed=0, **options):
    torch.manual_seed(seed)
    chosen = {"members": 3, "width": 5, "depth": 2, "dropout": 0.0, **options}
    network = NETWORKS["tabm"](TREE, InputSpec.numbers(4), **chosen)
    for layer in network.encoder.layers:  # as after a training
        for value in (layer.r, layer.s, layer.bias):
            value.data.add_(torch.randn_like(value) * 0.3)
    return network


def lists(network):
    layers = [
        tuple(one.tolist() for one in (layer.dense.weight, layer.r, layer.s, layer.bias))
        for layer in network.encoder.layers
    ]
    heads = [
        (head.linear.weight.tolist(), head.linear.bias.tolist()) for head in network.heads.values()
    ]
    return layers, heads


def test_the_answers_by_loops():
    network = make().double().eval()
    x = torch.randn(6, 4, dtype=torch.float64)
    layers, heads = lists(network)
    found = read_output(network(x)).probabilities
    for row, p in zip(x.tolist(), found.tolist(), strict=True):
        assert p == pytest.approx(tabm(row, layers, heads), abs=1e-12)


def test_the_loss_is_the_mean_of_the_losses_of_the_members():
    network = make().double()
    x = torch.randn(6, 4, dtype=torch.float64)
    closed = torch.zeros(6, len(TREE), dtype=torch.bool)
    closed[0, TREE.names.index("h")] = True
    loss = JointLoss.same_for_all(LOSSES["bce"](TREE), list(network.heads))
    layers, heads = lists(network)
    total = 0.0
    for row, truth in zip(x.tolist(), closed.tolist(), strict=True):
        for number, head in enumerate(heads):
            for logit, y in zip(member_logits(row, layers, head, number), truth, strict=True):
                total += math.log1p(math.exp(-logit if y else logit)) / (3 * 6 * len(TREE))
    found = loss(network(x), closed)
    assert found.item() == pytest.approx(total, abs=1e-12)
    mean = read_output(network(x))  # the loss of the mean is another one
    assert LOSSES["bce"](TREE)(mean, closed).item() < found.item() - 1e-4


def test_the_gradients_by_differences():
    network = make(members=2, width=3).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    names, values = zip(*network.named_parameters(), strict=True)

    def logits(*given):
        outputs = torch.func.functional_call(network, dict(zip(names, given, strict=True)), (x,))
        return tuple(one.logits for one in outputs.values())

    assert torch.autograd.gradcheck(logits, tuple(v.detach().requires_grad_() for v in values))


def test_members_start_apart_by_signs_alone():
    torch.manual_seed(0)
    network = NETWORKS["tabm"](TREE, InputSpec.numbers(50), members=4, width=6, depth=2)
    first, second = network.encoder.layers
    assert set(first.r.unique().tolist()) == {-1.0, 1.0}
    assert len(first.r.unique(dim=0)) == 4
    for value in (first.s, second.r, second.s):
        assert torch.equal(value, torch.ones_like(value))
    for layer in (first, second):
        assert len(layer.bias.unique(dim=0)) == 1
        assert layer.bias.abs().max() <= layer.dense.bound


def test_seeds_are_stacked_and_equal_networks_alone():
    alone = [make(seed) for seed in range(2)]
    together = ensemble_of(alone)
    assert isinstance(together, StackedEnsemble)
    x = torch.randn(6, 4)
    for own in (x, torch.stack([x, x + 1])):  # the same rows, and rows of each
        found = together(own)
        for number, one in enumerate(alone):
            wanted = one(own if own.dim() == 2 else own[number])
            for name, output in wanted.items():
                torch.testing.assert_close(found[name].logits[number], output.logits)
    rows = sparse.random_array((5, 4), density=0.5, format="csr", rng=1, dtype="float32")
    dense = read_output(alone[0](torch.from_numpy(rows.toarray()))).log_p
    torch.testing.assert_close(read_output(alone[0](SparseRows.from_scipy(rows))).log_p, dense)


@pytest.mark.parametrize(("option", "value"), [("members", 0), ("width", 0), ("depth", 0)])
def test_sizes_that_are_refused(option, value):
    with pytest.raises(HierlearnError, match=f"{option} must be an integer of at least 1, not 0"):
        NETWORKS["tabm"](TREE, InputSpec.numbers(4), **{option: value})


@pytest.mark.parametrize("size", [1, 2])
def test_a_recipe_learns_and_its_model_answers_again(size, tmp_path):
    draw = np.random.default_rng(0)
    numbers = draw.integers(0, 5, 200)
    inputs = draw.normal(size=(200, 4)) * 0.3 + np.eye(5, 4)[numbers] * 3
    data = Dataset(inputs, [[CLASSES[one]] for one in numbers], TREE)
    plan = Plan(
        recipe="tabm",
        network_options={"members": 4, "width": 32},
        settings={"epochs": 15, "batch_size": 50, "learning_rate": 0.01, "ensemble_size": size},
    )
    trained = train(data, plan, out=tmp_path / "model")
    p = trained.probabilities(inputs)
    leaves = TREE.leaves.tolist()
    found = [TREE.names[leaves[one]] for one in p[:, leaves].argmax(1).tolist()]
    assert np.mean([a == CLASSES[b] for a, b in zip(found, numbers, strict=True)]) > 0.95
    assert torch.equal(load(tmp_path / "model").probabilities(inputs), p)
