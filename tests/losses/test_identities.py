"""Identities across losses: limits in which one becomes another that is known."""

import math

import pytest
import torch
from torch.nn import functional as F

from hierlearn.losses import (
    BCELoss,
    CondSoftmaxLoss,
    FocalLoss,
    HCLLoss,
    HXELoss,
    LeafCELoss,
    SoftLabelsLoss,
)
from losses.random_batches import FLAT, RAGGED, flat_batch, leaf_batch, random_batch


def test_on_one_level_hcl_without_curriculum_is_its_base():
    logits, targets, _ = flat_batch()
    for base, plain in (("bce", BCELoss(FLAT)), ("focal", FocalLoss(FLAT))):
        found = HCLLoss.paper(FLAT, base=base, curriculum=None)(logits, targets)
        torch.testing.assert_close(found, plain(logits, targets))


def test_on_one_level_the_softmax_losses_are_cross_entropy_of_torch():
    logits, targets, numbers = flat_batch()
    expected = F.cross_entropy(logits, numbers)
    for loss in (
        LeafCELoss(FLAT),
        CondSoftmaxLoss(FLAT),
        HXELoss(FLAT, alpha=0.7, weighting="height"),
        SoftLabelsLoss(FLAT, beta=800.0),
    ):
        torch.testing.assert_close(loss(logits, targets), expected)
    found = HXELoss(FLAT, alpha=0.7)(logits, targets)  # every class is one step from the root
    torch.testing.assert_close(found, math.exp(-0.7) * expected)


def test_hxe_at_alpha_0_is_leaf_cross_entropy_on_ragged_trees():
    # The leaf "h" is a child of the root.
    logits, targets, numbers, leaves = leaf_batch()
    place = {int(c): i for i, c in enumerate(leaves)}
    expected = F.cross_entropy(logits[:, leaves], torch.tensor([place[int(c)] for c in numbers]))
    for loss in (
        HXELoss(RAGGED, alpha=0.0),
        LeafCELoss(RAGGED),
        SoftLabelsLoss(RAGGED, beta=2000.0),
    ):
        torch.testing.assert_close(loss(logits, targets), expected)


@pytest.mark.parametrize("seed", range(10))
def test_coherent_probabilities_satisfy_the_constraint_on_the_positive_path(seed):
    """With coherent p the losses of positive classes never fall down the path."""
    batch = random_batch(seed, labels=(1, 1), masked=False)
    for link in ("max", "conditional"):
        loss = HCLLoss(
            batch.hierarchy, link=link, scope="ancestors", curriculum=None, reduction="none"
        )
        plain = BCELoss(batch.hierarchy, link=link, reduction="none")
        bound = loss(batch.logits, batch.targets)[batch.targets]
        torch.testing.assert_close(bound, plain(batch.logits, batch.targets)[batch.targets])
