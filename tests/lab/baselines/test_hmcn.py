"""HMCN against loops, its norm against torch's, stacked members, and a training from end to end."""

import copy

import numpy as np
import pytest
import torch
from scipy import sparse

from hierlearn import Dataset, Hierarchy, LabelSpace, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.hmcn import BatchNorm
from hierlearn.networks import NETWORKS, InputSpec, SparseRows, read_output
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network
from hierlearn.networks.ensemble import StackedEnsemble, ensemble_of
from reference.hmcn import hmcn_f
from reference.links import sigmoid

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d")])
each_network = pytest.mark.parametrize("name", ["hmcn-f", "hmcn-r"])


def make(name, hierarchy=TREE, seed=0, **options):
    torch.manual_seed(seed)
    return NETWORKS[name](hierarchy, InputSpec.numbers(4), width=3, **options)


def pair(layer):
    return layer.weight.tolist(), layer.bias.tolist()


def test_the_feedforward_network_by_loops():
    network = make("hmcn-f").double().eval()
    for layer in network.encoder.layers:  # as after a training
        for value in layer[1].state_dict().values():
            value.add_(torch.rand_like(value))
    x = torch.randn(5, 4, dtype=torch.float64)
    layers = [
        (pair(one[0]), (*pair(one[1]), one[1].mean.tolist(), one[1].variance.tolist()))
        for one in network.encoder.layers
    ]
    heads = network.heads
    hidden, outputs = (list(map(pair, part)) for part in (heads.local.hidden, heads.local.outputs))
    answers = read_output(network(x)).probabilities
    for row, found in zip(x.tolist(), answers.tolist(), strict=True):
        local, everywhere = hmcn_f(row, layers, hidden, outputs, pair(heads.main.linear))
        wanted = [(sigmoid(a) + sigmoid(b)) / 2 for a, b in zip(local, everywhere, strict=True)]
        assert found == pytest.approx(wanted, abs=1e-12)


def test_the_size_of_the_recurrent_encoder_does_not_grow_with_the_levels():
    deep = Hierarchy.from_paths(["/".join("abcdefgh"[:depth]) for depth in range(1, 9)])
    cells = [make("hmcn-r", one).encoder.cell for one in (TREE, deep)]
    assert len({sum(p.numel() for p in cell.parameters()) for cell in cells}) == 1
    x = torch.randn(6, 4)
    network = make("hmcn-r", dropout=0.0).eval()
    state, cell = None, network.encoder.cell
    for level, found in enumerate(network.encoder(x)):
        state = cell(x, state)
        torch.testing.assert_close(found, network.encoder.norms[level](state[0]))


def test_the_norm_is_that_of_torch_in_training_and_after():
    torch.manual_seed(0)
    ours, theirs = BatchNorm(3), torch.nn.BatchNorm1d(3)
    for _ in range(4):
        x = torch.randn(7, 3) * 2 + 1
        own, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        first, second = ours(own), theirs(other)
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)
        weights = torch.randn_like(x)
        (first * weights).sum().backward()
        (second * weights).sum().backward()
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-5)
    for one in (ours, theirs):
        one.eval()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-6)
    moments = ours.mean.clone()
    ours.train()
    torch.testing.assert_close(ours(x[:1]), theirs(x[:1]), rtol=1e-5, atol=1e-6)
    assert torch.equal(ours.mean, moments)


def test_members_are_stacked_and_equal_networks_alone():
    alone = [make("hmcn-f", seed=seed, dropout=0.0) for seed in range(3)]
    together = ensemble_of(alone)
    assert isinstance(together, StackedEnsemble)
    x = torch.randn(6, 4)
    for _ in range(2):  # in training, then by the running moments
        found = read_output(together(x)).log_p
        for member, one in zip(found, alone, strict=True):
            torch.testing.assert_close(member, read_output(one(x)).log_p)
        for one in (together, *alone):
            one.eval()


@each_network
def test_sparse_rows_gradients_of_members_and_another_head(name):
    networks = [make(name, seed=seed, dropout=0.0).eval() for seed in range(2)]
    together = ensemble_of(copy.deepcopy(networks)).eval()
    rows = sparse.random_array((5, 4), density=0.5, format="csr", rng=1, dtype="float32")
    x = torch.from_numpy(rows.toarray())
    found = read_output(together(SparseRows.from_scipy(rows))).log_p
    torch.testing.assert_close(found, read_output(together(x)).log_p)
    found[1].sum().backward()
    read_output(networks[1](x)).log_p.sum().backward()
    wanted = {key: value.grad for key, value in networks[1].named_parameters()}
    parts = together.networks[1] if name == "hmcn-r" else together.network
    for key, value in parts.named_parameters():
        own = value.grad if name == "hmcn-r" else value.grad[1]
        torch.testing.assert_close(own, wanted[key])
    spec = NetworkSpec(name, InputSpec.numbers(4), heads={"main": HeadSpec("neighbors")})
    with pytest.raises(HierlearnError, match="other heads need a Network with a LinearHead"):
        build_network(spec, LabelSpace.of(TREE))


@each_network
@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
def test_the_priors_are_the_first_answers_of_both_heads(name, hierarchy):
    network = make(name, hierarchy)
    counts = torch.arange(1, len(hierarchy) + 1).double()
    network.set_prior(counts, counts, 20)
    for layer in (network.heads.main.linear, *network.heads.local.outputs):
        layer.weight.data.zero_()
    network.eval()
    for output in network(torch.randn(2, 4)).values():
        wanted = ((counts + 0.5) / 21).expand(2, -1).float()
        torch.testing.assert_close(output.probabilities, wanted)


@each_network
def test_a_recipe_learns_and_its_model_answers_again(name, tmp_path):
    rng = np.random.default_rng(0)
    classes = ["a/b/c", "a/b/d", "a/e", "f/g", "h"]
    numbers = rng.integers(0, 5, 241)  # the last batch has one row
    inputs = rng.normal(size=(241, 4)) * 0.3 + np.eye(5, 4)[numbers] * 3
    data = Dataset(inputs, [[classes[one]] for one in numbers], TREE)
    plan = Plan(
        recipe=name,
        network_options={"width": 32, "dropout": 0.1},
        settings={"epochs": 15, "batch_size": 60, "learning_rate": 0.01},
    )
    trained = train(data, plan, out=tmp_path / "model")
    p = trained.probabilities(inputs)
    leaves = TREE.leaves.tolist()
    found = [TREE.names[leaves[one]] for one in p[:, leaves].argmax(1).tolist()]
    hits = [one == classes[number] for one, number in zip(found, numbers, strict=True)]
    assert np.mean(hits) > 0.95
    assert torch.equal(load(tmp_path / "model").probabilities(inputs), p)
