"""SampleCurriculumLoss against tests/reference/sample_curriculum.py."""

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.sample_curriculum import SampleCurriculumLoss
from losses.oracle_checks import assert_same
from losses.random_batches import RAGGED, random_batch
from reference.sample_curriculum import sample_curriculum


@pytest.mark.parametrize("seed", range(40))
def test_the_reference(seed):
    batch = random_batch(seed, rows=(1, 8))
    loss = SampleCurriculumLoss(batch.hierarchy, reduction="sum")
    expected = sample_curriculum(*batch.lists, mask=batch.mask_list)["loss"]
    assert_same(loss(batch.logits, batch.targets, batch.mask), expected)


def test_a_floor_of_one_is_refused():
    with pytest.raises(HierlearnError, match=r"floor must lie in \[0, 1\), not 1; 1 would select"):
        SampleCurriculumLoss(RAGGED, floor=1)
