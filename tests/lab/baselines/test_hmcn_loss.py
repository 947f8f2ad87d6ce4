"""HMCNLoss against tests/reference/hmcn.py."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.hmcn import HMCNLoss
from hierlearn.losses import BCELoss
from losses.oracle_checks import assert_same
from losses.random_batches import RAGGED, leaf_batch, random_batch
from reference.hmcn import hmcn

CHAIN = Hierarchy.from_paths(["a/b"])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("penalty", [0.1, 3.0])
def test_the_reference(seed, penalty):
    batch = random_batch(seed, dag=True)
    loss = HMCNLoss(batch.hierarchy, penalty=penalty, reduction="none")
    expected = hmcn(*batch.lists, batch.parents, penalty, batch.mask_list)
    assert_same(loss(batch.logits, batch.targets, batch.mask), expected)


def test_without_a_penalty_it_is_binary_cross_entropy():
    logits, targets, _, _ = leaf_batch()
    found = HMCNLoss(RAGGED, penalty=0)(logits, targets)
    torch.testing.assert_close(found, BCELoss(RAGGED)(logits, targets))


def test_only_a_child_above_its_parent_costs():
    odds = torch.tensor([[0.8, 0.3], [0.3, 0.8]], dtype=torch.float64)
    logits, targets = odds.logit(), torch.ones(2, 2)
    extra = HMCNLoss(CHAIN, reduction="none")(logits, targets)
    extra = extra - BCELoss(CHAIN, reduction="none")(logits, targets)
    wanted = torch.tensor([[0, 0], [0, 0.1 * 0.25]], dtype=torch.float64)
    torch.testing.assert_close(extra, wanted, rtol=0, atol=1e-12)


def test_a_negative_penalty_is_refused():
    with pytest.raises(HierlearnError, match="penalty must be at least 0, not -1"):
        HMCNLoss(CHAIN, penalty=-1)
