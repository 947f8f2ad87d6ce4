"""MLP and Linear against hand-written stacks of torch's layers."""

import pytest
import torch
from scipy import sparse
from torch import nn

from hierlearn.errors import HierlearnError
from hierlearn.networks import MLP, Linear, SparseRows, TokenBag


def by_hand(network, member=None):
    """Return the same network out of torch's own layers, without dropout."""
    layers = []
    for layer in (*network.hidden, network.head):
        if hasattr(layer, "weight"):
            weight, bias = (
                value if member is None else value[member] for value in (layer.weight, layer.bias)
            )
            copied = nn.Linear(*weight.shape)
            copied.weight.data, copied.bias.data = weight.data.T.clone(), bias.data.clone()
            layers.append(copied)
        elif isinstance(layer, nn.ReLU):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("members", [None, 2])
def test_an_mlp_is_linear_layers_with_relu_between(depth, members):
    network = MLP(5, 4, width=6, depth=depth, members=members).eval()
    x = torch.randn(7, 5)
    logits = network(x)
    if members is None:
        torch.testing.assert_close(logits, by_hand(network)(x))
        return
    for member in range(members):
        torch.testing.assert_close(logits[member], by_hand(network, member)(x))


def test_the_papers_network_by_default():
    network = MLP(200, 46)
    assert [tuple(p.shape) for p in network.parameters()] == [(200, 800), (800,), (800, 46), (46,)]
    assert network.options["dropout"] == 0.25
    assert len(network.hidden) == 3  # a layer, ReLU, dropout


def test_inputs_are_dropped_only_where_asked_for():
    x = torch.ones(50, 8)
    network = MLP(8, 3, width=4, dropout=0.0)
    assert torch.equal(network(x), network.eval()(x))
    network = MLP(8, 3, width=4, dropout=0.0, input_dropout=0.5)
    assert not torch.equal(network(x), network.eval()(x))


def test_gradients_of_members_are_apart():
    network = MLP(4, 3, width=5, dropout=0.0, members=2)
    network(torch.randn(6, 4))[0].sum().backward()
    for parameter in network.parameters():
        assert parameter.grad[0].abs().sum() > 0
        assert parameter.grad[1].abs().sum() == 0


@pytest.mark.parametrize("members", [None, 3])
def test_linear_is_one_layer_for_dense_and_sparse_rows(members):
    network = Linear(6, 4, members=members)
    matrix = sparse.random_array((8, 6), density=0.4, format="csr", rng=0, dtype="float32")
    dense = torch.from_numpy(matrix.toarray())
    expected = dense @ network.head.weight + network.head.bias.unsqueeze(-2)
    torch.testing.assert_close(network(dense), expected)
    torch.testing.assert_close(network(SparseRows.from_scipy(matrix)), expected)
    assert [name for name, _ in network.named_parameters()] == ["head.weight", "head.bias"]


def test_an_mlp_takes_sparse_rows_as_dense_ones():
    matrix = sparse.random_array((8, 6), density=0.4, format="csr", rng=0, dtype="float32")
    network = MLP(6, 4, width=5).eval()
    expected = network(torch.from_numpy(matrix.toarray()))
    torch.testing.assert_close(network(SparseRows.from_scipy(matrix)), expected)


@pytest.mark.parametrize("kind", [MLP, TokenBag])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be a whole number from 1, not 0"),
        ({"width": 2.5}, "width must be a whole number from 1, not 2.5"),
        ({"depth": True}, "depth must be a whole number from 1, not True"),
    ],
)
def test_layers_have_units(kind, options, message):
    with pytest.raises(HierlearnError, match=message):
        kind(3, 2, **options)
