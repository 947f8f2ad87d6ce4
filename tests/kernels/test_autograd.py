"""The kernels under autograd: upstream gradients, repeated passes, second derivatives."""

import pytest
import torch
from torch.nn.functional import softplus

from hierlearn.kernels import hcl as kernels
from hierlearn.kernels.hcl_plan import KernelSpec, SelectionOptions
from kernels.kernel_cases import (
    DEVICE,
    batch,
    few_and_many,
    kernel_loss,
    on_device,
    tree,
    value_and_gradient,
)
from tolerances import FINITE_DIFFERENCES, FLOAT32, FLOAT32_SUMS

SIZES = (2, 3, 12)


@few_and_many
def test_without_gradients_the_loss_is_the_same(layout):
    hierarchy = tree(SIZES)
    logits, targets, _ = on_device(*batch(hierarchy, 4))
    loss = kernel_loss(hierarchy).to(DEVICE)
    value, _ = value_and_gradient(loss, logits, targets)
    with torch.no_grad():
        FLOAT32.assert_close(loss(logits, targets).cpu(), value)


@few_and_many
def test_two_passes_through_one_graph_add_up(layout):
    hierarchy = tree(SIZES)
    logits, targets, _ = on_device(*batch(hierarchy, 4))
    loss = kernel_loss(hierarchy).to(DEVICE)
    _, gradient = value_and_gradient(loss, logits, targets, upstream=3.0)
    x = logits.clone().requires_grad_()
    value = loss(x, targets)
    value.backward(retain_graph=True)
    (2 * value).backward()
    FLOAT32.assert_close(x.grad.cpu(), gradient)


@few_and_many
def test_a_second_pass_needs_a_retained_graph(layout):
    hierarchy = tree((2, 3))
    logits, targets, mask = on_device(*batch(hierarchy, 4, masked=True))
    value = kernel_loss(hierarchy).to(DEVICE)(logits.requires_grad_(), targets, mask)
    value.backward()
    with pytest.raises(RuntimeError, match="retain"):
        value.backward()


@few_and_many
@pytest.mark.parametrize("changed", [0, 1, 2], ids=["logits", "targets", "mask"])
def test_a_second_pass_needs_unchanged_tensors(changed, layout):
    hierarchy = tree((2, 3))
    data = on_device(*batch(hierarchy, 4, masked=True))
    data[0].requires_grad_()
    value = kernel_loss(hierarchy).to(DEVICE)(*data)
    value.backward(retain_graph=True)
    with torch.no_grad():
        data[changed].copy_(data[changed].clone())
    with pytest.raises(RuntimeError, match=r"changed in place|modified by an inplace"):
        value.backward()


# ---------------------------------------------------------------------- second derivatives


def plain_loss(logits, targets, mask, weights):
    """Return HCL with bce on the levels SIZES and reduction "mean", for given class weights."""
    losses = softplus(torch.where(targets > 0.5, -logits, logits))
    known = torch.ones_like(losses, dtype=torch.bool) if mask is None else mask
    bounded, highest = [], torch.zeros_like(losses[:, :1])
    for level, here in zip(losses.split(SIZES, 1), known.split(SIZES, 1), strict=True):
        bounded.append(torch.maximum(level, highest))
        top = torch.where(here, level, 0.0).amax(1, keepdim=True)
        highest = torch.maximum(highest, top)
    total = (torch.where(known, torch.cat(bounded, 1), 0.0) * weights).sum()
    return total / known.sum().clamp_min(1)


class KernelLoss:
    """The kernels with a differentiable twin; remembers the class weights of the last call."""

    def __init__(self, *, selects, differentiable=plain_loss):
        selection = SelectionOptions(0.25, False, False) if selects else None
        spec = KernelSpec(SIZES, 1.0, mean=True, selection=selection)
        self.kernels, self.selects = kernels.Kernels(spec), selects
        self.differentiable = differentiable
        self.weights = torch.linspace(0.3, 1, sum(SIZES), device=DEVICE)

    def keep_weights(self, plan, block):
        self.weights = kernels.Workspace(plan, block).array("weights").clone()

    def __call__(self, logits, targets, mask):
        callbacks = {"differentiable": self.differentiable}
        if self.selects:
            callbacks["on_result"] = self.keep_weights
        else:
            callbacks["weigh"] = lambda sums, errors: self.weights
        return self.kernels(logits, targets, mask, **callbacks)


