"""LeafCELoss against tests/reference/leaf_ce.py."""

import pytest

from hierlearn.losses import LeafCELoss
from losses.oracle_checks import assert_row_losses
from losses.random_batches import random_batch, random_terminals
from reference.leaf_ce import leaf_ce


@pytest.mark.parametrize("dag", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_the_reference(seed, dag):
    batch = random_batch(seed, dag=dag, masked=False)
    space, terminals = random_terminals(batch, seed)
    assert_row_losses(LeafCELoss(space), batch, leaf_ce(*batch.lists, batch.parents, terminals))
