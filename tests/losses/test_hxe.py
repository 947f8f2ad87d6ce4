"""HXELoss against tests/reference/hxe.py."""

import pytest

from hierlearn.losses import HXELoss
from losses.oracle_checks import assert_needs_tree, assert_row_losses
from losses.random_batches import random_batch, random_terminals
from reference.hxe import hxe


@pytest.mark.parametrize("seed", range(40))
def test_the_reference(seed):
    batch = random_batch(seed, masked=False)
    space, terminals = random_terminals(batch, seed)
    expected = hxe(*batch.lists, batch.parents, 0.3, terminals)
    assert_row_losses(HXELoss(space, alpha=0.3), batch, expected)


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_at_alpha_0(seed):
    batch = random_batch(seed, masked=False)
    expected = hxe(*batch.lists, batch.parents, 0.0)
    assert_row_losses(HXELoss(batch.hierarchy, alpha=0.0), batch, expected)


def test_a_dag_is_refused():
    assert_needs_tree(HXELoss)
