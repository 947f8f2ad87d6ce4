"""BCELoss against tests/reference/bce.py."""

import math

import pytest
import torch
from torch.nn import functional as F

from hierlearn.losses import BCELoss
from losses.oracle_checks import assert_entry_losses, sigmoid_log_probabilities
from losses.random_batches import FLAT, flat_batch, random_batch
from reference.bases import elementwise
from reference.bce import bce


@pytest.mark.parametrize("log_base", [math.e, 2])
@pytest.mark.parametrize("seed", range(30))
def test_the_reference(seed, log_base):
    batch = random_batch(seed, dag=seed % 2 == 1)
    expected = elementwise(
        lambda p, q, y: bce(p, q, y, log_base), *sigmoid_log_probabilities(batch), batch.lists[1]
    )
    options = {} if log_base == math.e else {"log_base": log_base}
    assert_entry_losses(BCELoss(batch.hierarchy, **options), batch, expected)


def test_bce_is_that_of_torch_and_takes_soft_targets():
    logits, targets, _ = flat_batch()
    soft = torch.rand_like(logits)
    for wanted in (targets, soft):
        expected = F.binary_cross_entropy_with_logits(logits, wanted.double())
        torch.testing.assert_close(BCELoss(FLAT)(logits, wanted), expected)
