"""MCLoss against tests/reference/mcloss.py."""

import pytest
import torch
from torch.nn import functional as F

from hierlearn.losses import BCELoss, MCLoss
from losses.oracle_checks import assert_entry_losses
from losses.random_batches import FLAT, RAGGED, flat_batch, leaf_batch, random_batch
from reference.mcloss import mcloss


@pytest.mark.parametrize("seed", range(30))
def test_the_reference(seed):
    batch = random_batch(seed, dag=True)
    expected = mcloss(*batch.lists, batch.parents, batch.mask_list)
    assert_entry_losses(MCLoss(batch.hierarchy), batch, expected)


def test_coherent_logits_give_binary_cross_entropy():
    _, targets, _, _ = leaf_batch()
    torch.manual_seed(3)
    logits = RAGGED.max_up(torch.randn(len(targets), len(RAGGED), dtype=torch.float64))
    negative = MCLoss(RAGGED, reduction="none")(logits, targets)
    plain = BCELoss(RAGGED, reduction="none")(logits, targets)
    torch.testing.assert_close(negative[~targets], plain[~targets])
    flat_logits, flat_targets, _ = flat_batch()
    torch.testing.assert_close(
        MCLoss(FLAT)(flat_logits, flat_targets), BCELoss(FLAT)(flat_logits, flat_targets)
    )


def test_the_dense_formula_of_the_paper():
    logits, targets, _, _ = leaf_batch()
    count = len(RAGGED)
    is_below = torch.tensor(
        [[b == a or b in RAGGED.descendants(a) for b in range(count)] for a in range(count)]
    )
    h = logits.sigmoid()
    y = targets.double()
    spread = (h[:, None, :] * is_below).amax(dim=2)
    positive = ((h * y)[:, None, :] * is_below).amax(dim=2)
    expected = F.binary_cross_entropy(torch.where(targets, positive, spread), y)
    torch.testing.assert_close(MCLoss(RAGGED)(logits, targets), expected)
