"""HCL along the edges of a tree, and the softmax link, by kernels: against the plain paths."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.hierarchy import LabelSpace
from hierlearn.kernels import choose, tree_layout, tree_plan
from hierlearn.links import HeadOutput, SoftmaxLink
from hierlearn.losses import HCLLoss, LeafCELoss, LinearHCLLoss
from kernels.kernel_cases import (
    DEVICE,
    PlainHCL,
    batch,
    every_layout,
    kernel_loss,
    nan_filled_memory,
    on_device,
    tree,
    value_and_gradient,
)
from tolerances import FLOAT32, FLOAT32_SUMS, HALF_ROUNDED, Tolerance

UNEVEN = Hierarchy.from_paths(
    ["a/b/c", "a/b/d", "a/e", "f/g/h/i", "f/g/h/j", "f/g/k", "l", *(f"m/n/{i}" for i in range(40))]
)
TREES = {
    "one class": tree((1,)),
    "one level": tree((7,)),
    "only children": tree((1, 1, 1, 3)),
    "odd sizes": tree((3, 5, 37)),
    "a long group": tree((2, 70)),
    "uneven": UNEVEN,
}
every_tree = pytest.mark.parametrize("hierarchy", TREES.values(), ids=TREES)
with_and_without_mask = pytest.mark.parametrize("masked", [False, True], ids=["known", "masked"])
EDGES = {
    "softmax, ancestors": {"link": "softmax", "scope": "ancestors"},
    "softmax, alone": {"link": "softmax", "scope": None, "floor": 0.3},
    "sigmoid, ancestors": {"link": "sigmoid", "scope": "ancestors"},
}
along_edges = pytest.mark.parametrize("options", EDGES.values(), ids=EDGES)
# The log of a ratio of two probabilities near exp(-1000) has an error of 1e-4.
FAR_APART = Tolerance(rtol=2e-4, atol=2e-5)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Divide small groups as large ones are: several tiles per level, several steps per group."""
    for module in (tree_layout, tree_plan):
        monkeypatch.setattr(module, "WINDOW", 16)


def number_of(name):
    return UNEVEN.names.index(name)


def with_inner_terminals(hierarchy):
    """Return a label space in which every third class is terminal."""
    return LabelSpace(hierarchy, list(hierarchy.names[::3]))


def terminal_batch(space, rows, *, masked):
    """Return a batch whose labels are terminal: an only child of p = 1 cannot be absent."""
    logits, _, mask = batch(space.hierarchy, rows, masked=masked)
    picks = torch.randint(len(space.terminals), (rows,), generator=torch.Generator().manual_seed(1))
    numbers = [int(number) for number in space.terminals[picks.numpy()]]
    return logits, space.hierarchy.encode(numbers, numbers=True), mask


def assert_same(space, logits, targets, mask, *, close=FLOAT32_SUMS, **options):
    plain, fused = (kernel_loss(space, fused=f, **options) for f in (False, True))
    expected = value_and_gradient(plain, logits, targets, mask)
    with nan_filled_memory():
        found = value_and_gradient(fused.to(DEVICE), *on_device(logits, targets, mask))
    close.assert_close(found, expected)
    last = {name: value.cpu() for name, value in fused.last.items()}
    close.assert_close(last, plain.last)


@every_tree
def test_loss_and_gradient_are_those_of_the_plain_path(hierarchy):
    data = terminal_batch(LabelSpace(hierarchy), 3, masked=False)
    assert_same(hierarchy, *data, curriculum=None, **EDGES["softmax, ancestors"])


@along_edges
@with_and_without_mask
def test_inner_terminals_and_masks(options, masked):
    space = with_inner_terminals(UNEVEN)
    data = terminal_batch(space, 3, masked=masked)
    assert_same(space, *data, threshold=9.0, **options)


@pytest.mark.parametrize(
    ("options", "amount"),
    [(EDGES["softmax, ancestors"], "mean"), (EDGES["sigmoid, ancestors"], "sum")],
    ids=["softmax", "sigmoid"],
)
def test_the_curriculum_selects_the_same_classes(options, amount):
    logits, targets, _ = batch(UNEVEN, 5, seed=3)
    space = with_inner_terminals(UNEVEN)
    options = {**options, "reduction": amount, "normalize": amount}
    assert_same(space, logits, targets, None, close=Tolerance(rtol=1e-4, atol=1e-5), **options)


@every_layout
def test_small_batches_and_many_classes(layout):
    space = with_inner_terminals(TREES["odd sizes"])
    data = terminal_batch(space, 3, masked=True)
    assert_same(space, *data, **EDGES["softmax, ancestors"])


@along_edges
def test_ties(options):
    logits, targets, mask = batch(UNEVEN, 4, ties=True, masked=True)
    assert_same(with_inner_terminals(UNEVEN), logits, targets, mask, threshold=9.0, **options)


@along_edges
def test_logits_far_apart(options):
    logits, targets, _ = batch(UNEVEN, 3)
    space, options = with_inner_terminals(UNEVEN), {"curriculum": None, **options}
    assert_same(space, 1000.0 * logits, targets, None, close=FAR_APART, **options)