def gradient_of(loss, logits, *data, create_graph=False):
    return torch.autograd.grad(loss(logits, *data), logits, create_graph=create_graph)[0]


second_order = pytest.mark.parametrize("selects", [True, False], ids=["selected", "weighted"])
with_and_without_mask = pytest.mark.parametrize("masked", [False, True], ids=["known", "masked"])


@few_and_many
@second_order
@with_and_without_mask
def test_second_derivatives_are_those_of_the_plain_form(masked, selects, layout):
    logits, targets, mask = on_device(*batch(tree(SIZES), 4, masked=masked))
    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    loss = KernelLoss(selects=selects)
    x, scale = logits.clone().requires_grad_(), torch.tensor(1.7, device=DEVICE).requires_grad_()
    (first,) = torch.autograd.grad(scale * loss(x, targets, mask), x, create_graph=True)
    found = torch.autograd.grad((first * direction).sum(), (x, scale))

    twin, factor = logits.clone().requires_grad_(), scale.detach().clone().requires_grad_()
    plain = factor * plain_loss(twin, targets, mask, loss.weights)
    (expected_first,) = torch.autograd.grad(plain, twin, create_graph=True)
    expected = torch.autograd.grad((expected_first * direction).sum(), (twin, factor))
    FLOAT32_SUMS.assert_close(first.detach(), expected_first.detach())
    FLOAT32_SUMS.assert_close(found, expected)
    assert found[0].abs().max() > 1e-4


@few_and_many
@second_order
def test_second_derivatives_are_differences_of_the_kernels_gradients(selects, layout):
    # Logits far apart, so that no maximum and no selection changes within a step.
    generator = torch.Generator().manual_seed(2)
    shape = (3, sum(SIZES))
    logits = torch.stack([torch.randperm(shape[1], generator=generator) for _ in range(shape[0])])
    logits, targets = on_device(0.3 * logits.float() - 2, torch.zeros(shape, dtype=torch.bool))
    direction = torch.randn(shape, generator=generator).to(DEVICE)
    loss = KernelLoss(selects=selects)
    x = logits.clone().requires_grad_()
    first = gradient_of(loss, x, targets, None, create_graph=True)
    (found,) = torch.autograd.grad((first * direction).sum(), x)
    step = 1e-2
    ends = [
        gradient_of(loss, (logits + sign * step * direction).requires_grad_(), targets, None)
        for sign in (1, -1)
    ]
    FINITE_DIFFERENCES.assert_close(found, (ends[0] - ends[1]) / (2 * step))
    assert found.abs().max() > 10 * FINITE_DIFFERENCES.atol


def test_second_derivatives_reach_what_made_the_logits():
    logits, targets, _ = on_device(*batch(tree(SIZES), 4))
    loss = KernelLoss(selects=True)
    found = []
    for penalized in (loss, lambda x, y, m: plain_loss(x, y, m, loss.weights)):
        scale = torch.full((1,), 0.8, device=DEVICE, requires_grad=True)
        x = logits * scale.sin()
        first = gradient_of(penalized, x, targets, None, create_graph=True)
        (first**2).sum().backward()  # a gradient penalty
        found.append(scale.grad)
    FLOAT32_SUMS.assert_close(*found)


@few_and_many
def test_a_graph_may_be_used_again_after_second_derivatives(layout):
    logits, targets, _ = on_device(*batch(tree(SIZES), 4))
    loss = KernelLoss(selects=True)
    x = logits.clone().requires_grad_()
    value = loss(x, targets, None)
    (first,) = torch.autograd.grad(value, x, create_graph=True)
    value.backward()
    FLOAT32_SUMS.assert_close(x.grad, first.detach())
    with pytest.raises(RuntimeError, match="retain"):
        value.backward()


def test_without_create_graph_the_plain_form_is_never_called():
    def refuse(*_):
        raise AssertionError("the kernels compute this gradient")

    logits, targets, _ = on_device(*batch(tree(SIZES), 4))
    loss = KernelLoss(selects=True, differentiable=refuse)
    value, gradient = value_and_gradient(loss, logits, targets)
    assert value > 0
    assert gradient.any()
