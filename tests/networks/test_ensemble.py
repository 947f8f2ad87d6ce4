"""Ensembles: members are the networks that they are alone, stacked or looped over."""

import copy
import pickle

import pytest
import torch
from scipy import sparse
from torch import nn

from hierlearn import Hierarchy
from hierlearn.links import LINKS
from hierlearn.networks import NETWORKS, InputSpec, LinearHead, Network, SparseRows
from hierlearn.networks.build import NetworkSpec, build_network
from hierlearn.networks.ensemble import (
    LoopedEnsemble,
    Noise,
    StackedEnsemble,
    clip_grad_norm,
    ensemble_of,
    finite_members,
    head_names,
    member_state,
    members_of,
)
from hierlearn.networks.layers import Dense, Dropout

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
# Those that read rows of numbers, by one head; those of several have files of their own.
OTHERS = (
    "cnn",
    "hmcn-f",
    "hmcn-r",
    "hmc-lmlp",
    "early-heads",
    "tsle",
    "trees",
    "kernel",
    "estimator",
)
OF_ROWS = [name for name in NETWORKS if name not in OTHERS]
SEEDS = [3, 11, 5]
CPU = torch.device("cpu")


def foreign(label_space, inputs, *, link="sigmoid", dropout=0.5):
    """A network out of torch's own layers."""
    encoder = nn.Sequential(nn.Linear(inputs.width, 7), nn.Tanh(), nn.Dropout(dropout))
    return Network(encoder, LinearHead(7, label_space, link))


