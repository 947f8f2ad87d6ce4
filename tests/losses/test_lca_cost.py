"""LCACostLoss against tests/reference/lca_cost.py."""

import pytest
import torch
from torch.nn import functional as F

from hierlearn.losses import LCACostLoss
from losses.oracle_checks import assert_needs_tree, assert_row_losses
from losses.random_batches import RAGGED, leaf_batch, random_batch, random_terminals
from reference.lca_cost import lca_cost


@pytest.mark.parametrize("seed", range(40))
def test_the_reference(seed):
    batch = random_batch(seed, masked=False)
    space, terminals = random_terminals(batch, seed)
    expected = lca_cost(*batch.lists, batch.parents, terminals)
    assert_row_losses(LCACostLoss(space), batch, expected)


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_on_leaves(seed):
    batch = random_batch(seed, masked=False)
    expected = lca_cost(*batch.lists, batch.parents)
    assert_row_losses(LCACostLoss(batch.hierarchy), batch, expected)


def test_certain_predictions_cost_the_scaled_lca_height():
    _, targets, numbers, leaves = leaf_batch(rows=30)
    torch.manual_seed(2)
    predicted = leaves[torch.randint(0, len(leaves), (30,))]
    logits = 1e4 * F.one_hot(predicted, len(RAGGED)).double()
    heights = torch.from_numpy(RAGGED.lca_heights(predicted.numpy(), numbers.numpy()))
    found = LCACostLoss(RAGGED, reduction="none")(logits, targets)
    torch.testing.assert_close(found, heights.double() / RAGGED.root_height)


def test_a_dag_is_refused():
    assert_needs_tree(LCACostLoss)
