"""logsumexp_up: oracle, torch's own logsumexp, gradients, extremes, types and compilation."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import Hierarchy
from reference import hierarchy as reference
from strategies import taxonomies
from tolerances import FLOAT32, FLOAT64, HALF

SHAPES = {
    "single": [(None, "a")],
    "flat": [(None, "a"), (None, "b"), (None, "c")],
    "ragged": [("a", "b"), ("a", "c"), ("c", "d"), ("c", "e"), (None, "f"), ("g", "h")],
    "skip": [("a", "b"), ("b", "c"), ("a", "c"), ("x", "c"), ("a", "d"), ("x", "d")],
}


@pytest.fixture(params=SHAPES)
def h(request):
    return Hierarchy.from_edges(SHAPES[request.param])


def values(h, *lead, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*lead, len(h), generator=generator, dtype=torch.float64) * 3


def by_torch(h, x):
    """Return torch's logsumexp over the columns of each class and its descendants."""
    columns = [[c, *h.descendants(c)] for c in range(len(h))]
    return torch.stack([x[..., one].logsumexp(-1) for one in columns], dim=-1)


@given(taxonomies(), st.integers(0, 1000))
def test_equals_the_naive_loops(taxonomy, seed):
    h, _ = taxonomy.build()
    x = values(h, 2, seed=seed)
    parents = taxonomy.in_class_order()
    rows = [reference.logsumexp_up(parents, row) for row in x.tolist()]
    FLOAT64.assert_close(h.logsumexp_up(x), torch.tensor(rows, dtype=torch.float64))
    FLOAT64.assert_close(h.logsumexp_up(x), by_torch(h, x))
    FLOAT64.assert_close(h.logsumexp_up(x).exp(), h.sum_up(x.exp()))


def test_gradients(h):
    x = values(h, 2).requires_grad_()
    assert torch.autograd.gradcheck(h.logsumexp_up, (x,))
    twin = x.detach().clone().requires_grad_()
    weights = values(h, 2, seed=1)
    (h.logsumexp_up(x) * weights).sum().backward()
    (by_torch(h, twin) * weights).sum().backward()
    FLOAT64.assert_close(x.grad, twin.grad)


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_large_logits_stay_finite(h, scale):
    x = (values(h, 3) + scale).float().requires_grad_()
    found = h.logsumexp_up(x)
    FLOAT32.assert_close(found, by_torch(h, x))
    found.sum().backward()
    assert x.grad.isfinite().all()


def test_minus_infinity_adds_nothing(small_tree):
    x = torch.full((2, 7), -float("inf"), dtype=torch.float64)
    x[0, 6], x[0, 4] = 1.5, -2.0
    found = small_tree.logsumexp_up(x)
    assert torch.equal(found, by_torch(small_tree, x))
    assert found[0].tolist() == [1.5, -2.0, -torch.inf, 1.5, -2.0, -torch.inf, 1.5]
    assert (found[1] == -torch.inf).all()


def test_a_class_without_mass_of_its_own_passes_gradients(small_tree, diamond):
    for h in (small_tree, diamond):
        leaves = torch.zeros(len(h), dtype=torch.bool)
        leaves[h.leaves.tolist()] = True
        x = values(h, 2).requires_grad_()
        h.logsumexp_up(x.masked_fill(~leaves, -torch.inf))[..., 0].sum().backward()
        assert x.grad.isfinite().all()
        below = [c for c in h.descendants(0) if leaves[c]]
        FLOAT64.assert_close(x.grad[:, below].sum(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_floats(h, dtype):
    x = values(h, 3).to(dtype)
    found = h.logsumexp_up(x)
    assert found.dtype == dtype
    # Each level rounds once, to 8 bits in bfloat16.
    HALF.assert_close(found.double(), by_torch(h, x.double()))


@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (0,), (3, 0)])
def test_leading_dimensions(h, lead):
    x = values(h, *lead)
    assert h.logsumexp_up(x).shape == x.shape
    FLOAT64.assert_close(h.logsumexp_up(x), by_torch(h, x))


@pytest.mark.parametrize(("backend", "shape"), [("eager", "ragged"), ("aot_eager", "skip")])
def test_compile_in_one_graph(backend, shape):
    h = Hierarchy.from_edges(SHAPES[shape])
    torch._dynamo.reset()
    compiled = torch.compile(h.logsumexp_up, fullgraph=True, backend=backend)
    left, right = (values(h, 2).requires_grad_() for _ in range(2))
    compiled(left).square().sum().backward()
    h.logsumexp_up(right).square().sum().backward()
    FLOAT64.assert_close(left.grad, right.grad)


@pytest.mark.parametrize("shape", [(), (6,), (2, 8)])
def test_wrong_shapes(small_tree, shape):
    message = f"values {shape} must have a last dimension of 7 classes"
    with pytest.raises(HierlearnError, match=re.escape(message)):
        small_tree.logsumexp_up(torch.zeros(shape))