def test_a_part_in_common_loses_no_precision():
    logits, targets, _ = batch(UNEVEN, 5)
    logits = logits.bfloat16().float()  # so that the sum below is exact
    loss = HCLLoss(UNEVEN, threshold=9.0).to(DEVICE)
    expected = value_and_gradient(loss, *on_device(logits, targets))
    FLOAT32.assert_close(value_and_gradient(loss, *on_device(logits + 4096, targets)), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_logits(dtype):
    options = EDGES["softmax, ancestors"]
    logits, targets, mask = batch(UNEVEN, 3, masked=True)
    logits = logits.to(dtype)
    options = {"threshold": 9.0, **options}
    plain, fused = (kernel_loss(UNEVEN, fused=f, **options) for f in (False, True))
    value, gradient = value_and_gradient(plain, logits.float(), targets, mask)
    found = value_and_gradient(fused.to(DEVICE), *on_device(logits, targets, mask))
    FLOAT32_SUMS.assert_close(found[0], value)
    HALF_ROUNDED.assert_close(found[1], gradient.to(dtype))


def test_members_and_rows_that_begin_anywhere():
    options = EDGES["softmax, ancestors"]
    logits, targets, _ = batch(UNEVEN, 4)
    options = {"threshold": 9.0, **options}
    loss = kernel_loss(UNEVEN, **options).to(DEVICE)
    both = logits.view(2, 2, -1).to(DEVICE), targets.view(2, 2, -1).to(DEVICE)
    each = [
        value_and_gradient(loss, *on_device(logits[k], targets[k]))[0]
        for k in (slice(2), slice(2, 4))
    ]
    x = both[0].clone().requires_grad_()
    FLOAT32_SUMS.assert_close(loss(x, both[1]).detach().cpu(), torch.stack(each))
    wide = torch.zeros(4, len(UNEVEN) + 3, device=DEVICE)
    wide[:, 1:-2] = logits.to(DEVICE)
    found = value_and_gradient(loss, wide[:, 1:-2], targets.to(DEVICE).float())
    FLOAT32_SUMS.assert_close(found, value_and_gradient(loss, *on_device(logits, targets)))


def test_nan_shows_in_the_loss():
    logits, targets, _ = batch(UNEVEN, 4)
    logits[2, -1] = torch.nan
    for options in EDGES.values():
        loss = kernel_loss(UNEVEN, **options).to(DEVICE)
        assert loss(*on_device(logits, targets)).isnan()


@along_edges
def test_gradients_can_be_differentiated_again(options):
    logits, targets, _ = on_device(*batch(UNEVEN, 3))
    found = []
    for fused in (True, False):
        loss = kernel_loss(UNEVEN, fused=fused, curriculum=None, **options).to(DEVICE)
        x = logits.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(x, targets), x, create_graph=True)
        (first**2).sum().backward()
        found.append((first.detach(), x.grad))
    FLOAT32_SUMS.assert_close(*found)
    assert found[0][1].abs().max() > 1e-5


def test_what_the_kernels_do_not_take():
    dag = Hierarchy.from_edges([("a", "c"), ("b", "c")])
    logits = torch.zeros(2, len(dag), device=DEVICE)
    for space, key in (
        (LabelSpace(dag), ("hcl of bce", "softmax", "ancestors")),
        (LabelSpace(UNEVEN), ("hcl of bce", "softmax", "levels")),
    ):
        assert choose.gpu_kernels(key, logits, space) is None
    assert choose.gpu_kernels(("hcl of bce", "sigmoid", "levels"), logits, dag) is not None
    deep = tree((1,) * 65)
    assert LabelSpace(deep).layout is None


def test_another_link_needs_other_kernels():
    logits, targets, _ = on_device(*batch(UNEVEN, 4))
    loss = HCLLoss(UNEVEN, threshold=9.0).to(DEVICE)
    plain = PlainHCL(UNEVEN, threshold=9.0).to(DEVICE)
    links = [SoftmaxLink(UNEVEN), SoftmaxLink(with_inner_terminals(UNEVEN))]
    values = []
    for link in (*links, links[0]):
        output = HeadOutput.from_logits(logits, link.to(DEVICE))
        values.append(loss(output, targets))
        FLOAT32_SUMS.assert_close(values[-1], plain(output, targets))
    assert values[0] == values[2] != values[1]


def test_the_linear_layer_takes_the_plain_path():
    _, targets, _ = on_device(*batch(UNEVEN, 5))
    layer = LinearHCLLoss(UNEVEN, 4, chunk=2).to(DEVICE)
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    plain = PlainHCL(UNEVEN).to(DEVICE)
    FLOAT32_SUMS.assert_close(layer(inputs, targets), plain(layer.logits(inputs), targets))


# ---------------------------------------------------------------------- the link by itself


def pair_and_gradient(function, logits, weights):
    """Return the pair, and the gradient of their weighted sum; a weight None is not used."""
    x = logits.clone().requires_grad_()
    pair = function(x)
    used = [(one * w.to(one)).sum() for one, w in zip(pair, weights, strict=True) if w is not None]
    sum(used).backward()
    return pair[0].detach(), pair[1].detach(), x.grad


