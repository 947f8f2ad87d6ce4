"""Layers that hold one network or several: draws, dropout, and the sums of torch's own layers."""

import math

import pytest
import torch
from torch import nn

from hierlearn.errors import HierlearnError
from hierlearn.networks.layers import Dense, Dropout

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
def test_a_stacked_dense_layer_is_one_linear_layer_per_member(shared):
    layers = [Dense(4, 3) for _ in range(2)]
    stacked = Dense.stack(layers)
    x = torch.randn(5, 4) if shared else torch.randn(2, 5, 4)
    found = stacked(x)
    assert found.shape == (2, 5, 3)
    for member in range(2):
        rows = x if shared else x[member]
        torch.testing.assert_close(found[member], linear_of(stacked, member)(rows))
        torch.testing.assert_close(found[member], layers[member](rows))


def test_weights_are_drawn_as_torchs_linear_layer_draws_them():
    layer = Dense(50, 400)
    for values in (layer.weight.detach(), layer.bias.detach()):
        assert values.abs().max() <= 1 / math.sqrt(50)
        assert values.std() == pytest.approx(1 / math.sqrt(3 * 50), rel=0.1)
    assert Dense(50, 4, bound=2.0).weight.abs().max() > 1


def test_fresh_layers_differ_and_follow_torchs_seed():
    assert not torch.equal(Dense(8, 8).weight, Dense(8, 8).weight)
    torch.manual_seed(4)
    one = Dense(3, 2)
    torch.manual_seed(4)
    assert torch.equal(Dense(3, 2).weight, one.weight)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_a_layer_has_inputs_and_outputs(sizes):
    with pytest.raises(HierlearnError, match="has no inputs or no outputs"):
        Dense(*sizes)


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


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_dropout_below_1(share):
    with pytest.raises(HierlearnError, match=r"dropout must lie in \[0, 1\), not"):
        Dropout(share)
