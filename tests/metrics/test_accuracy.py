"""Terminal, leaf, level and answer accuracy, and mean levels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics import (
    answer_accuracy,
    leaf_accuracy,
    level_accuracy,
    mean_level,
    mean_predicted_level,
    terminal_accuracy,
)
from metrics.score_batches import ANIMALS, assert_same, batches, random_batch, tree
from reference import metrics as naive


@given(batches())
def test_naive_loops_agree(batch):
    space = LabelSpace.from_targets(batch.hierarchy, batch.targets)
    arguments = (batch.scores, batch.targets, space)
    for ours, theirs in (
        (terminal_accuracy, naive.terminal_accuracy),
        (leaf_accuracy, naive.leaf_accuracy),
        (mean_predicted_level, naive.mean_predicted_level),
    ):
        found = ours(*arguments, reduction="none")
        expected = theirs(*batch.lists, batch.parents, reduction="none")
        assert_same(found, expected)
        if not found.isnan().all():
            assert_same(ours(*arguments), theirs(*batch.lists, batch.parents))
    if batch.labeled:
        expected = naive.level_accuracy(*batch.lists, batch.parents)
        assert_same(level_accuracy(*arguments), expected)


@given(batches(), st.data())
def test_given_terminals(batch, data):
    some = data.draw(st.sets(st.integers(0, len(batch.hierarchy) - 1)))
    space = LabelSpace(batch.hierarchy, sorted(some))
    found = terminal_accuracy(batch.scores, batch.targets, space, reduction="none")
    allowed = sorted(some | set(batch.hierarchy.leaves.tolist()))
    expected = naive.terminal_accuracy(*batch.lists, batch.parents, allowed, reduction="none")
    assert_same(found, expected)
    leaves = naive.terminal_accuracy(
        *batch.lists, batch.parents, batch.hierarchy.leaves.tolist(), reduction="none"
    )
    found = terminal_accuracy(batch.scores, batch.targets, batch.hierarchy, reduction="none")
    assert_same(found, leaves)


@given(batches(), st.data())
def test_decisions(batch, data):
    count, classes = batch.targets.shape
    chosen = data.draw(st.lists(st.integers(-1, classes - 1), min_size=count, max_size=count))
    for reduction in ("none", "mean"):
        found = answer_accuracy(torch.tensor(chosen), batch.targets, reduction=reduction)
        assert_same(found, naive.answer_accuracy(chosen, batch.targets.tolist(), reduction))
        found = mean_level(torch.tensor(chosen), batch.hierarchy, reduction=reduction)
        assert_same(found, naive.mean_level(chosen, batch.parents, reduction))


def test_leaf_accuracy_is_scikit_learns_accuracy_of_the_best_leaf():
    batch = random_batch(ANIMALS, 60)
    leaves = torch.tensor(ANIMALS.leaves)
    rows = batch.targets[:, leaves].any(dim=1)
    truth = batch.targets[rows][:, leaves].int().argmax(dim=1)
    best = batch.scores[rows][:, leaves].argmax(dim=1)
    expected = accuracy_score(truth.numpy(), best.numpy())
    assert_same(leaf_accuracy(batch.scores, batch.targets, ANIMALS), expected)


def test_by_hand():
    targets = ANIMALS.encode(["pug", "dog", "cat", []])
    scores = tree(
        [
            {"animal": 0.9, "dog": 0.8, "bulldog": 0.7},
            {"animal": 0.9, "dog": 0.8, "bulldog": 0.7},
            {"plant": 0.9, "cat": 0.8, "pug": 0.7},
            {"oak": 1.0},
        ]
    )
    # dog ends the second row, so it is terminal; it is not what ends the first.
    space = LabelSpace.from_targets(ANIMALS, targets)
    found = terminal_accuracy(scores, targets, space, reduction="none")
    assert_same(found, [0.0, 1.0, 1.0, float("nan")])
    # The second row has no leaf label.
    found = leaf_accuracy(scores, targets, ANIMALS, reduction="none")
    assert_same(found, [0.0, float("nan"), 1.0, float("nan")])
    assert_same(level_accuracy(scores, targets, ANIMALS), [2 / 3, 1.0, 0.0])
    assert_same(mean_predicted_level(scores, targets, ANIMALS), (1 + 1 + 1 + 2) / 4)
    found = answer_accuracy(torch.tensor([3, 5, -1, -1]), targets, reduction="none")
    assert found.tolist() == [1, 0, 1, 1]


def test_a_level_without_rows_is_nan():
    found = level_accuracy(torch.rand(1, 7), ANIMALS.encode(["plant"]), ANIMALS)
    assert found.isnan().tolist() == [False, True, True]


def test_what_is_refused():
    scores, none = torch.rand(2, 7), torch.zeros(2, 7)
    for metric, name in (
        (terminal_accuracy, "terminal accuracy"),
        (level_accuracy, "level accuracy"),
    ):
        with pytest.raises(HierlearnError, match=f"none of the 2 rows has a label, so .* {name}"):
            metric(scores, none, ANIMALS)
        with pytest.raises(HierlearnError, match=f"no rows: an empty test set has no {name}"):
            metric(scores[:0], none[:0], ANIMALS)
    with pytest.raises(HierlearnError, match="none of the 2 rows has a leaf label, so there is no"):
        leaf_accuracy(scores, ANIMALS.encode(["dog", "plant"]), ANIMALS)
    with pytest.raises(HierlearnError, match="no rows: an empty test set has no mean level"):
        mean_predicted_level(scores[:0], none[:0], ANIMALS)
    with pytest.raises(HierlearnError, match=r"row 1: class number 7 is outside -1\.\.6, where -1"):
        answer_accuracy(torch.tensor([0, 7]), none)
    with pytest.raises(HierlearnError, match=r"not torch.float32 of shape \(2,\)"):
        mean_level(torch.zeros(2), ANIMALS)
    with pytest.raises(HierlearnError, match=r"targets \(2, 7\) must match decisions .* \(3, 7\)"):
        answer_accuracy(torch.tensor([0, 1, 2]), none)
    with pytest.raises(HierlearnError, match=r"targets \(7,\) must be \(N, C\)"):
        answer_accuracy(torch.tensor([0]), none[0])
