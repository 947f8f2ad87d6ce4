"""Hierarchical precision, recall, F and exact match of label sets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.metrics import (
    exact_match,
    hierarchical_f1,
    hierarchical_precision,
    hierarchical_recall,
)
from metrics.score_batches import ANIMALS, assert_same, batches
from reference import metrics as naive

ALL = {
    hierarchical_precision: naive.hierarchical_precision,
    hierarchical_recall: naive.hierarchical_recall,
    hierarchical_f1: naive.hierarchical_f1,
}


def compare(batch, predicted, lists):
    targets = batch.targets.tolist()
    for average in ("micro", "macro", "samples", "level"):
        if average == "macro" and not batch.labeled:
            continue
        for ours, theirs in ALL.items():
            found = ours(predicted, batch.targets, batch.hierarchy, average=average)
            assert_same(found, theirs(lists, targets, batch.parents, average))
        found = hierarchical_f1(
            predicted, batch.targets, batch.hierarchy, average=average, beta=2.5
        )
        assert_same(found, naive.hierarchical_f1(lists, targets, batch.parents, average, beta=2.5))
    found = exact_match(predicted, batch.targets, batch.hierarchy, reduction="none")
    assert_same(found, naive.exact_match(lists, targets, batch.parents, "none"))


@given(batches())
def test_naive_loops_agree_on_sets_that_are_not_closed(batch):
    predicted = batch.scores > 0.6
    compare(batch, predicted, predicted.tolist())


@given(batches(), st.data())
def test_naive_loops_agree_on_decisions(batch, data):
    count, classes = batch.targets.shape
    chosen = data.draw(st.lists(st.integers(-1, classes - 1), min_size=count, max_size=count))
    compare(batch, torch.tensor(chosen), chosen)


@given(batches(labels=(1, 3)))
def test_scikit_learn_agrees_on_closed_sets(batch):
    closed = batch.hierarchy.max_up((batch.scores > 0.6).int()).bool()
    # One more class and row, of which nothing is said, for scikit-learn's sake.
    truth, answers = (torch.nn.functional.pad(x, (0, 2)).numpy() for x in (batch.targets, closed))
    labels = batch.targets.any(dim=0).nonzero()[:, 0].numpy()
    for average in ("micro", "macro", "samples"):
        expected = precision_recall_fscore_support(
            truth,
            answers,
            average=average,
            labels=labels if average == "macro" else None,
            zero_division=0,
        )
        for ours, value in zip(ALL, expected, strict=False):
            assert_same(ours(closed, batch.targets, batch.hierarchy, average=average), value)
    assert_same(exact_match(closed, batch.targets, batch.hierarchy), accuracy_score(truth, answers))


def test_by_hand():
    # The answer bulldog and its ancestors against pug's: animal and dog are right, of three each.
    targets, answer = ANIMALS.encode(["pug"]), torch.tensor([ANIMALS.index("bulldog")])
    assert_same(hierarchical_precision(answer, targets, ANIMALS), 2 / 3)
    assert_same(hierarchical_recall(answer, targets, ANIMALS), 2 / 3)
    assert_same(hierarchical_precision(answer, targets, ANIMALS, average="level"), [1.0, 1.0, 0.0])
    # dog alone is exact where it goes: precision 1, recall 2/3, F1 4/5.
    answer = torch.tensor([ANIMALS.index("dog")])
    assert_same(hierarchical_precision(answer, targets, ANIMALS), 1.0)
    assert_same(hierarchical_recall(answer, targets, ANIMALS), 2 / 3)
    assert_same(hierarchical_f1(answer, targets, ANIMALS), 4 / 5)
    assert_same(hierarchical_f1(answer, targets, ANIMALS, beta=2.0), 5 * 2 / (4 * 3 + 2))
    assert_same(exact_match(answer, targets, ANIMALS), 0.0)


def test_classes_of_one_bare_name_have_nothing_in_common():
    shop = Hierarchy.from_paths(["Electronics/Other", "Clothing/Other", "Clothing/Shoes"])
    targets = shop.encode([["Clothing/Other"]])
    answer = shop.encode([["Electronics/Other"]])
    for metric in ALL:
        assert float(metric(answer, targets, shop)) == 0
    assert float(exact_match(answer, targets, shop)) == 0
    assert float(hierarchical_f1(shop.encode([["Clothing/Shoes"]]), targets, shop)) == 0.5


def test_a_row_with_neither_truth_nor_answer_scores_0_but_matches():
    nothing = torch.zeros(1, 7, dtype=torch.bool)
    for metric in ALL:
        for average in ("micro", "samples"):
            assert float(metric(nothing, nothing, ANIMALS, average=average)) == 0
        assert metric(nothing, nothing, ANIMALS, average="level").tolist() == [0, 0, 0]
        with pytest.raises(
            HierlearnError, match="no class has a positive row, so there is no macro"
        ):
            metric(nothing, nothing, ANIMALS, average="macro")
    assert float(exact_match(nothing, nothing, ANIMALS)) == 1


def test_what_is_refused():
    targets = ANIMALS.encode(["pug", "cat"])
    with pytest.raises(
        HierlearnError, match="unknown average 'weighted'; known: level, macro, mic"
    ):
        hierarchical_f1(targets, targets, ANIMALS, average="weighted")
    for beta in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(HierlearnError, match=r"beta = .* must be a positive number"):
            hierarchical_f1(targets, targets, ANIMALS, beta=beta)
    with pytest.raises(
        HierlearnError, match=r"answers \(2, 6\) must match rows and classes \(2, 7"
    ):
        hierarchical_f1(targets[:, :6], targets, ANIMALS)
    with pytest.raises(
        HierlearnError, match=r"targets \(1, 7\) must match rows and classes \(2, 7"
    ):
        hierarchical_f1(targets, targets[:1], ANIMALS)
    with pytest.raises(
        HierlearnError, match=r"row 0: the entry of 'animal' in answers is 0.5, but"
    ):
        hierarchical_f1(torch.full((2, 7), 0.5), targets, ANIMALS)
    for metric, name in (
        (hierarchical_precision, "hierarchical precision"),
        (hierarchical_recall, "hierarchical recall"),
        (hierarchical_f1, "hierarchical F"),
        (exact_match, "exact match"),
    ):
        with pytest.raises(HierlearnError, match=f"no rows: an empty test set has no {name}"):
            metric(targets[:0], targets[:0], ANIMALS)