PAIRS = [(name, scale, "both") for name, scale in zip(TREES, (1.0, 30.0) * 3, strict=True)]
PAIRS += [("uneven", 1000.0, "both"), ("uneven", 1.0, "log p"), ("uneven", 1.0, "log(1 - p)")]


@pytest.mark.parametrize(("name", "scale", "used"), PAIRS)
def test_the_pair_and_its_gradient(name, scale, used):
    hierarchy = TREES[name]
    link = SoftmaxLink(with_inner_terminals(hierarchy))
    generator = torch.Generator().manual_seed(0)
    logits, *weights = (torch.randn(3, len(hierarchy), generator=generator) for _ in range(3))
    logits = (scale * logits).to(DEVICE)
    if used != "both":
        weights[used == "log p"] = None
    with nan_filled_memory():
        found = pair_and_gradient(link.to(DEVICE).log_probabilities, logits, weights)
    exact = pair_and_gradient(link.plain_log_probabilities, logits.double(), weights)
    # exp(-1e30) is nothing in either precision.
    pairs = [[one.clamp_min(-1e29).double() for one in part[:2]] for part in (found, exact)]
    FLOAT32.assert_close(*pairs)
    FAR_APART.assert_close(found[2].double(), exact[2])


@pytest.mark.parametrize("shift", [0.0, -300.0], ids=["normalized", "far below 0"])
def test_what_lies_beyond_the_columns_does_not_count(shift):
    # Logits that sum to a mass of 1 have a norm of 0, as those of a network at its prior; the
    # exponential of a norm of -300 is infinite.
    hierarchy = TREES["odd sizes"]
    link = SoftmaxLink(hierarchy)
    logits = torch.zeros(2, len(hierarchy))
    logits[0, link.terminals] = torch.tensor(1 / len(link.terminals)).log()
    logits[:, link.terminals[0]] = 0.0
    logits[1, link.terminals[1:]] = -200.0
    logits += shift
    weights = [torch.ones(2, len(hierarchy))] * 2
    exact = pair_and_gradient(link.plain_log_probabilities, logits.double(), weights)
    found = pair_and_gradient(link.to(DEVICE).log_probabilities, logits.to(DEVICE), weights)
    for one, expected in zip(found, exact, strict=True):
        FAR_APART.assert_close(one.cpu(), expected.float())
    targets = hierarchy.encode([int(link.terminals[1])] * 2, numbers=True)
    options = {**EDGES["softmax, ancestors"], "curriculum": None}
    plain, fused = (kernel_loss(hierarchy, fused=f, **options) for f in (False, True))
    expected = value_and_gradient(plain, logits, targets, None)
    found = value_and_gradient(fused.to(DEVICE), *on_device(logits, targets, None))
    FAR_APART.assert_close(found, expected)


def test_a_class_of_nearly_all_mass_keeps_the_mass_outside_exact():
    link = SoftmaxLink(UNEVEN).to(DEVICE)
    logits = torch.zeros(1, len(UNEVEN), device=DEVICE)
    logits[0, number_of("a/b/c")] = 60.0
    _, log_not_p = link.log_probabilities(logits)
    names = ["a", "a/b", "a/b/c"]
    outside = [len(UNEVEN.leaves) - number for number in (3, 2, 1)]
    expected = torch.tensor(outside, dtype=torch.float64).log() - 60
    found = log_not_p[0, [number_of(name) for name in names]].cpu().double()
    FLOAT32.assert_close(found, expected)


def test_second_derivatives_of_the_link():
    link = SoftmaxLink(UNEVEN).to(DEVICE)
    logits = torch.randn(2, len(UNEVEN), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = []
    for function in (link.log_probabilities, link.plain_log_probabilities):
        x = logits.clone().requires_grad_()
        log_p, log_not_p = function(x)
        (first,) = torch.autograd.grad(
            (log_p[:, ::2] - log_not_p[:, ::2]).sum(), x, create_graph=True
        )
        (first**2).sum().backward()
        found.append(x.grad)
    FLOAT32_SUMS.assert_close(*found)


def test_members_transforms_and_other_losses_use_the_link():
    link = SoftmaxLink(UNEVEN).to(DEVICE)
    logits = torch.randn(2, 3, len(UNEVEN), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    FLOAT32.assert_close(link.log_probabilities(logits), link.plain_log_probabilities(logits))
    mapped = torch.func.vmap(link.log_probabilities)(logits)  # takes the plain path
    FLOAT32.assert_close(mapped, link.plain_log_probabilities(logits))
    key = ("log p", "softmax", None)
    assert choose.gpu_kernels(key, logits, link.label_space) is not None
    assert choose.gpu_kernels(key, logits.double(), link.label_space) is None
    assert choose.gpu_kernels(key, logits[:, :0], link.label_space) is None
    targets = batch(UNEVEN, 3)[1].to(DEVICE)
    assert LeafCELoss(UNEVEN).to(DEVICE)(link.output(logits[0]), targets) > 0
