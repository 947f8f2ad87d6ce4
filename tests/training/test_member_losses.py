"""The mean losses of stacked models, in one call or one by one; weighted rows."""

import numpy as np
import pytest
import torch

from hierlearn import Labels
from hierlearn.kernels.hcl import has_triton
from hierlearn.losses import LOSSES, HCLLoss
from hierlearn.training.member_losses import (
    MemberLosses,
    pays_in_one_call,
    stacked_means,
    weighted_mean,
)
from hierlearn.training.processes import Processes
from training.datasets import CPU, TREE, partial_problem

ALONE = Processes(0, 1, CPU)
DATASET = partial_problem(rows=20)


def batch(below):
    labels = Labels(DATASET.labels, TREE, unlabeled_descendants=below)
    torch.manual_seed(0)
    return torch.randn(20, 8), labels.targets(), labels.mask()


@pytest.mark.parametrize("below", ["negative", "ignore"])
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "sample-curriculum"])
def test_a_mean_times_its_count_is_the_sum(name, below):
    """What processes weigh their means by is what the mean divides by."""
    logits, targets, mask = batch(below)
    mean, total = (LOSSES[name](TREE, reduction=kind) for kind in ("mean", "sum"))
    count = mean.count(targets, mask)
    torch.testing.assert_close(mean(logits, targets, mask) * count, total(logits, targets, mask))


@pytest.mark.parametrize("below", ["negative", "ignore"])
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "sample-curriculum"])
def test_the_mean_of_weighted_rows_by_hand(name, below):
    logits, targets, mask = batch(below)
    weights = torch.from_numpy(np.random.default_rng(0).uniform(0, 2, 20)).float()
    loss = LOSSES[name](TREE)
    found = weighted_mean(loss, logits, targets, mask, weights, ALONE)
    if "hcl" in name and name != "hcl-hier":
        weights_of_classes = loss._state[-1]  # the curriculum's own, of the weighted rows
        plain = LOSSES[name](TREE, curriculum=None, reduction="none")
        values = plain(logits, targets, mask) * weights_of_classes
    else:
        values = LOSSES[name](TREE, reduction="none")(logits, targets, mask)
    total = count = 0.0
    for row in range(20):
        if values.dim() == 1:
            if (targets[row] & mask[row]).any():
                total += weights[row] * values[row]
                count += weights[row]
            continue
        for number in range(8):
            if mask[row, number]:
                total += weights[row] * values[row, number]
                count += weights[row]
    torch.testing.assert_close(found, total / count)


def test_the_loss_is_left_as_it_was_even_after_an_error():
    loss = LOSSES["mixed"](TREE, parts={"hcl": 1.0, "bce": 1.0})
    logits, targets, mask = batch("negative")
    with pytest.raises(ValueError, match="must match"):
        weighted_mean(loss, logits, targets[:3], mask, torch.ones(20), ALONE)
    assert [loss.reduction, *(part.reduction for part in loss.parts)] == ["mean"] * 3
    assert loss.parts[0].row_weights is None


# ---------------------------------------------------------------------- all in one call

MAKERS = {
    **{name: LOSSES[name] for name in LOSSES},
    "hcl softmax": lambda tree: HCLLoss(tree, link="softmax", scope="ancestors"),
    "hcl epoch": lambda tree: HCLLoss(tree, link="conditional", curriculum="epoch"),
    "hcl focal": lambda tree: HCLLoss(tree, base="focal", floor=0.0),
    "mixed hcl": lambda tree: LOSSES["mixed"](tree, parts={"bce": 1.0, "hcl": 2.0}),
}


