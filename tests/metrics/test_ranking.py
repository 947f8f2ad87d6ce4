"""Hit@k, MRR and coverage: against naive loops, scikit-learn and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn.metrics import coverage_error, label_ranking_loss, top_k_accuracy_score

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.metrics import coverage, hit_at_k, mean_reciprocal_rank
from metrics.score_batches import assert_same, batches, random_batch
from reference import metrics as naive

SCORES = torch.tensor([[0.5, 0.9, 0.5, 0.1], [0.2, 0.2, 0.2, 0.2], [1.0, 2.0, 3.0, 4.0]])
TARGETS = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]])


@given(batches())
def test_naive_loops_agree(batch):
    for reduction in ("none", "mean"):
        if reduction == "mean" and not batch.labeled:
            continue
        for k in range(1, len(batch.hierarchy) + 1):
            expected = naive.hit_at_k(*batch.lists, k, reduction)
            found = hit_at_k(batch.scores, batch.targets, k=k, reduction=reduction)
            assert_same(found, expected)
        for ours, theirs in (
            (mean_reciprocal_rank, naive.mean_reciprocal_rank),
            (coverage, naive.coverage),
        ):
            expected = theirs(*batch.lists, reduction)
            assert_same(ours(batch.scores, batch.targets, reduction=reduction), expected)


def test_by_hand():
    # Row 0: class 1, then 0 before 2 in a tie: the first positive, 2, is third. Row 1: 1 is second.
    # Row 2 has no label and does not count.
    assert_same(hit_at_k(SCORES, TARGETS, reduction="none"), [0.0, 0.0, float("nan")])
    assert_same(hit_at_k(SCORES, TARGETS, k=2), 0.5)
    assert_same(hit_at_k(SCORES, TARGETS, k=3), 1.0)
    assert_same(
        mean_reciprocal_rank(SCORES, TARGETS, reduction="none"), [1 / 3, 1 / 2, float("nan")]
    )
    assert_same(mean_reciprocal_rank(SCORES, TARGETS), 5 / 12)
    assert_same(coverage(SCORES, TARGETS, reduction="none"), [4.0, 4.0, float("nan")])
    assert hit_at_k(SCORES, TARGETS).shape == ()


@given(batches(labels=(1, 3)))
def test_coverage_is_that_of_scikit_learn_ties_included(batch):
    # A class that nobody is of and that scores least changes nothing; scikit-learn wants two.
    truth = torch.nn.functional.pad(batch.targets, (0, 1), value=False).numpy()
    scores = torch.nn.functional.pad(batch.scores, (0, 1), value=-1.0).numpy()
    expected = coverage_error(truth, scores)
    assert_same(coverage(batch.scores, batch.targets), expected)


def test_scikit_learn_agrees_where_nothing_ties():
    flat = Hierarchy.from_paths([f"c{i}" for i in range(7)])
    batch = random_batch(flat, 40)
    truth = batch.targets.int().argmax(dim=1).numpy()
    for k in (1, 3, 6):
        expected = top_k_accuracy_score(truth, batch.scores.numpy(), k=k, labels=range(7))
        assert_same(hit_at_k(batch.scores, batch.targets, k=k), expected)
    # One label a row: the ranking loss is (rank - 1) / (C - 1).
    losses = [
        label_ranking_loss(batch.targets[i : i + 1].numpy(), batch.scores[i : i + 1].numpy())
        for i in range(40)
    ]
    expected = 1 / (1 + 6 * torch.tensor(losses, dtype=torch.float64))
    assert_same(mean_reciprocal_rank(batch.scores, batch.targets, reduction="none"), expected)


def test_infinite_scores_rank_too():
    scores = torch.tensor([[-torch.inf, torch.inf, -torch.inf]])
    assert_same(mean_reciprocal_rank(scores, torch.tensor([[0, 0, 1]])), 1 / 3)
    assert_same(hit_at_k(scores, torch.tensor([[1, 0, 0]]), k=2), 1.0)
    assert_same(coverage(scores, torch.tensor([[0, 1, 0]])), 1.0)


@pytest.mark.parametrize("k", [0, -1, 5, 1.0, True])
def test_k_is_one_of_the_classes(k):
    with pytest.raises(
        HierlearnError, match=rf"^k = {k!r} is outside 1\.\.4, the number of classes"
    ):
        hit_at_k(SCORES, TARGETS, k=k)


def test_what_has_no_rows_or_no_labels_has_no_value():
    for metric, name in (
        (hit_at_k, "hit@1"),
        (mean_reciprocal_rank, "mean reciprocal rank"),
        (coverage, "coverage"),
    ):
        with pytest.raises(HierlearnError, match=f"no rows: an empty test set has no {name}"):
            metric(SCORES[:0], TARGETS[:0])
        with pytest.raises(
            HierlearnError, match=f"none of the 1 rows has a label, so there is no {name}"
        ):
            metric(SCORES[2:], TARGETS[2:])
        assert metric(SCORES[:0], TARGETS[:0], reduction="none").shape == (0,)
        assert metric(SCORES[2:], TARGETS[2:], reduction="none").isnan().all()


def test_k_may_be_numpys():
    assert_same(hit_at_k(SCORES, TARGETS, k=np.int64(2)), 0.5)
