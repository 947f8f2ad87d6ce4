"""Maxima and sums along the hierarchy: oracle, gradients, types, shapes and compilation."""

import copy
import pickle
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.propagate import routes_on
from reference import hierarchy as reference
from strategies import taxonomies, trees
from tolerances import FLOAT64

WAYS = ("max_up", "sum_up", "max_down", "sum_down")
MAXIMA = ("max_up", "max_down")

SHAPES = {
    "single": [(None, "a")],
    "flat": [(None, "a"), (None, "b"), (None, "c")],
    "chain": [("a", "b"), ("b", "c"), ("c", "d")],
    "ragged": [("a", "b"), ("a", "c"), ("c", "d"), ("c", "e"), (None, "f"), ("g", "h")],
    "diamond": [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")],
    # An edge that skips a level, and two paths of different length to one class.
    "skip": [("a", "b"), ("b", "c"), ("a", "c"), ("x", "c"), ("a", "d"), ("x", "d")],
}


@pytest.fixture(params=SHAPES)
def h(request):
    return Hierarchy.from_edges(SHAPES[request.param])


def parent_lists(h):
    return [list(h.parents(c)) for c in range(len(h))]


def expected(way, h, x):
    """Return the reference's answer row by row, in the type of x."""
    rows = x.reshape(-1, len(h)).tolist()
    found = [getattr(reference, way)(parent_lists(h), row) for row in rows]
    return torch.tensor(found, dtype=x.dtype).reshape(x.shape)


def tie_free(h, rows, seed=0):
    """Float64 values at least 0.1 apart, in random order."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randperm(rows * len(h), generator=generator).reshape(rows, len(h))
    return (values - rows * len(h) / 2).double() * 0.1


@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
def test_equals_the_naive_loops(way, data):
    taxonomy = data.draw(taxonomies())
    h, _ = taxonomy.build()
    numbers = st.integers(-50, 50)
    row = st.lists(numbers, min_size=len(h), max_size=len(h))
    x = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=3)), dtype=torch.float64)
    parents = taxonomy.in_class_order()
    naive = torch.tensor([getattr(reference, way)(parents, one) for one in x.tolist()])
    before = x.clone()
    assert torch.equal(getattr(h, way)(x), naive.double())  # integers: sums are exact too
    assert torch.equal(x, before)


@given(taxonomies(), st.integers(0, 10_000))
def test_maxima_are_idempotent_and_coherent(taxonomy, seed):
    h, _ = taxonomy.build()
    x = torch.randn(2, len(h), generator=torch.Generator().manual_seed(seed))
    above, below = h.max_up(x), h.max_down(x)
    assert torch.equal(h.max_up(above), above)
    assert torch.equal(h.max_down(below), below)
    for c in range(len(h)):
        for p in h.parents(c):
            assert (above[:, p] >= above[:, c]).all()
            assert (below[:, p] <= below[:, c]).all()
    tops = [c for c in range(len(h)) if not h.parents(c)]
    assert torch.equal(above[:, tops].amax(-1), x.amax(-1))
    assert torch.equal(above[:, h.leaves.tolist()], x[:, h.leaves.tolist()])
    assert torch.equal(below[:, tops], x[:, tops])


@given(taxonomies(), st.integers(0, 10_000))
def test_up_and_down_are_adjoint(taxonomy, seed):
    h, _ = taxonomy.build()
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randint(-9, 10, (2, len(h)), generator=generator)
    assert (h.sum_up(x) * y).sum() == (x * h.sum_down(y)).sum()
    assert torch.equal(h.sum_down(torch.ones_like(x)), torch.tensor(closure_sizes(h)))


def closure_sizes(h):
    return [len(h.ancestors(c)) + 1 for c in range(len(h))]


@given(trees(), st.integers(0, 10_000))
def test_the_mass_of_children_sums_to_their_parents(taxonomy, seed):
    h, _ = taxonomy.build()
    leaves = torch.tensor(h.leaves.tolist())
    mass = torch.zeros(3, len(h), dtype=torch.float64)
    draw = torch.randn(3, len(leaves), generator=torch.Generator().manual_seed(seed)).double()
    mass[:, leaves] = draw.softmax(-1)
    total = h.sum_up(mass)
    for c in range(len(h)):
        if h.children(c):
            FLOAT64.assert_close(total[:, list(h.children(c))].sum(-1), total[:, c])
    tops = [c for c in range(len(h)) if not h.parents(c)]
    FLOAT64.assert_close(total[:, tops].sum(-1), torch.ones(3, dtype=torch.float64))


def test_a_leaf_below_two_classes_counts_once(diamond):
    mass = torch.tensor([0.0, 0.0, 0.0, 1.0])
    assert diamond.sum_up(mass).tolist() == [1, 1, 1, 1]
    assert diamond.sum_down(torch.tensor([1.0, 0, 0, 0])).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("way", WAYS)
def test_gradients(h, way):
    x = tie_free(h, 2).requires_grad_()
    assert torch.autograd.gradcheck(getattr(h, way), (x,))
    assert torch.autograd.gradgradcheck(getattr(h, way), (x,))


@pytest.mark.parametrize("way", MAXIMA)
def test_the_own_value_keeps_the_gradient_at_a_tie(h, way):
    x = torch.zeros(2, len(h), dtype=torch.float64, requires_grad=True)
    getattr(h, way)(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_two_children_that_tie_share_the_gradient():
    h = Hierarchy.from_edges([("a", "b"), ("a", "c")])
    x = torch.tensor([0.0, 1.0, 1.0], requires_grad=True)
    h.max_up(x)[0].backward()
    assert x.grad.tolist() == [0.0, 0.5, 0.5]


def test_an_upstream_gradient_reaches_its_maximum(small_tree):
    x = torch.tensor([0.0, 0, 0, 0, 0, 5, 9], requires_grad=True)
    weights = torch.tensor([2.0, 3, 5, 7, 11, 13, 17])
    small_tree.max_up(x).backward(weights)
    assert x.grad.tolist() == [0, 3 + 0, 5, 0, 11, 13, 17 + 7 + 2]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integers(h, way, dtype):
    x = torch.arange(2 * len(h)).reshape(2, len(h)).flip(0, 1)
    for values in (x, x if dtype == torch.uint8 else -x - 1):
        found = getattr(h, way)(values.to(dtype))
        assert found.dtype == dtype
        assert torch.equal(found, expected(way, h, values.to(dtype)))


@pytest.mark.parametrize("way", MAXIMA)
def test_bool_maxima_are_any(h, way):
    for c in range(len(h)):
        x = torch.zeros(len(h), dtype=torch.bool)
        x[c] = True
        reached = h.descendants(c) if way == "max_down" else h.ancestors(c)
        found = getattr(h, way)(x)
        assert found.dtype == torch.bool
        assert found.nonzero().flatten().tolist() == sorted([c, *reached])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats(h, way, dtype):
    x = (tie_free(h, 3) * 10).round().to(dtype)  # small integers: exact in every type
    found = getattr(h, way)(x)
    assert found.dtype == dtype
    assert torch.equal(found, expected(way, h, x))
    x = x.clone().requires_grad_()
    getattr(h, way)(x).sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("way", MAXIMA)
def test_infinities_and_large_logits(h, way):
    for value in (float("inf"), -float("inf"), 1e4, -1e4):
        x = torch.full((2, len(h)), value)
        x[0, -1] = 0.0
        assert torch.equal(getattr(h, way)(x), expected(way, h, x))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (0,), (3, 0), (2, 1, 2)])
def test_leading_dimensions(h, way, lead):
    x = torch.randint(-9, 9, (*lead, len(h)), generator=torch.Generator().manual_seed(1)).double()
    found = getattr(h, way)(x)
    assert found.shape == x.shape
    assert torch.equal(found, expected(way, h, x) if x.numel() else x)


@pytest.mark.parametrize("way", WAYS)
def test_layout_of_the_input_does_not_matter(h, way):
    x = tie_free(h, 4)
    transposed = x.t().contiguous().t()
    assert transposed.is_contiguous() is (len(h) == 1)
    assert torch.equal(getattr(h, way)(transposed), getattr(h, way)(x))
    assert torch.equal(
        torch.cat([getattr(h, way)(x[:1]), getattr(h, way)(x[1:])]), getattr(h, way)(x)
    )


@pytest.mark.parametrize("way", WAYS)
def test_autocast_and_vmap(h, way):
    x = tie_free(h, 3).float().round()  # integers: sums are exact too
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = getattr(h, way)(x)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected(way, h, x))
    assert torch.equal(torch.func.vmap(getattr(h, way))(x), found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("backend", "shape", "warm"),
    [
        ("eager", "ragged", False),
        ("eager", "skip", False),
        ("eager", "skip", True),
        ("aot_eager", "flat", False),
        ("aot_eager", "skip", False),
    ],
)
def test_compile_in_one_graph(way, backend, shape, warm):
    h = Hierarchy.from_edges(SHAPES[shape])
    x = tie_free(h, 3)
    if warm:
        routes_on(h, x.device)
    torch._dynamo.reset()
    compiled = torch.compile(getattr(h, way), fullgraph=True, backend=backend)
    left, right = x.clone().requires_grad_(), x.clone().requires_grad_()
    one, other = compiled(left), getattr(h, way)(right)
    assert torch.equal(one, other)
    (one * x).sum().backward()
    (other * x).sum().backward()
    assert torch.equal(left.grad, right.grad)
    assert torch.equal(getattr(h, way)(x), other)  # tracing has left nothing behind


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_first_use_without_gradients_does_not_break_training(mode, small_tree):
    with mode():
        small_tree.max_up(torch.zeros(2, len(small_tree)))
    x = torch.randn(2, len(small_tree), requires_grad=True)
    small_tree.sum_up(small_tree.max_up(x)).sum().backward()
    assert x.grad.shape == x.shape


def test_routes_are_made_once(small_tree):
    device = torch.device("cpu")
    assert routes_on(small_tree, device) is routes_on(small_tree, device)


def test_after_pickle_and_deepcopy(h):
    x = tie_free(h, 2)
    for twin in (pickle.loads(pickle.dumps(h)), copy.deepcopy(h)):
        for way in WAYS:
            assert torch.equal(getattr(twin, way)(x), getattr(h, way)(x))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(), (6,), (2, 8), (7, 1), (2, 0)])
def test_wrong_shapes(small_tree, way, shape):
    message = f"values {shape} must have a last dimension of 7 classes"
    with pytest.raises(HierlearnError, match=re.escape(message)):
        getattr(small_tree, way)(torch.zeros(shape))


@settings(max_examples=20)
@given(taxonomies(), st.integers(0, 1000))
def test_gradient_of_the_sum_is_the_opposite_sum(taxonomy, seed):
    h, _ = taxonomy.build()
    weights = torch.randint(
        -5, 6, (len(h),), generator=torch.Generator().manual_seed(seed)
    ).double()
    for way, back in (("sum_up", h.sum_down), ("sum_down", h.sum_up)):
        x = torch.zeros(len(h), dtype=torch.float64, requires_grad=True)
        getattr(h, way)(x).backward(weights)
        assert torch.equal(x.grad, back(weights))