class Logits(nn.Module):
    """A network that returns plain logits."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, len(TREE))

    def forward(self, x):
        return self.layer(x)


def alone(factory, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory(TREE, InputSpec.numbers(6))


FACTORIES = {**{name: NETWORKS[name] for name in OF_ROWS}, "foreign": foreign}
each_factory = pytest.mark.parametrize("name", FACTORIES)


@each_factory
@pytest.mark.parametrize("apart", [False, True], ids=["the same rows", "rows of their own"])
def test_members_are_the_networks_that_they_are_alone(name, apart):
    networks = [alone(FACTORIES[name], seed) for seed in SEEDS]
    ensemble = ensemble_of(copy.deepcopy(networks))
    assert isinstance(ensemble, LoopedEnsemble if name == "foreign" else StackedEnsemble)
    assert members_of(ensemble) == 3
    assert members_of(networks[0]) is None
    x = torch.randn(3, 5, 6) if apart else torch.randn(5, 6)
    for mode in (ensemble.eval(), ensemble.train()):
        noise, seeds = Noise(mode, CPU), [40, 41, 42]
        noise.seed(seeds)
        with torch.random.fork_rng(devices=[]):
            found = mode(x, apart=apart)
        assert found.shape == (3, 5, len(TREE))
        for member, network in enumerate(networks):
            network.train(mode.training)
            own = Noise(network, CPU)
            with torch.random.fork_rng(devices=[]):
                own.seed([seeds[member]])
                expected = network(x[member] if apart else x)
            torch.testing.assert_close(found.member(member).logits, expected.logits)


def test_sparse_rows_of_members_apart():
    matrix = sparse.random_array((9, 6), density=0.4, format="csr", rng=1, dtype="float32")
    rows = SparseRows.from_scipy(matrix)
    index = torch.tensor([[0, 1, 2, 3], [8, 7, 7, 0], [4, 4, 4, 4]])
    for name in FACTORIES:
        if name in ("foreign", "embeddings"):  # which read dense rows
            continue
        networks = [alone(FACTORIES[name], seed).eval() for seed in SEEDS]
        for ensemble in (StackedEnsemble(networks), LoopedEnsemble(networks)):
            found = ensemble.eval()(rows.take(index), apart=True)
            for member, network in enumerate(networks):
                expected = network(rows.take(index[member])).logits
                torch.testing.assert_close(found.logits[member], expected)


@each_factory
def test_gradients_of_members_are_apart_and_clipped_apart(name):
    ensemble = ensemble_of([alone(FACTORIES[name], seed) for seed in SEEDS]).eval()
    x = torch.randn(4, 6)
    scale = torch.tensor([1.0, 0.0, 100.0])[:, None, None]
    (ensemble(x).logits * scale).square().sum().backward()
    norms = []
    for member in range(3):
        gradients = [
            parameter.grad if name == "foreign" else parameter.grad[member]
            for parameter in (
                ensemble.networks[member] if name == "foreign" else ensemble
            ).parameters()
        ]
        norms.append(torch.cat([g.flatten() for g in gradients]).norm())
    assert norms[1] == 0
    clip_grad_norm(ensemble, float(norms[0]) * 2)
    single = alone(FACTORIES[name], SEEDS[2]).eval()
    (single(x).logits * 100).square().sum().backward()
    clip_grad_norm(single, float(norms[0]) * 2)
    parts = ensemble.networks[2].parameters() if name == "foreign" else ensemble.parameters()
    for found, expected in zip(parts, single.parameters(), strict=True):
        own = found.grad if name == "foreign" else found.grad[2]
        torch.testing.assert_close(own, expected.grad)


@each_factory
def test_the_state_of_a_member_is_written_in_place(name):
    ensemble = ensemble_of([alone(FACTORIES[name], seed) for seed in SEEDS])
    state = member_state(ensemble, 1)
    single = alone(FACTORIES[name], SEEDS[1])
    assert sorted(value.shape for value in state.values()) == sorted(
        value.shape for value in single.state_dict().values()
    )
    before = [value.clone() for value in member_state(ensemble, 0).values()]
    for value in state.values():
        value.zero_()
    assert all(not value.any() for value in member_state(ensemble, 1).values())
    for value, old in zip(member_state(ensemble, 0).values(), before, strict=True):
        assert torch.equal(value, old)


def test_networks_of_plain_logits_loop():
    ensemble = ensemble_of([Logits() for _ in range(2)])
    assert isinstance(ensemble, LoopedEnsemble)
    assert ensemble(torch.randn(3, 6)).shape == (2, 3, len(TREE))


def test_several_heads_are_stacked_by_name():
    def make():
        heads = {"one": LinearHead(6, TREE, "sigmoid"), "two": LinearHead(6, TREE, "softmax")}
        return Network(nn.Identity(), heads)

    networks = [make() for _ in range(2)]
    for ensemble in (StackedEnsemble(networks), LoopedEnsemble(networks)):
        outputs = ensemble(torch.randn(3, 6))
        assert {name: one.shape for name, one in outputs.items()} == {
            "one": (2, 3, 4),
            "two": (2, 3, 4),
        }


def test_stacking_leaves_the_networks_as_they_are():
    networks = [alone(NETWORKS["mlp"], seed) for seed in SEEDS]
    shapes = [value.shape for value in networks[0].state_dict().values()]
    ensemble = StackedEnsemble(networks)
    assert [value.shape for value in networks[0].state_dict().values()] == shapes
    assert [value.shape[1:] for value in ensemble.state_dict().values()] == shapes


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_network_with_generators_is_copied_and_pickled(again):
    network = alone(NETWORKS["mlp"], 0)
    Noise(network, CPU)
    twin = again(network)
    x = torch.randn(6, 6)
    assert torch.equal(twin.eval()(x).logits, network.eval()(x).logits)
    assert all(layer.generators is None for layer in twin.modules() if isinstance(layer, Dropout))


def test_weights_by_seed_are_those_of_the_network_alone():
    for name in OF_ROWS:
        spec = NetworkSpec(name, InputSpec.numbers(6), {"link": "max"}, members=3)
        ensemble = build_network(spec, LINKS["max"](TREE).label_space, SEEDS)
        for member, seed in enumerate(SEEDS):
            single = alone(NETWORKS[name], seed)
            state = member_state(ensemble, member).values()
            for value, expected in zip(state, single.state_dict().values(), strict=True):
                assert torch.equal(value, expected)


class Normed(Network):
    """A subclass that computes something else: it must not be stacked unless it says so."""

    def forward(self, x):
        features = self.encoder(x)
        return self.heads["main"](features / features.norm(dim=1, keepdim=True))


class Shifted(nn.Module):
    """A module that is stackable by its own word, but has a buffer."""

    stackable = True

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.ones(6))

    def forward(self, x):
        return x + self.shift


def test_stacking_is_not_inherited_and_buffers_are_looped_over():
    for encoder, kind in ((nn.Identity(), Normed), (Shifted(), Network)):
        networks = [kind(copy.deepcopy(encoder), LinearHead(6, TREE)) for _ in range(2)]
        ensemble = ensemble_of(networks)
        assert isinstance(ensemble, LoopedEnsemble)
        x = torch.randn(2, 5, 6)
        found = ensemble(x, apart=True)
        for member, network in enumerate(networks):
            torch.testing.assert_close(found.logits[member], network(x[member]).logits)


def test_heads_of_other_modules_are_not_ours():
    attention = nn.Linear(3, 3)
    attention.heads = 8
    assert head_names(attention) == []
    assert head_names(alone(NETWORKS["mlp"], 0)) == ["main"]


def test_finite_members_are_told_apart():
    class Scaled(Dense):
        """A layer with one number beside its weights."""

        @classmethod
        def stack(cls, layers):
            new = super().stack(layers)
            new.scale = nn.Parameter(torch.stack([one.scale.detach() for one in layers]))
            return new

    def one(broken):
        made = Scaled(3, 2)
        made.scale = nn.Parameter(torch.tensor(float("inf") if broken == "scale" else 1.0))
        if broken == "weight":
            made.weight.data[1, 1] = float("nan")
        return made

    kinds = ["", "scale", "weight", ""]
    networks = [one(kind) for kind in kinds]
    for network in (StackedEnsemble(networks), LoopedEnsemble(networks)):
        assert finite_members(network).tolist() == [True, False, False, True]
    assert finite_members(networks[1]).tolist() == [False]
