"""Layers that hold one model or several: draws, dropout, and the sums of torch's own layers."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from hierlearn.errors import HierlearnError
from hierlearn.networks import MLP, NETWORKS, Linear
from hierlearn.networks.network import Dense, Dropout

SEEDS = [3, 11, 5]


def generators(seeds=SEEDS):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def linear_of(layer, member=None):
    """Return torch's linear layer with the weights of ours."""
    weight = layer.weight if member is None else layer.weight[member]
    bias = layer.bias if member is None else layer.bias[member]
    found = nn.Linear(*weight.shape)
    with torch.no_grad():
        found.weight.copy_(weight.T)
        found.bias.copy_(bias)
    return found


def test_a_dense_layer_is_torchs_linear_layer():
    layer, x = Dense(4, 3), torch.randn(5, 4)
    torch.testing.assert_close(layer(x), linear_of(layer)(x))


@pytest.mark.parametrize("shared", [True, False], ids=["the same rows", "rows of their own"])
def test_a_stacked_dense_layer_is_a_linear_layer_a_member(shared):
    layer = Dense(4, 3, members=2)
    x = torch.randn(5, 4) if shared else torch.randn(2, 5, 4)
    found = layer(x)
    assert found.shape == (2, 5, 3)
    for member in range(2):
        rows = x if shared else x[member]
        torch.testing.assert_close(found[member], linear_of(layer, member)(rows))


def test_weights_are_drawn_as_torchs_linear_layer_draws_them():
    layer = Dense(50, 400)
    for values in (layer.weight.detach(), layer.bias.detach()):
        assert values.abs().max() <= 1 / math.sqrt(50)
        assert values.std() == pytest.approx(1 / math.sqrt(3 * 50), rel=0.1)
    assert Dense(50, 4, bound=2.0).weight.abs().max() > 1


def test_fresh_layers_differ_and_follow_torchs_seed():
    first, second = MLP(8, 8, width=8, depth=2), MLP(8, 8, width=8, depth=2)
    assert not torch.equal(first.hidden[0].weight, first.hidden[3].weight)
    assert not torch.equal(first.head.weight, second.head.weight)
    torch.manual_seed(4)
    one = Linear(3, 2)
    torch.manual_seed(4)
    assert torch.equal(Linear(3, 2).head.weight, one.head.weight)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_member_draws_what_it_draws_alone(name):
    stacked = NETWORKS[name](6, 4, members=3)
    stacked.draw_weights(generators())
    for member, seed in enumerate(SEEDS):
        alone = NETWORKS[name](6, 4)
        alone.draw_weights(generators([seed]))
        for key, value in alone.state_dict().items():
            assert torch.equal(stacked.state_dict()[key][member], value)


def test_a_generator_for_every_member():
    with pytest.raises(ValueError, match="zip"):
        Linear(3, 2, members=2).draw_weights(generators([1]))


def test_dropout_zeroes_a_share_and_keeps_the_mean():
    layer, x = Dropout(0.25), torch.ones(1000, 40)
    layer.generators = generators([0])
    dropped = layer(x)
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (dropped == 0).float().mean() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize("share", [1e-7, 0.1, 0.3, 0.9, 0.999])
def test_drawn_dropout_drops_its_share_evenly_and_keeps_the_mean(share):
    layer, x = Dropout(share), torch.ones(2, 501, 803)  # no multiple of four
    layer.generators = [torch.Generator().manual_seed(k) for k in range(2)]
    noisy = layer(x)
    count = x[0].numel()
    for one in noisy:
        spread = (share * (1 - share) / count) ** 0.5
        assert abs(float((one == 0).double().mean()) - share) < 5 * spread + 1 / 65_536
        assert float(one.double().mean()) == pytest.approx(1, abs=5 * spread / (1 - share) + 1e-4)
        dropped = (one == 0).flatten()
        for lane in range(4):  # the four entries that share a draw are all alike, and independent
            found = float(dropped[lane::4].double().mean())
            assert abs(found - share) < 10 * spread + 1 / 65_536
        pairs = float((dropped[0:-3:4] & dropped[1:-2:4]).double().mean())
        assert abs(pairs - share**2) < 10 * spread + 1e-4
    assert share < 0.01 or not torch.equal(noisy[0], noisy[1])


def test_an_extreme_share_still_keeps_something_finite():
    layer = Dropout(1 - 1e-9)
    layer.generators = [torch.Generator().manual_seed(0)]
    assert layer(torch.ones(300, 300)).isfinite().all()


def test_dropout_without_generators_draws_from_torch():
    layer, x = Dropout(0.5), torch.ones(20, 20)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(first, nn.functional.dropout(x, 0.5))


def test_a_member_drops_what_it_drops_alone():
    x = torch.randn(3, 7, 5)
    stacked = Dropout(0.5)
    stacked.generators = generators()
    found = stacked(x)
    for member, seed in enumerate(SEEDS):
        alone = Dropout(0.5)
        alone.generators = generators([seed])
        assert torch.equal(found[member], alone(x[member]))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_network_with_generators_is_copied_and_pickled(again):
    network = MLP(4, 3, width=5)
    network.draw_noise_from(generators([0]))
    twin = again(network)
    x = torch.randn(6, 4)
    assert torch.equal(twin.eval()(x), network.eval()(x))
    assert twin.options == network.options
    assert all(layer.generators is None for layer in twin.modules() if isinstance(layer, Dropout))


@pytest.mark.parametrize("members", [None, 2])
def test_the_bias_can_be_set(members):
    network = Linear(3, 4, members=members)
    bias = torch.tensor([0.1, -0.2, 0.3, 0.4], dtype=torch.float64)
    network.set_bias(bias)
    logits = network(torch.zeros(1, 3))
    torch.testing.assert_close(logits, bias.float().expand_as(logits))


def test_what_a_network_was_made_with_makes_it_again():
    for name, kind in NETWORKS.items():
        network = kind(5, 3, members=2)
        twin = NETWORKS[name](**network.options)
        twin.load_state_dict(network.state_dict())
        x = torch.randn(4, 5)
        assert torch.equal(twin.eval()(x), network.eval()(x))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 3, None), "inputs must be at least 1, not 0"),
        ((3, 0, None), "outputs must be at least 1, not 0"),
        ((3, 3, 0), "members must be at least 1, not 0"),
    ],
)
def test_sizes_are_at_least_1(name, sizes, message):
    with pytest.raises(HierlearnError, match=message):
        NETWORKS[name](*sizes[:2], members=sizes[2])


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_dropout_below_1(share):
    with pytest.raises(HierlearnError, match=r"dropout must lie in \[0, 1\), not"):
        MLP(3, 2, dropout=share)


def test_layers_show_their_shapes():
    text = repr(MLP(3, 2, width=4, members=5))
    assert "5 x 3 x 4" in text
    assert "Dropout(0.25)" in text
