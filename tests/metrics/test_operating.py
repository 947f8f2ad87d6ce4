"""The operating curve: as if ``Stop`` had decoded again at every threshold."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierlearn.decoding import Stop
from hierlearn.errors import HierlearnError
from hierlearn.metrics import answer_accuracy, mean_level, operating_curve
from metrics.score_batches import ANIMALS, DIAMOND, assert_same, batches, random_batch, tree
from reference import metrics as naive

CURVES = ("accuracy", "specificity", "answered", "exact")


@given(batches(), st.lists(st.integers(0, 8).map(lambda i: i / 8), min_size=1, max_size=6))
def test_naive_loops_agree(batch, thresholds):
    if not batch.labeled:
        return
    found = operating_curve(batch.scores, batch.targets, batch.hierarchy, thresholds)
    expected = naive.operating_curve(*batch.lists, batch.parents, thresholds)
    assert found.thresholds.tolist() == thresholds
    for name in CURVES:
        assert_same(getattr(found, name), expected[name])


@pytest.mark.parametrize("hierarchy", [ANIMALS, DIAMOND], ids=["tree", "dag"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_decoder_agrees_at_every_threshold(hierarchy, dtype):
    batch = random_batch(hierarchy, 80, labels=2)
    # Probabilities of one decimal meet the thresholds exactly, up to their own rounding.
    p = (batch.scores.mul(10).round() / 10).to(dtype)
    curve = operating_curve(p, batch.targets, hierarchy)
    assert len(curve.thresholds) == 101
    for i, threshold in enumerate(curve.thresholds.tolist()):
        answers = Stop(hierarchy, threshold)(p)
        assert_same(curve.accuracy[i], answer_accuracy(answers, batch.targets))
        assert_same(curve.answered[i], (answers >= 0).double().mean())
        levels = torch.tensor(hierarchy.levels) * batch.targets
        expected = mean_level(answers, hierarchy) / levels.amax(dim=1).double().mean()
        assert_same(curve.specificity[i], expected)


def test_by_hand():
    p = tree([{"animal": 0.9, "dog": 0.7, "pug": 0.4}, {"animal": 0.8, "cat": 0.75}])
    targets = ANIMALS.encode(["pug", "oak"])
    curve = operating_curve(p, targets, ANIMALS, [0.0, 0.5, 0.78, 0.85, 1.0])
    # Answers: pug cat; dog cat; animal animal; animal root; root root. The truth: levels 3 and 2.
    assert_same(curve.accuracy, [0.5, 0.5, 0.5, 1.0, 1.0])
    assert_same(curve.specificity, [5 / 5, 4 / 5, 2 / 5, 1 / 5, 0.0])
    assert_same(curve.answered, [1.0, 1.0, 1.0, 0.5, 0.0])
    assert_same(curve.exact, [0.5, 0.0, 0.0, 0.0, 0.0])


@given(batches(labels=(1, 2)))
def test_a_higher_threshold_says_less(batch):
    curve = operating_curve(batch.scores, batch.targets, batch.hierarchy)
    assert (curve.answered.diff() <= 0).all()
    # The longest path to a class of the chain grows along it, so that levels fall with a too.
    assert (curve.specificity.diff() <= 1e-12).all()
    assert curve.answered[-1] == 0
    assert curve.accuracy[-1] == 1


def test_what_is_refused():
    p, targets = torch.rand(2, 7), ANIMALS.encode(["pug", "cat"])
    for thresholds in ([], [[0.5]], 0.5):
        with pytest.raises(HierlearnError, match=r"thresholds \(.*\) must be \(T,\), at least one"):
            operating_curve(p, targets, ANIMALS, thresholds)
    with pytest.raises(HierlearnError, match=r"threshold 1.5 is outside \[0, 1\]"):
        operating_curve(p, targets, ANIMALS, [0.5, 1.5])
    with pytest.raises(HierlearnError, match="threshold nan is outside"):
        operating_curve(p, targets, ANIMALS, [float("nan")])
    with pytest.raises(HierlearnError, match="none of the 2 rows has a label, so there is no spec"):
        operating_curve(p, torch.zeros(2, 7), ANIMALS)
    with pytest.raises(HierlearnError, match="no rows: an empty test set has no operating curve"):
        operating_curve(p[:0], targets[:0], ANIMALS)
    with pytest.raises(HierlearnError, match="outside"):
        operating_curve(p + 2, targets, ANIMALS)
    broken = targets.clone()
    broken[0, ANIMALS.index("dog")] = False
    with pytest.raises(HierlearnError, match="row 0: targets are not closed: 'animal/dog/pug' is"):
        operating_curve(p, broken, ANIMALS)
