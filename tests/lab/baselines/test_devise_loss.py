"""DeViSELoss against tests/reference/devise.py, values and gradients."""

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.devise import DeViSELoss, pairwise_hinge
from hierlearn.links import HeadOutput
from losses.oracle_checks import assert_same
from losses.random_batches import RAGGED, flat_batch, leaf_batch, random_batch, random_terminals
from reference.devise import devise


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("margin", [0.1, 2.0])
def test_the_reference(seed, margin):
    batch = random_batch(seed, dag=seed % 2 == 1, labels=(0, 4))
    space, terminals = random_terminals(batch, seed)
    loss = DeViSELoss(space, margin=margin, reduction="none")
    given = (batch.targets.int().tolist(), batch.parents, terminals, margin, batch.mask_list)
    found = loss(batch.logits, batch.targets, batch.mask)
    assert_same(found, devise(batch.logits.tolist(), *given))


@pytest.mark.parametrize("seed", range(6))
def test_gradients_are_those_of_the_loops(seed):
    batch = random_batch(seed, dag=True, labels=(1, 3), scale=1.0)
    space, terminals = random_terminals(batch, seed)
    x = batch.logits.clone().requires_grad_()
    loss = DeViSELoss(space, margin=1.0, reduction="sum")
    (found,) = torch.autograd.grad(loss(x, batch.targets, batch.mask), x)
    given = (batch.targets.int().tolist(), batch.parents, terminals, 1.0, batch.mask_list)
    step = 1e-6
    for i in range(len(x)):
        for j in range(x.shape[1]):
            ends = []
            for sign in (1, -1):
                moved = batch.logits.clone()
                moved[i, j] += sign * step
                ends.append(sum(devise(moved.tolist(), *given)))
            assert float(found[i, j]) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


def test_without_a_hierarchy_it_is_the_multi_margin_loss_of_torch():
    logits, targets, numbers = flat_batch()
    flat = Hierarchy.from_paths(list("abcdef"))
    wanted = torch.nn.functional.multi_margin_loss(logits, numbers, margin=0.1) * 6
    torch.testing.assert_close(DeViSELoss(flat)(logits, targets), wanted)


def test_logits_of_inner_classes_do_not_matter():
    logits, targets, _, leaves = leaf_batch()
    other = torch.full_like(logits, 9.0).index_copy(1, leaves, logits[:, leaves])
    loss = DeViSELoss(RAGGED)
    assert torch.equal(loss(logits, targets), loss(other, targets))


def test_probabilities_alone_give_the_same_loss():
    logits, targets, _, _ = leaf_batch()
    loss = DeViSELoss(RAGGED, margin=0.5)
    bare = HeadOutput(*loss.link.output(logits).pair)
    torch.testing.assert_close(loss(bare, targets), loss(logits, targets))


def test_no_table_of_pairs_is_made():
    scores = torch.randn(2, 30_000)
    positive = torch.zeros_like(scores)
    positive[:, ::3] = 1.0
    found = pairwise_hinge(scores.double(), positive.double(), positive == 0)
    assert found.isfinite().all()  # 200 million pairs per row


def test_an_inner_label_is_its_most_similar_leaf():
    logits = torch.tensor([[0, 0, 0, 0.0, 0.2, 0.5, 0.4, 0.3]]).double()
    targets = RAGGED.encode([["a"]])
    below = [RAGGED.names.index(one) for one in ("a/e", "a/b/c", "a/b/d")]
    best = float(logits[0, below].max())
    others = [float(logits[0, RAGGED.names.index(one)]) for one in ("f/g", "h")]
    wanted = sum(max(0.0, 0.5 - best + one) for one in others)
    assert float(DeViSELoss(RAGGED, margin=0.5)(logits, targets)) == pytest.approx(wanted)


def test_a_margin_of_0_is_refused():
    with pytest.raises(HierlearnError, match="margin must be a number above 0, not 0"):
        DeViSELoss(LabelSpace(RAGGED), margin=0)
