"""Networks with a memory: their heads by name, embeddings of members, specs, and refusals."""

import copy
import pickle

import pytest
import torch
from scipy import sparse
from torch import nn

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import Candidates, LabelSets, Remembered
from hierlearn.networks import NETWORKS, InputSpec, LinearHead, Network, SparseRows
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network, with_heads
from hierlearn.networks.ensemble import (
    LoopedEnsemble,
    StackedEnsemble,
    clip_grad_norm,
    drop_heads,
    ensemble_of,
    head_names,
    is_stackable,
)
from hierlearn.networks.heads import HEADS, head_options, make_head, neighbor_head
from hierlearn.networks.memories import (
    candidates_of,
    embed,
    embeddings_of,
    memory_heads,
    remembered,
    set_memory,
)
from networks.hidden import HIDDEN

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
SPACE = LabelSpace(TREE)
HEADS_BOTH = {
    "main": HeadSpec("neighbors", {"size": 4, "candidates": 7, "learn_scale": True}),
    "bce": HeadSpec("linear", {"link": "sigmoid", "reading_link": "max"}),
}


def spec(name="mlp", members=None, heads=HEADS_BOTH):
    options = {} if name == "linear" else {"width": 5, "dropout": 0.0}
    return NetworkSpec(name, InputSpec.numbers(6), options, members, heads)


def build(**options):
    wanted = spec(**options)
    return build_network(wanted, SPACE, [3 + number for number in range(wanted.members or 1)])


def rows(count=8):
    labels = Labels([[number % 4] for number in range(count)], TREE, numbers=True)
    return Remembered(LabelSets.from_labels(labels), [str(number) for number in range(count)])


def alone(members=2):
    return [build_network(spec(), SPACE, [3 + number]) for number in range(members)]


def test_a_spec_is_stored_as_plain_values():
    wanted = spec(members=2)
    assert NetworkSpec.from_dict(wanted.to_dict()) == wanted
    assert NetworkSpec.from_dict(spec(heads={}).to_dict()) == spec(heads={})
    assert not wanted.takes_link
    assert spec(heads={}).takes_link


def test_heads_by_name():
    network = build()
    assert head_names(network) == ["main", "bce"]
    assert list(memory_heads(network)) == ["main"]
    assert candidates_of(network) == 7
    plain = NETWORKS["mlp"](SPACE, InputSpec.numbers(6))
    assert memory_heads(plain) == {}
    assert candidates_of(plain) is None
    assert remembered(plain) is None
    assert memory_heads(nn.Linear(3, 2)) == {}


@pytest.mark.parametrize("name", HIDDEN)
def test_members_stacked_looped_and_alone(name):
    parts = [build_network(spec(name), SPACE, [3 + n]).eval() for n in range(2)]
    stacked, looped = ensemble_of(copy.deepcopy(parts)), LoopedEnsemble(copy.deepcopy(parts))
    assert isinstance(stacked, StackedEnsemble)
    x, queries = torch.randn(8, 6), torch.randn(3, 6)
    matrix = sparse.csr_array(queries.numpy())
    for ensemble in (stacked.eval(), looped.eval()):
        found = embed(ensemble, x)["main"]
        assert found.shape == (2, 8, 4)
        set_memory(ensemble, {"main": found}, rows())
        assert torch.equal(embeddings_of(ensemble)["main"], found)
        assert len(remembered(ensemble)) == 8
        answers = ensemble(queries)
        sparse_answers = ensemble(SparseRows.from_scipy(matrix))
        for member, one in enumerate(parts):
            torch.testing.assert_close(found[member], one.embed(x)["main"])
            set_memory(one, one.embed(x), rows())
            for head, expected in one(queries).items():
                for kind in (answers, sparse_answers):
                    torch.testing.assert_close(kind[head].log_p[member], expected.log_p)
        for head in memory_heads(ensemble)["main"]:
            head.memory.clear()
        assert remembered(ensemble) is None


