"""MCLoss by kernels: against the plain path."""

from contextlib import nullcontext

import pytest
import torch

from hierlearn.kernels import tree as kernels
from hierlearn.kernels import tree_layout, tree_plan
from hierlearn.kernels.choose import without_kernels
from hierlearn.losses import MCLoss
from kernels.kernel_cases import DEVICE, batch, nan_filled_memory, needs_gpu, on_device, tree
from kernels.test_trees import TREES, UNEVEN, every_tree
from tolerances import FLOAT32_SUMS, HALF_ROUNDED, Tolerance


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Let small batches take the kernels, with several windows per level and pieces of groups."""
    for module in (tree_layout, tree_plan, kernels):
        monkeypatch.setattr(module, "WINDOW", 16)


def value_and_gradient(loss, logits, targets, upstream=1.7):
    x = logits.detach().clone().requires_grad_()
    value = loss(x, targets)
    (upstream * value).backward()
    return value.detach().cpu(), x.grad.cpu()


def both(hierarchy, logits, targets, **options):
    """Return value and gradient of the kernels and of the plain path."""
    loss = MCLoss(hierarchy, **options).to(DEVICE)
    with nan_filled_memory():
        found = value_and_gradient(loss, *on_device(logits, targets))
    with without_kernels():
        expected = value_and_gradient(MCLoss(hierarchy, **options), logits.float(), targets)
    return found, expected


@every_tree
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_and_gradient_are_those_of_the_plain_path(hierarchy, reduction):
    logits, targets, _ = batch(hierarchy, 5)
    FLOAT32_SUMS.assert_close(*both(hierarchy, logits, targets, reduction=reduction))


def test_kernels_are_used_for_known_targets_of_trees_alone(monkeypatch):
    logits, targets, mask = on_device(*batch(UNEVEN, 3, masked=True))
    calls = []
    monkeypatch.setattr(kernels, "mcloss", lambda *_: calls.append(1) or logits.sum())
    loss = MCLoss(UNEVEN).to(DEVICE)
    loss(logits, targets)
    assert calls == [1]
    loss(logits, targets, mask)
    loss(logits, targets, weight=torch.ones(3, device=DEVICE))
    MCLoss(UNEVEN, reduction="none").to(DEVICE)(logits, targets)
    loss(logits.double(), targets)
    assert calls == [1]


@pytest.mark.parametrize("name", ["uneven", "a long group", "only children"])
def test_ties_share_the_gradient_as_in_the_plain_path(name):
    logits, targets, _ = batch(TREES[name], 6, ties=True)
    logits = logits.clamp(-1.0, 1.0)  # so that most groups have ties
    found, expected = both(TREES[name], logits, targets)
    FLOAT32_SUMS.assert_close(found, expected)


def test_several_labels_and_labels_that_end_above_the_leaves():
    rows = [["a", "f/g/h"], ["m/n", "l"], ["a/b/c", "a/b/d", "f"], []]
    targets = torch.stack([UNEVEN.encode([row])[0] for row in rows])
    logits = batch(UNEVEN, 4, ties=True)[0]
    FLOAT32_SUMS.assert_close(*both(UNEVEN, logits, targets))
    FLOAT32_SUMS.assert_close(*both(UNEVEN, 50 * logits, targets.float()))


def test_half_precision_logits():
    logits, targets, _ = batch(UNEVEN, 3)
    found, expected = both(UNEVEN, logits.bfloat16(), targets)
    FLOAT32_SUMS.assert_close(found[0], expected[0])
    assert found[1].dtype == torch.bfloat16
    HALF_ROUNDED.assert_close(found[1].float(), expected[1])


def test_members_nan_and_second_derivatives():
    logits, targets, _ = on_device(*batch(UNEVEN, 4))
    loss = MCLoss(UNEVEN).to(DEVICE)
    members = loss(logits.view(2, 2, -1), targets.view(2, 2, -1))
    FLOAT32_SUMS.assert_close(members[0], loss(logits[:2], targets[:2]))
    bad = logits.clone()
    bad[1, -1] = torch.nan
    assert loss(bad, targets).isnan()
    found = []
    for context in (nullcontext(), without_kernels()):
        with context:
            x = logits.clone().requires_grad_()
            (first,) = torch.autograd.grad(loss(x, targets), x, create_graph=True)
            (first**2).sum().backward()
            found.append((first.detach(), x.grad))
    FLOAT32_SUMS.assert_close(*found)
    assert found[0][1].abs().max() > 1e-7


@needs_gpu
def test_a_large_batch(monkeypatch):
    for module in (tree_layout, tree_plan, kernels):
        monkeypatch.setattr(module, "WINDOW", 128)
    hierarchy = tree((10, 100, 1000, 8890))
    logits, targets, _ = batch(hierarchy, 300)
    found, expected = both(hierarchy, logits, targets)
    Tolerance(rtol=1e-4, atol=1e-10).assert_close(found, expected)
