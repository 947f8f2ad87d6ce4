"""LevelWeightedLoss against tests/reference/level_weighted.py."""

import pytest
import torch

from hierlearn.losses import BCELoss, LevelWeightedLoss
from losses.oracle_checks import assert_same
from losses.random_batches import RAGGED, leaf_batch, random_batch
from reference.level_weighted import level_weighted


@pytest.mark.parametrize("seed", range(30))
def test_the_reference(seed):
    batch = random_batch(seed, dag=True)
    weights = [1.0 / (level + 1) for level in range(batch.hierarchy.depth)]
    loss = LevelWeightedLoss(batch.hierarchy, weights=weights, reduction="none")
    expected = level_weighted(*batch.lists, batch.parents, weights, batch.mask_list)
    assert_same(loss(batch.logits, batch.targets, batch.mask), expected)


def test_weights_of_one_are_binary_cross_entropy_and_decay_falls_by_level():
    logits, targets, _, _ = leaf_batch()
    found = LevelWeightedLoss(RAGGED, decay=1.0)(logits, targets)
    torch.testing.assert_close(found, BCELoss(RAGGED)(logits, targets))
    weights = LevelWeightedLoss(RAGGED, decay=0.5).class_weights
    assert weights.tolist() == [0.5 ** (level - 1) for level in RAGGED.levels.tolist()]
