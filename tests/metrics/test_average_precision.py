"""Average precision and both AU(PRC): scikit-learn, naive loops, curves by hand."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn.metrics import average_precision_score

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.metrics import au_prc, average_precision, clus_au_prc, evaluated_classes
from hierlearn.metrics.average_precision import curve
from metrics.score_batches import assert_same, batches, random_batch
from reference import metrics as naive

GO = Hierarchy.from_edges(
    [
        ("GO0003674", "GO1"),
        ("GO0005575", "GO2"),
        ("GO:0008150", "GO1"),
        ("GO0003674", "GO2"),
        ("other", "GO3"),
    ]
)


@given(batches(labels=(0, 4)))
def test_naive_loops_agree(batch):
    if not batch.labeled:
        return
    for average in ("micro", "macro", "none"):
        expected = naive.average_precision(*batch.lists, average)
        assert_same(average_precision(batch.scores, batch.targets, average=average), expected)
    assert_same(clus_au_prc(batch.scores, batch.targets), naive.clus_au_prc(*batch.lists))


@given(batches(labels=(1, 4)))
def test_scikit_learn_agrees_ties_included(batch):
    truth, scores = batch.targets.numpy(), batch.scores.numpy()
    # Raveled, since scikit-learn takes one column as binary labels, not as one class of several.
    expected = average_precision_score(truth.ravel(), scores.ravel())
    assert_same(average_precision(batch.scores, batch.targets), expected)
    found = average_precision(batch.scores, batch.targets, average="none")
    for c in range(len(batch.hierarchy)):
        if truth[:, c].any():
            assert_same(found[c], average_precision_score(truth[:, c], scores[:, c]))
        else:
            assert found[c].isnan()


def test_scikit_learn_agrees_on_many_rows_in_single_precision():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(300, 40)).astype(np.float32)
    truth = rng.random((300, 40)) < 0.1
    for average in ("micro", "macro"):
        found = average_precision(
            torch.from_numpy(scores), torch.from_numpy(truth), average=average
        )
        assert_same(found, average_precision_score(truth, scores, average=average))


@given(batches(labels=(1, 4)))
def test_some_classes_alone(batch):
    some = [c for c in range(len(batch.hierarchy)) if c % 2 == 0]
    if not batch.targets[:, some].any():
        return
    mask = torch.zeros(len(batch.hierarchy), dtype=torch.bool)
    mask[some] = True
    for classes in (mask, mask.numpy(), mask.tolist()):
        for average in ("micro", "macro", "none"):
            expected = naive.average_precision(*batch.lists, average, some)
            found = average_precision(batch.scores, batch.targets, average=average, classes=classes)
            assert_same(found, expected)
        expected = naive.clus_au_prc(*batch.lists, some)
        assert_same(clus_au_prc(batch.scores, batch.targets, classes=classes), expected)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_average_precision_by_hand():
    # Falling: positive (1/1), negative, positive (2/3): (1 + 2/3) / 2.
    assert_same(average_precision(column(3, 2, 1), column(1, 0, 1)), 5 / 6)
    # All three tie: two of three at once.
    assert_same(average_precision(column(1, 1, 1), column(1, 0, 1)), 2 / 3)


def test_the_curve_of_clus_by_hand():
    # A positive, a negative, a positive: level at 1 to recall 1/2, down to precision 1/2 there, and
    # from tp 1, fp 1 to tp 2, fp 1: precision 2/3 at recall 1.
    expected = 1 / 2 + (1 / 2 + 2 / 3) / 2 / 2
    assert_same(clus_au_prc(column(3, 2, 1), column(1, 0, 1)), expected)
    # A positive, then two positives tied with two negatives: fp grows by one as tp does.
    points = [1, 2 / 3, 3 / 5]  # precision at tp = 1, 2, 3
    expected = (1 + (points[0] + points[1]) / 2 + (points[1] + points[2]) / 2) / 3
    assert_same(clus_au_prc(column(3, 1, 1, 1, 1), column(1, 1, 0, 1, 0)), expected)
    # A negative first: the curve begins at precision 0.
    assert_same(clus_au_prc(column(3, 2), column(0, 1)), (0 + 1 / 2) / 2)
    # Everything ties: the only point is extended level to recall 0.
    assert_same(clus_au_prc(column(1, 1, 1, 1), column(1, 0, 1, 0)), 1 / 2)


def test_clus_leaves_out_classes_without_a_positive_and_c_hmcnn_does_not():
    scores = torch.tensor([[3.0, 5.0], [2.0, 4.0]])
    targets = torch.tensor([[1, 0], [0, 0]])
    assert_same(clus_au_prc(scores, targets), 1.0)
    assert_same(average_precision(scores, targets), 1 / 3)


def test_long_ties_are_summed_in_pieces(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 5, (60, 3), generator=generator).double()
    targets = torch.rand(60, 3, generator=generator) < 0.4
    expected = naive.clus_au_prc(scores.tolist(), targets.tolist())
    for steps in (1, 7, 1 << 20):
        # The package's name average_precision is the function, so the module is looked up.
        module = sys.modules["hierlearn.metrics.average_precision"]
        monkeypatch.setattr(module, "STEPS_AT_ONCE", steps)
        assert_same(clus_au_prc(scores, targets), expected)


def test_the_roots_of_go_are_not_evaluated():
    kept = [name for name, keep in zip(GO.names, evaluated_classes(GO), strict=True) if keep]
    assert sorted(kept) == ["GO1", "GO2", "GO3", "other"]
    batch = random_batch(GO, 12, labels=2)
    names = [name.replace(":", "") for name in GO.names]
    expected = naive.au_prc(*batch.lists, names)
    assert_same(au_prc(batch.scores, batch.targets, GO), expected)
    assert not torch.equal(
        au_prc(batch.scores, batch.targets, GO), average_precision(batch.scores, batch.targets)
    )


def test_only_top_classes_of_that_name_are_roots():
    deep = Hierarchy.from_paths(["x/GO0003674", "GO0005575/y", "root/z"])
    assert evaluated_classes(deep).sum() == len(deep) - 1  # GO0005575 alone


@given(batches(labels=(1, 3)))
def test_on_a_tree_without_go_nothing_is_left_out(batch):
    assert evaluated_classes(batch.hierarchy).all()
    found = au_prc(batch.scores, batch.targets, batch.hierarchy)
    assert_same(found, average_precision(batch.scores, batch.targets))


def test_the_points_of_the_curve():
    tp, fp, before, own = curve(column(4, 3, 3, 3, 1)[:, 0], column(0, 1, 0, 1, 1)[:, 0].bool())
    assert tp.tolist() == [2, 3]
    assert fp.tolist() == [2, 2]
    assert before.tolist() == [1, 2]
    assert own.tolist() == [2, 1]


def test_what_is_refused():
    scores, targets = torch.rand(3, 4), torch.zeros(3, 4)
    with pytest.raises(
        HierlearnError, match="unknown average 'weighted'; known: macro, micro, none"
    ):
        average_precision(scores, targets, average="weighted")
    with pytest.raises(
        HierlearnError, match="no evaluated class has a positive among the 3 rows, so"
    ):
        average_precision(scores, targets)
    with pytest.raises(HierlearnError, match="there is no Clus's AU"):
        clus_au_prc(scores, targets)
    with pytest.raises(HierlearnError, match="no rows: an empty test set has no micro average"):
        average_precision(scores[:0], targets[:0])
    for wrong in ([True, False, True], [1, 4], [], [False] * 4, [[1]], [0.5]):
        with pytest.raises(
            HierlearnError, match=r"classes must be a boolean mask of shape \(4,\) with at least"
        ):
            average_precision(scores, targets, classes=wrong)
    with pytest.raises(HierlearnError, match=r"scores \(3, 4\) must be \(N, 7\)"):
        au_prc(scores, targets, GO)
