"""FocalLoss against tests/reference/focal.py."""

import pytest
import torch

from hierlearn.losses import BCELoss, FocalLoss
from losses.oracle_checks import assert_entry_losses, sigmoid_log_probabilities
from losses.random_batches import FLAT, flat_batch, random_batch
from reference.bases import elementwise
from reference.focal import focal


@pytest.mark.parametrize(
    ("options", "alpha", "gamma"),
    [({"alpha": 0.3, "gamma": 1.5}, 0.3, 1.5), ({"alpha": None}, None, 2.0), ({}, 0.25, 2.0)],
)
@pytest.mark.parametrize("seed", range(30))
def test_the_reference(seed, options, alpha, gamma):
    batch = random_batch(seed, dag=seed % 2 == 1)
    expected = elementwise(
        lambda p, q, y: focal(p, q, y, alpha, gamma),
        *sigmoid_log_probabilities(batch),
        batch.lists[1],
    )
    assert_entry_losses(FocalLoss(batch.hierarchy, **options), batch, expected)


def test_gamma_0_is_binary_cross_entropy():
    logits, targets, _ = flat_batch()
    found = FocalLoss(FLAT, alpha=None, gamma=0.0)(logits, targets)
    torch.testing.assert_close(found, BCELoss(FLAT)(logits, targets))