def three_batches(below):
    """Logits (3, 20, C) of three models, each on rows of its own."""
    logits, targets, mask = batch(below)
    orders = [torch.randperm(20, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    # The second model is far worse than the others, so that a selection cannot be shared.
    scales = torch.tensor([1.0, 9.0, 0.1])[:, None, None]
    stacked = torch.stack([logits[order] for order in orders]) * scales
    together = [torch.stack([one[order] for order in orders]) for one in (targets, mask)]
    return stacked, *together


@pytest.mark.parametrize("below", ["negative", "ignore"])
@pytest.mark.parametrize("name", MAKERS)
def test_stacked_models_have_the_losses_and_gradients_of_single_ones(name, below):
    logits, targets, mask = three_batches(below)
    losses = [MAKERS[name](TREE) for _ in range(3)]
    if not isinstance(losses[0], HCLLoss) and not losses[0].per_row:
        assert name in ("sample-curriculum", "mixed hcl")
        return
    one_by_one = [MAKERS[name](TREE) for _ in range(3)]
    for known in (None, mask):
        together, apart = (logits.clone().requires_grad_() for _ in range(2))
        found = stacked_means(losses, together, targets, known)
        expected = torch.stack(
            [
                loss(apart[k], targets[k], None if known is None else known[k])
                for k, loss in enumerate(one_by_one)
            ]
        )
        torch.testing.assert_close(found, expected)
        weights = torch.tensor([1.0, -2.0, 0.5])
        (found @ weights).backward()
        (expected @ weights).backward()
        torch.testing.assert_close(together.grad, apart.grad)
        for loss, other in zip(losses, one_by_one, strict=True):
            if isinstance(loss, HCLLoss) and loss.curriculum:
                assert torch.equal(loss.selected_now, other.selected_now)
                torch.testing.assert_close(loss.epoch_losses, other.epoch_losses)


def test_the_selections_of_stacked_models_differ():
    """The test above would not see a selection that all models share, were theirs the same."""
    logits, targets, _ = three_batches("negative")
    losses = [HCLLoss(TREE, link="softmax", scope="ancestors") for _ in range(3)]
    stacked_means(losses, logits, targets, None)
    assert len({tuple(loss.selected_now.tolist()) for loss in losses}) > 1


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_claims_rows_apart_keeps_them_apart(name):
    loss = LOSSES[name](TREE, reduction="none")
    logits, targets, mask = batch("ignore")
    logits[7:] = 3 * (
        2 * targets[7:].float() - 1
    )  # easy rows, beside which hard ones may be chosen
    whole = loss(logits, targets, mask)
    halves = torch.cat(
        [loss(logits[rows], targets[rows], mask[rows]) for rows in (slice(7), slice(7, 20))]
    )
    assert loss.per_row == torch.allclose(whole, halves)


@pytest.mark.parametrize("alike", [True, False])
def test_a_stopped_model_counts_nothing_and_gets_nothing(alike):
    logits, targets, mask = three_batches("ignore")
    logits[1, 0, 0] = torch.nan
    logits.requires_grad_()
    means = MemberLosses([LOSSES["bce"](TREE) for _ in range(3)], ALONE, alike=alike)
    assert means.one_will_do == alike
    found = means(logits, targets, mask, None, [False, True, False])
    found.sum().backward()
    assert found[1] == 0
    assert found.isfinite().all()
    assert (logits.grad[1] == 0).all()
    for k in (0, 2):
        torch.testing.assert_close(found[k], LOSSES["bce"](TREE)(logits[k], targets[k], mask[k]))
        assert (logits.grad[k] != 0).any()


def test_weighted_rows_are_taken_one_model_after_the_other():
    logits, targets, mask = three_batches("ignore")
    weights = torch.rand(3, 20, generator=torch.Generator().manual_seed(0))
    losses = [LOSSES["hxe"](TREE) for _ in range(3)]
    found = MemberLosses(losses, ALONE, alike=True)(logits, targets, mask, weights, [False] * 3)
    expected = [
        weighted_mean(losses[k], logits[k], targets[k], mask[k], weights[k], ALONE)
        for k in range(3)
    ]
    torch.testing.assert_close(found, torch.stack(expected))


def test_what_pays():
    """The hand-written pass of one HCL after the other is faster on the CPU than all composed."""
    few, many = (torch.empty(10, rows, 8, device="meta") for rows in (128, 1 << 15))
    here = torch.empty(10, 128, 8)
    assert not pays_in_one_call(HCLLoss(TREE), here)
    assert pays_in_one_call(HCLLoss(TREE, link="softmax"), here)
    assert pays_in_one_call(LOSSES["bce"](TREE), here)
    assert not pays_in_one_call(LOSSES["sample-curriculum"](TREE), here)
    assert pays_in_one_call(HCLLoss(TREE), few)  # elsewhere launches count
    assert pays_in_one_call(HCLLoss(TREE, fused=False), many)  # without kernels always
    if has_triton():
        assert not pays_in_one_call(HCLLoss(TREE), many)
