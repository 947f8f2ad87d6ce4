"""CondSoftmaxLoss against tests/reference/cond_softmax.py."""

import pytest

from hierlearn.losses import CondSoftmaxLoss
from losses.oracle_checks import assert_needs_tree, assert_row_losses
from losses.random_batches import random_batch
from reference.cond_softmax import cond_softmax


@pytest.mark.parametrize("seed", range(40))
def test_the_reference(seed):
    batch = random_batch(seed, masked=False)
    expected = cond_softmax(*batch.lists, batch.parents)
    assert_row_losses(CondSoftmaxLoss(batch.hierarchy), batch, expected)


def test_a_dag_is_refused():
    assert_needs_tree(CondSoftmaxLoss)
