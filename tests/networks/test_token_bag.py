"""TokenBag is an MLP on the dense matrix, computed for the words that occur only."""

import pytest
import torch
from scipy import sparse

from hierlearn.networks import MLP, SparseRows, TokenBag

MATRIX = sparse.random_array((9, 12), density=0.3, format="csr", rng=1, dtype="float32")
ROWS = SparseRows.from_scipy(MATRIX)
DENSE = torch.from_numpy(MATRIX.toarray())


def twin_of(bag, depth, members):
    """Return an MLP with the weights of a bag of tokens."""
    mlp = MLP(12, 4, width=5, depth=depth, members=members)
    source = [value for _, value in sorted(bag.state_dict().items(), key=order)]
    with torch.no_grad():
        for parameter, value in zip(mlp.parameters(), source, strict=True):
            parameter.copy_(value)
    return mlp


def order(item):
    layer, _, kind = item[0].rpartition(".")
    place = {"words": 0, "head": 99}.get(layer) or int(layer.partition(".")[2] or 0)
    return place, kind != "weight"


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("members", [None, 2])
def test_it_equals_an_mlp_on_the_dense_matrix(depth, members):
    bag = TokenBag(12, 4, width=5, depth=depth, members=members).eval()
    mlp = twin_of(bag, depth, members).eval()
    torch.testing.assert_close(bag(ROWS), mlp(DENSE))
    torch.testing.assert_close(bag(DENSE), mlp(DENSE))


def test_gradients_equal_those_of_the_mlp():
    bag = TokenBag(12, 4, width=5, dropout=0.0)
    mlp = twin_of(bag, 1, None)
    mlp.hidden[2].share = 0.0
    bag(ROWS).square().sum().backward()
    mlp(DENSE).square().sum().backward()
    torch.testing.assert_close(bag.words.weight.grad, mlp.hidden[0].weight.grad)
    torch.testing.assert_close(bag.head.weight.grad, mlp.head.weight.grad)


def test_stacked_members_equal_single_ones_on_rows_of_their_own():
    index = torch.tensor([[0, 1, 2, 3], [8, 7, 7, 0]])
    stacked = TokenBag(12, 4, width=5, members=2).eval()
    found = stacked(ROWS.take(index))
    for member in range(2):
        alone = TokenBag(12, 4, width=5).eval()
        alone.load_state_dict({k: v[member] for k, v in stacked.state_dict().items()})
        torch.testing.assert_close(found[member], alone(ROWS.take(index[member])))


def test_words_are_drawn_so_that_a_text_is_of_order_1():
    rows = ROWS.dense() / ROWS.dense().norm(dim=1, keepdim=True).clamp_min(1e-6)
    bag = TokenBag(12, 4, width=400)
    spread = float(bag.words(rows).detach().std())
    assert 0.3 < spread < 1.5


def test_bf16_runs():
    bag = TokenBag(12, 4, width=5)
    with torch.autocast("cpu", torch.bfloat16):
        logits = bag(ROWS)
    assert logits.dtype == torch.bfloat16
    logits.float().sum().backward()
    assert bag.words.weight.grad.isfinite().all()
