"""The paper's theorems, with what their proofs need and what they do not give."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierlearn import Hierarchy
from hierlearn.losses import HCLLoss, constrain, select_classes
from losses.random_batches import random_batch
from reference import constraint, curriculum

SEEDS = st.integers(0, 10_000)
LOSS_VALUES = st.floats(0, 6, allow_nan=False) | st.integers(0, 4).map(float)


def draw_losses(seed, rounded=False):
    """A hierarchy with random losses; rounding makes ties."""
    batch = random_batch(seed, dag=seed % 2 == 1)
    losses = batch.logits.abs()
    return batch, (losses * 2).round() if rounded else losses


@given(seed=SEEDS, scope=st.sampled_from(["levels", "ancestors"]), rounded=st.booleans())
def test_theorem_1_and_corollary_1(seed, scope, rounded):
    batch, losses = draw_losses(seed, rounded)
    found = constrain(losses, batch.hierarchy, scope)
    # Only maxima and gathers occur, so equality is exact.
    assert found.tolist() == constraint.constrain(losses.tolist(), batch.parents, scope)
    assert found.tolist() == constraint.smallest_majorant(losses.tolist(), batch.parents, scope)
    assert (found >= losses).all()
    for j, above in enumerate(constraint.binding_classes(batch.parents, scope)):
        for k in above:
            assert (found[:, j] >= found[:, k]).all()
    assert constrain(found, batch.hierarchy, scope).equal(found)


@given(seed=SEEDS, scope=st.sampled_from(["levels", "ancestors"]))
def test_theorem_2_on_errors(seed, scope):
    batch, losses = draw_losses(seed)
    errors = (losses > 1).double()
    found = constrain(errors, batch.hierarchy, scope)
    assert set(found.unique().tolist()) <= {0.0, 1.0}
    assert found.tolist() == constraint.smallest_majorant(errors.tolist(), batch.parents, scope)


@given(seed=SEEDS, scope=st.sampled_from(["levels", "ancestors"]), rounded=st.booleans())
def test_the_gradient_belongs_to_the_first_maximizer_and_to_the_class_itself_at_a_tie(
    seed, scope, rounded
):
    batch, losses = draw_losses(seed, rounded)
    upstream = torch.randn_like(losses)
    losses = losses.requires_grad_()
    constrain(losses, batch.hierarchy, scope, batch.mask).backward(upstream)
    expected = constraint.constrain_gradient(
        losses.tolist(), batch.parents, scope, upstream.tolist(), batch.mask_list
    )
    torch.testing.assert_close(losses.grad, torch.tensor(expected, dtype=torch.float64))


@given(seed=SEEDS)
def test_masked_entries_neither_contribute_nor_bind(seed):
    batch, losses = draw_losses(seed)
    mask = torch.rand(losses.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    for scope in ("levels", "ancestors"):
        found = constrain(losses, batch.hierarchy, scope, mask)
        expected = constraint.constrain(losses.tolist(), batch.parents, scope, mask.tolist())
        assert found.tolist() == expected


@given(
    seed=SEEDS,
    floor=st.sampled_from([0.0, 0.1, 0.3, 0.9]),
    scope=st.sampled_from(["levels", "ancestors"]),
    normalize=st.sampled_from(["sum", "mean"]),
)
def test_theorem_3_with_any_floor(seed, floor, scope, normalize):
    batch = random_batch(seed, dag=seed % 2 == 1)
    options = {"base": "bce2", "link": "sigmoid", "scope": scope, "normalize": normalize}
    loss = HCLLoss(batch.hierarchy, floor=floor, **options)
    loss(batch.logits, batch.targets, batch.mask)
    plain = HCLLoss(batch.hierarchy, curriculum=None, reduction="sum", **options)
    rows = len(batch.logits) if normalize == "mean" else 1
    l_h = float(plain(batch.logits, batch.targets, batch.mask)) / rows
    literal = HCLLoss(batch.hierarchy, floor=0.0, **options)
    literal(batch.logits, batch.targets, batch.mask)
    wrong = (batch.logits > 0) != batch.targets
    e = float((wrong if batch.mask is None else wrong & batch.mask).sum()) / rows
    l_hc, exact = float(loss.last["l_hc"]), float(literal.last["l_hc"])
    slack = 1e-9 * (1 + l_h)
    assert e <= float(loss.last["e_h"]) + slack
    assert float(loss.last["e_h"]) <= l_hc + slack
    assert l_hc <= floor * l_h + (1 - floor) * exact + slack
    assert floor * l_h + (1 - floor) * exact <= l_h + slack


def test_theorem_3_needs_base_2():
    h = Hierarchy.from_paths(["a"])
    logits, targets = torch.tensor([[-0.2]]), torch.tensor([[True]])
    natural, binary = HCLLoss.paper(h), HCLLoss.paper(h, base="bce2")
    plain = HCLLoss.paper(h, curriculum=None, reduction="sum")
    natural(logits, targets)
    binary(logits, targets)
    l_h = plain(logits, targets).item()
    assert l_h == pytest.approx(0.798, abs=1e-3)
    assert natural.last["e_h"] == 1
    assert natural.last["l_hc"] == 1 > l_h  # the bound l_hc <= l_h fails
    assert binary.last["l_hc"] <= l_h / math.log(2)


@given(losses=st.lists(LOSS_VALUES, min_size=1, max_size=10), errors=st.integers(0, 6))
def test_theorem_4_the_selection_is_optimal(losses, errors):
    chosen = select_classes(torch.tensor(losses, dtype=torch.float64), len(losses) + errors)
    weights = [float(one) for one in chosen]
    value = curriculum.objective(weights, losses, errors)
    assert value == pytest.approx(curriculum.brute_force(losses, errors), rel=1e-12, abs=1e-12)


def test_theorem_4_on_thousands_of_cases_and_what_the_printed_text_gives():
    generator = torch.Generator().manual_seed(0)
    unsorted_wrong = other_threshold_wrong = 0
    for case in range(3000):
        count = case % 10 + 1
        losses = torch.rand(count, generator=generator, dtype=torch.float64) * 4
        losses = losses.round() if case % 2 else losses  # every other case has ties
        errors = int(torch.randint(0, 5, (), generator=generator))
        best = curriculum.brute_force(losses.tolist(), errors)

        def value(chosen, losses=losses, errors=errors):
            return curriculum.objective([float(c) for c in chosen], losses.tolist(), errors)

        assert value(select_classes(losses, count + errors)) == pytest.approx(best)
        printed = curriculum.select_as_printed(losses.tolist(), count + errors)
        unsorted_wrong += value(printed) > best + 1e-9
        other_threshold_wrong += value(select_classes(losses, count)) > best + 1e-9
    assert unsorted_wrong > 100
    assert other_threshold_wrong > 100


def test_selection_takes_tensors_ties_in_class_order_and_infinities():
    losses = torch.tensor([1.0, 1.0, 1.0, torch.inf])
    assert select_classes(losses, torch.tensor(3.0)).tolist() == [True, True, False, False]
    assert select_classes(torch.zeros(3), 3).tolist() == [True, True, True]
    assert select_classes(torch.zeros(0), 0).tolist() == []
