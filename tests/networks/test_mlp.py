"""The registered networks against hand-written stacks of torch's layers."""

import pytest
import torch
from scipy import sparse
from torch import nn

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.networks import NETWORKS, InputSpec, SparseRows

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])  # four classes
MATRIX = sparse.random_array((8, 6), density=0.4, format="csr", rng=0, dtype="float32")
DENSE = torch.from_numpy(MATRIX.toarray())


def make(name, inputs=6, **options):
    return NETWORKS[name](TREE, InputSpec.numbers(inputs), **options)


def by_hand(network):
    """Return the same network out of torch's own layers, without dropout."""
    layers = []
    encoder = network.encoder
    hidden = [*([encoder.words] if hasattr(encoder, "words") else []), *encoder.hidden]
    for layer in (*hidden, network.heads["main"].linear):
        if hasattr(layer, "weight"):
            copied = nn.Linear(*layer.weight.shape)
            copied.weight.data = layer.weight.data.T.clone()
            copied.bias.data = layer.bias.data.clone()
            layers.append(copied)
        elif isinstance(layer, nn.ReLU):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", ["mlp", "token-bag"])
def test_hidden_layers_with_relu_between_for_dense_and_sparse_rows(name, depth):
    network = make(name, width=5, depth=depth).eval()
    expected = by_hand(network)(DENSE)
    torch.testing.assert_close(network(DENSE).logits, expected)
    torch.testing.assert_close(network(SparseRows.from_scipy(MATRIX)).logits, expected)


def test_gradients_of_a_token_bag_are_those_of_the_dense_matrix():
    network = make("token-bag", width=5, dropout=0.0)
    twin = by_hand(network)
    network(SparseRows.from_scipy(MATRIX)).logits.square().sum().backward()
    twin(DENSE).square().sum().backward()
    torch.testing.assert_close(network.encoder.words.weight.grad, twin[0].weight.grad.T)


def test_the_papers_network_by_default():
    network = NETWORKS["mlp"](TREE, InputSpec.numbers(200))
    assert [tuple(p.shape) for p in network.parameters()] == [(200, 800), (800,), (800, 4), (4,)]
    assert len(network.encoder.hidden) == 3  # a layer, ReLU, dropout
    assert network.encoder.hidden[2].p == 0.25


def test_inputs_are_dropped_only_where_asked_for():
    x = torch.ones(50, 6)
    network = make("mlp", width=4, dropout=0.0)
    assert torch.equal(network(x).logits, network.eval()(x).logits)
    network = make("mlp", width=4, dropout=0.0, input_dropout=0.5)
    assert not torch.equal(network(x).logits, network.eval()(x).logits)


def test_linear_is_one_layer_for_dense_and_sparse_rows():
    network = make("linear")
    layer = network.heads["main"].linear
    expected = DENSE @ layer.weight + layer.bias
    torch.testing.assert_close(network(DENSE).logits, expected)
    torch.testing.assert_close(network(SparseRows.from_scipy(MATRIX)).logits, expected)


def test_words_are_drawn_so_that_a_text_is_of_order_1():
    rows = DENSE / DENSE.norm(dim=1, keepdim=True).clamp_min(1e-6)
    spread = float(make("token-bag", width=400).encoder.words(rows).detach().std())
    assert 0.3 < spread < 1.5


def test_bf16_runs():
    network = make("token-bag", width=5)
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(SparseRows.from_scipy(MATRIX)).logits
    assert logits.dtype == torch.bfloat16
    logits.float().sum().backward()
    assert network.encoder.words.weight.grad.isfinite().all()


@pytest.mark.parametrize("name", ["mlp", "token-bag"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be an integer of at least 1, not 0"),
        ({"width": 2.5}, "width must be an integer of at least 1, not 2.5"),
        ({"depth": True}, "depth must be an integer of at least 1, not True"),
        ({"depth": 10**9}, "depth must be at most 1,000 layers, not 1,000,000,000"),
        ({"width": 60_000, "depth": 999}, "999 layers of width 60,000 takes 14,371 GB, but this"),
        ({"link": "softmx"}, "unknown link 'softmx'; did you mean 'softmax'"),
    ],
)
def test_what_is_refused(name, options, message):
    with pytest.raises(HierlearnError, match=message):
        make(name, **options)
