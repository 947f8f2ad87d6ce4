"""MixedLoss against tests/reference/mixed.py, and the errors for parts that do not mix."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES, MixedLoss
from losses.oracle_checks import CLOSE, sigmoid_log_probabilities
from losses.random_batches import random_batch
from reference.bases import elementwise
from reference.focal import focal
from reference.mcloss import mcloss
from reference.mixed import mixed

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("seed", range(10))
def test_the_reference(seed, reduction):
    batch = random_batch(seed, dag=seed % 2 == 1)
    focal_losses = elementwise(
        lambda p, q, y: focal(p, q, y, 0.25, 2.0),
        *sigmoid_log_probabilities(batch),
        batch.lists[1],
    )
    mc_losses = mcloss(*batch.lists, batch.parents, batch.mask_list)
    expected = torch.tensor(mixed([focal_losses, mc_losses], [0.25, 2.0]), dtype=torch.float64)
    known = torch.ones_like(expected) if batch.mask is None else batch.mask
    expected = expected * known
    expected = {
        "none": expected,
        "sum": expected.sum(),
        "mean": expected.sum() / known.sum().clamp(min=1),
    }[reduction]
    loss = MixedLoss(batch.hierarchy, parts={"focal": 0.25, "mcloss": 2.0}, reduction=reduction)
    CLOSE.assert_close(loss(batch.logits, batch.targets, batch.mask), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("seed", range(6))
def test_the_weighted_sum_of_its_parts(seed, reduction):
    batch = random_batch(seed, dag=seed % 2 == 1)
    parts = {"focal": 0.25, "mcloss": 2.0}
    found = MixedLoss(batch.hierarchy, parts=parts, reduction=reduction)
    wanted = sum(
        weight
        * LOSSES[name](batch.hierarchy, reduction=reduction)(
            batch.logits, batch.targets, batch.mask
        )
        for name, weight in parts.items()
    )
    torch.testing.assert_close(found(batch.logits, batch.targets, batch.mask), wanted)


def test_by_default_half_cross_entropy_half_mcloss_read_by_the_max_link():
    loss = MixedLoss(TREE)
    assert (MixedLoss.default_link, MixedLoss.reading_link) == ("sigmoid", "max")
    assert loss.weights == {"bce": 0.5, "mcloss": 0.5}
    assert "mcloss" in repr(loss)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"bcee": 1.0}, "unknown part of a mixed loss 'bcee'; did you mean 'bce'"),
        ({"mixed": 1.0}, "unknown part of a mixed loss 'mixed'"),
        ({"bce": 0.0}, "the weight of 'bce' must be above 0, not 0.0"),
        ({"bce": float("nan")}, "must be above 0, not nan"),
        ({"leaf-ce": 1.0}, "'leaf-ce' is a loss of whole rows"),
        ({"clems": 1.0}, "'clems' is a loss of whole rows"),
    ],
)
def test_what_does_not_mix(parts, message):
    with pytest.raises(HierlearnError, match=message):
        MixedLoss(TREE, parts=parts)