@pytest.mark.parametrize("kind", [StackedEnsemble, LoopedEnsemble])
def test_candidates_of_members_and_gradients_clipped_apart(kind):
    parts = alone()
    ensemble = kind(copy.deepcopy(parts))
    x = torch.randn(2, 11, 6)
    targets = TREE.encode([[n % 4] for n in range(8)], numbers=True).expand(2, -1, -1)
    excluded = torch.rand(2, 3, 8) < 0.3
    candidates = Candidates(targets, excluded)
    outputs = ensemble(x, candidates, apart=True)
    scale = torch.tensor([1.0, 50.0])[:, None, None]
    sum((one.log_p * scale).sum() for one in outputs.values()).backward()
    clip_grad_norm(ensemble, 0.5)
    for member, one in enumerate(parts):
        own = one(x[member], candidates.member(member))
        for name, output in own.items():
            torch.testing.assert_close(outputs[name].log_p[member], output.log_p)
        sum((output.log_p * scale[member]).sum() for output in own.values()).backward()
        clip_grad_norm(one, 0.5)
        part = ensemble.networks[member] if kind is LoopedEnsemble else ensemble.network
        for found, parameter in zip(part.parameters(), one.parameters(), strict=True):
            mine = found.grad if kind is LoopedEnsemble else found.grad[member]
            torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-6)


def test_stacking_keeps_what_members_remember():
    parts = alone()
    for one in parts:
        set_memory(one, one.embed(torch.randn(8, 6)), rows())
    both = StackedEnsemble(parts)
    for member, one in enumerate(parts):
        assert torch.equal(embeddings_of(both)["main"][member], embeddings_of(one)["main"])


def test_a_projection_of_torch_is_looped_over():
    from hierlearn.memory import NeighborHead

    one = Network(nn.Identity(), NeighborHead(SPACE, nn.Linear(6, 3)))
    assert not is_stackable(one)
    assert isinstance(ensemble_of([one, copy.deepcopy(one)]), LoopedEnsemble)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
@pytest.mark.parametrize("members", [None, 2])
def test_copies_remember(again, members):
    network = build(members=members).eval()
    set_memory(network, embed(network, torch.randn(8, 6)), rows())
    twin, x = again(network), torch.randn(3, 6)
    for name, output in network(x).items():
        assert torch.equal(twin(x)[name].log_p, output.log_p)
    assert not any("memory" in name for name in network.state_dict())


def test_dropped_heads_are_gone():
    for network in (build(), build(members=2), LoopedEnsemble(alone())):
        set_memory(network, embed(network, torch.randn(8, 6)), rows())
        drop_heads(network, ["bce"])
        assert head_names(network) == ["main"]
        assert not any("bce" in name for name in network.state_dict())
        assert network.eval()(torch.randn(3, 6)).log_p.shape[-2:] == (3, 4)


def test_only_a_distance_that_sees_it_has_a_bias():
    for distance, names in (
        ("squared", ["linear.weight"]),
        ("euclidean", ["linear.weight"]),
        ("cosine", ["linear.weight", "linear.bias"]),
    ):
        head = neighbor_head(5, SPACE, size=3, distance=distance)
        assert [name for name, _ in head.projection.named_parameters()] == names
        assert list(head.projection.state_dict()) == names
        both = StackedEnsemble([Network(nn.Identity(), copy.deepcopy(head)) for _ in range(2)])
        assert len(list(both.parameters())) == len(names)


# ---------------------------------------------------------------------- what is refused


def test_options_of_heads():
    assert head_options("linear") == ["link", "reading_link"]
    assert head_options("neighbors")[:3] == ["size", "metric", "distance"]
    assert set(HEADS) == {"linear", "sparse-linear", "neighbors", "clems", "devise"}
    with pytest.raises(HierlearnError, match="unknown head 'neighbours'; did you mean 'neighbors'"):
        head_options("neighbours")
    with pytest.raises(HierlearnError, match="unknown option of head neighbors 'k'"):
        make_head("neighbors", 5, SPACE, k=3)
    with pytest.raises(HierlearnError, match="size must be an integer of at least 1, not 0"):
        make_head("neighbors", 5, SPACE, size=0)


def test_other_heads_need_features():
    with pytest.raises(HierlearnError, match=r"need a Network with a LinearHead.*not Linear"):
        with_heads(nn.Linear(3, 2), HEADS_BOTH, SPACE)
    made = with_heads(Network(nn.Identity(), LinearHead(5, SPACE)), HEADS_BOTH, SPACE)
    assert head_names(made) == ["main", "bce"]
