"""LinearHCLLoss is HCLLoss behind a linear layer, in any chunks."""

import copy
import random

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.losses import HCLLoss, LinearHCLLoss
from losses.random_batches import random_batch, random_hierarchy

CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def problem(seed, *, masked=None, rows=(1, 9)):
    """Return a hierarchy, inputs, closed targets and perhaps a mask, in double precision."""
    batch = random_batch(seed, masked=masked, rows=rows, labels=(1, 2))
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(len(batch.logits), 3, dtype=torch.float64, generator=generator)
    return batch.hierarchy, inputs, batch.targets, batch.mask


def layer_of(hierarchy, seed=0, **options):
    torch.manual_seed(seed)
    return LinearHCLLoss(hierarchy, 3, **options).double()


def step(run, inputs, layer, upstream=2.5):
    """Return the loss and the gradients of inputs, weight and bias."""
    layer.zero_grad()
    x = inputs.clone().requires_grad_()
    value = run(x)
    (upstream * value).backward()
    return [value.detach(), x.grad, *[one.grad.clone() for one in layer.parameters()]]


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_loss_of_the_linear_layer(seed):
    rng = random.Random(seed)
    hierarchy, inputs, targets, mask = problem(seed)
    options = {
        "base": rng.choice(["bce", "bce2", "focal"]),
        "link": rng.choice(["sigmoid", "sigmoid", "conditional"]),
        "scope": rng.choice(["levels", "ancestors", None]),
        "curriculum": rng.choice(["batch", "batch", None]),
        "normalize": rng.choice(["sum", "mean", "losses"]),
        "reduction": rng.choice(["mean", "sum"]),
        "floor": rng.choice([0.0, 0.2]),
    }
    layer = layer_of(
        hierarchy, seed, bias=seed % 3 > 0, chunk=rng.choice([None, 1, 2, 4]), **options
    )
    plain = HCLLoss(hierarchy, **options)
    found = step(lambda x: layer(x, targets, mask), inputs, layer)
    expected = step(lambda x: plain(layer.logits(x), targets, mask), inputs, layer)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    torch.testing.assert_close(layer.loss.last, plain.last, **CLOSE)


def test_gradients_pass_gradcheck():
    hierarchy, inputs, targets, mask = problem(5, masked=True, rows=(4, 4))
    for options in ({"curriculum": None}, {"base": "focal"}, {"scope": "ancestors"}):
        layer = layer_of(hierarchy, chunk=3, **options)
        names = ("weight", "bias")

        def run(x, *values, layer=layer, names=names):
            given = dict(zip(names, values, strict=True))
            return torch.func.functional_call(layer, given, (x, targets, mask))

        tensors = [inputs, *(getattr(layer, name).detach() for name in names)]
        assert torch.autograd.gradcheck(run, [one.clone().requires_grad_() for one in tensors])


def test_a_second_pass_through_a_retained_graph():
    hierarchy, inputs, targets, _ = problem(1, masked=False)
    for options in ({}, {"curriculum": None}):
        layer = layer_of(hierarchy, chunk=2, **options)
        value = layer(inputs, targets)
        value.backward(retain_graph=True)
        once = layer.weight.grad.clone()
        value.backward()
        torch.testing.assert_close(layer.weight.grad, 2 * once, **CLOSE)


def test_what_needs_no_gradient_gets_none():
    hierarchy, inputs, targets, _ = problem(2, masked=False)
    layer = layer_of(hierarchy)
    expected = layer(inputs, targets).detach()
    with torch.no_grad():
        assert layer(inputs, targets) == expected
    layer.weight.requires_grad_(False)
    layer(inputs, targets).backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
    empty = layer(inputs[:0], targets[:0])
    assert empty == 0
    empty.backward()


def test_half_precision_by_autocast():
    hierarchy, inputs, targets, _ = problem(4, masked=False, rows=(8, 8))
    for options in ({"chunk": 3}, {"base": "focal", "chunk": 5}, {"curriculum": None}):
        torch.manual_seed(0)
        layer = LinearHCLLoss(hierarchy, 3, **options)
        x = inputs.float()
        wide = step(lambda x, a=layer: a(x, targets), x, layer)

        def half(x, layer=layer):
            with torch.autocast("cpu", torch.bfloat16):
                return layer(x, targets)

        found = step(half, x, layer)
        assert all(one.dtype == torch.float32 for one in found)
        for one, other in zip(found, wide, strict=True):
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.02)


def test_copies_and_repr():
    hierarchy, inputs, targets, _ = problem(6, masked=False)
    layer = layer_of(hierarchy)
    layer(inputs, targets)
    clone = copy.deepcopy(layer)
    assert clone(inputs, targets) == layer(inputs, targets)
    assert "features=3, chunk=None" in repr(layer)


def test_the_logits_of_all_rows_are_never_allocated(monkeypatch):
    hierarchy = random_hierarchy(random.Random(0), most=12)
    layer = layer_of(hierarchy, chunk=2)
    inputs = torch.randn(9, 3, dtype=torch.float64)
    seen = []
    product = torch.nn.functional.linear
    monkeypatch.setattr(
        "hierlearn.losses.hcl.linear.linear",
        lambda x, *rest: seen.append(len(x)) or product(x, *rest),
    )
    layer(inputs, torch.zeros(9, len(hierarchy))).backward()
    assert seen == 2 * [2, 2, 2, 2, 1]  # down, and up again


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 0}, "features must be at least 1, not 0"),
        ({"chunk": 0}, "chunk must be at least 1 row, not 0"),
        ({"reduction": "none"}, "never has all entries at once; pass reduction 'mean' or 'sum'"),
    ],
)
def test_bad_options_are_refused(options, message):
    hierarchy = random_hierarchy(random.Random(0))
    with pytest.raises(HierlearnError, match=message):
        LinearHCLLoss(hierarchy, **{"features": 3, **options})


def test_bad_shapes_and_values_are_refused():
    hierarchy, inputs, targets, _ = problem(7, masked=False, rows=(3, 3))
    layer, classes = layer_of(hierarchy, validate=True), len(hierarchy)
    with pytest.raises(HierlearnError, match=r"inputs \(3, 2\) must be \(N, 3\)"):
        layer(inputs[:, :2], targets)
    with pytest.raises(
        HierlearnError, match=rf"targets \(2, {classes}\) must match logits \(3, {classes}\)"
    ):
        layer(inputs, targets[:2])
    with pytest.raises(HierlearnError, match="outside"):
        layer(inputs, 2 * targets.double())


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("curriculum", ["batch", None])
def test_torch_func_differentiates_it(curriculum):
    """torch.func.grad against backward, and second derivatives against finite differences."""
    hierarchy, inputs, targets, _ = problem(3, masked=False, rows=(4, 4))
    layer = layer_of(hierarchy, curriculum=curriculum)
    found = torch.func.grad(lambda x: layer(x, targets))(inputs)
    expected = step(lambda x: layer(x, targets), inputs, layer, upstream=1.0)[1]
    torch.testing.assert_close(found, expected, **CLOSE)
    per_row = torch.func.vmap(torch.func.grad(lambda x, y: layer(x[None], y[None])))
    assert per_row(inputs, targets).shape == inputs.shape
    hessian = torch.func.hessian(lambda x: layer(x, targets))(inputs)
    shift = torch.zeros_like(inputs)
    shift[0, 0] = 1e-6
    sides = [torch.func.grad(lambda x: layer(x, targets))(inputs + s) for s in (shift, -shift)]
    torch.testing.assert_close(hessian[0, 0], (sides[0] - sides[1]) / 2e-6, rtol=1e-4, atol=1e-7)
