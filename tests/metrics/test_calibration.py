"""Expected calibration error by level and pooled."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.metrics import calibration_error
from metrics.score_batches import ANIMALS, assert_same, batches, random_batch
from reference import metrics as naive


@given(batches(), st.integers(1, 17))
def test_naive_loops_agree(batch, bins):
    for pooled in (False, True):
        found = calibration_error(
            batch.scores, batch.targets, batch.hierarchy, bins=bins, pooled=pooled
        )
        expected = naive.calibration_error(*batch.lists, batch.parents, bins, pooled)
        assert_same(found, expected)


def test_scikit_learns_curve_gives_the_same():
    flat = Hierarchy.from_paths([f"c{i}" for i in range(9)])
    batch = random_batch(flat, 200)
    truth, p = batch.targets.numpy().ravel(), batch.scores.numpy().ravel()
    share, mean = calibration_curve(truth, p, n_bins=15)
    weights, _ = np.histogram(p, bins=15, range=(0, 1))
    expected = float((np.abs(share - mean) * weights).sum() / len(p))
    assert_same(calibration_error(batch.scores, batch.targets, flat), [expected])


def test_by_hand():
    flat = Hierarchy.from_paths(["a", "b"])
    p = torch.tensor([[0.9, 0.1], [0.7, 0.1]], dtype=torch.float64)
    targets = torch.tensor([[1, 0], [0, 0]])
    # One bin of two: mean p 0.8 against a share of 1/2; the other: 0.1 against 0.
    assert_same(calibration_error(p, targets, flat, bins=2), [0.5 * 0.3 + 0.5 * 0.1])


def test_edges_lie_in_the_upper_bin_and_1_in_the_last():
    flat = Hierarchy.from_paths(["a"])
    p = torch.tensor([[0.5], [1.0], [0.25]], dtype=torch.float64)
    targets = torch.tensor([[1], [0], [0]])
    # With two bins: {0.25} and {0.5, 1}: |0.25| and |1.5 - 1|.
    assert_same(calibration_error(p, targets, flat, bins=2), [(0.25 + 0.5) / 3])


def test_honest_probabilities_are_calibrated_and_sharpened_ones_are_not():
    generator = torch.Generator().manual_seed(0)
    flat = Hierarchy.from_paths([f"c{i}" for i in range(20)])
    p = torch.rand(4000, 20, generator=generator, dtype=torch.float64)
    targets = torch.rand(4000, 20, generator=generator, dtype=torch.float64) < p
    assert float(calibration_error(p, targets, flat)) < 0.02
    assert float(calibration_error((p > 0.5).double(), targets, flat)) > 0.2


def test_what_is_refused():
    p, targets = torch.rand(2, 7), ANIMALS.encode(["pug", "cat"])
    for bins in (0, 1.5, True):
        with pytest.raises(
            HierlearnError, match=rf"bins = {bins!r} must be an integer of at least"
        ):
            calibration_error(p, targets, ANIMALS, bins=bins)
    with pytest.raises(HierlearnError, match="probability of 'animal' is -3, outside"):
        calibration_error(p - 3 - p, targets, ANIMALS)
    with pytest.raises(HierlearnError, match=r"targets \(1, 7\) must match probabilities \(2, 7\)"):
        calibration_error(p, targets[:1], ANIMALS)
    with pytest.raises(HierlearnError, match="no rows: an empty test set has no calibration error"):
        calibration_error(p[:0], targets[:0], ANIMALS)
