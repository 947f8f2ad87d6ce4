"""Reference metrics of rankings and of precision and recall: by hand and against scikit-learn."""

import math
import random

import numpy as np
import pytest
from sklearn.metrics import (
    auc,
    average_precision_score,
    coverage_error,
    label_ranking_average_precision_score,
    precision_recall_curve,
    top_k_accuracy_score,
)

from reference import metrics
from reference.metric_examples import NAN, SCORES, TARGETS, TREE, random_case
from tolerances import FLOAT64


def test_hit_at_k_by_hand():
    assert metrics.hit_at_k(SCORES, TARGETS, reduction="none") == FLOAT64.approx([1, 0, 1, NAN])
    assert metrics.hit_at_k(SCORES, TARGETS) == FLOAT64.approx(2 / 3)
    assert metrics.hit_at_k(SCORES, TARGETS, 3) == FLOAT64.approx(2 / 3)  # B: oak, cat, bulldog
    assert metrics.hit_at_k(SCORES, TARGETS, 4) == 1
    # a tie at the edge of the k best: the earlier class number is in, the later one is not
    assert metrics.hit_at_k([[0.5, 0.5, 0.5]], [[0, 1, 0]], 1) == 0
    assert metrics.hit_at_k([[0.5, 0.5, 0.5]], [[0, 1, 0]], 2) == 1


def test_mean_reciprocal_rank_by_hand():
    rows = metrics.mean_reciprocal_rank(SCORES, TARGETS, reduction="none")
    assert rows == FLOAT64.approx([1, 1 / 4, 1, NAN])
    assert metrics.mean_reciprocal_rank(SCORES, TARGETS) == FLOAT64.approx(3 / 4)
    assert metrics.mean_reciprocal_rank([[0.5, 0.5, 0.5]], [[0, 0, 1]]) == FLOAT64.approx(1 / 3)


def test_coverage_by_hand():
    # A: down to pug .4. B: down to animal .2, the sixth. C: down to oak .1, the last.
    assert metrics.coverage(SCORES, TARGETS, reduction="none") == FLOAT64.approx([3, 6, 7, NAN])
    assert metrics.coverage(SCORES, TARGETS) == FLOAT64.approx(16 / 3)
    assert metrics.coverage([[0.5, 0.5, 0.5, 0.1]], [[1, 0, 0, 0]]) == 3  # ties count


def test_no_row_that_counts_gives_nan():
    assert math.isnan(metrics.hit_at_k(SCORES[3:], TARGETS[3:]))
    assert math.isnan(metrics.average_precision(SCORES[3:], TARGETS[3:]))
    assert math.isnan(metrics.clus_au_prc(SCORES[3:], TARGETS[3:]))
    assert math.isnan(metrics.hier_dist(SCORES[3:], TARGETS[3:], TREE))


def test_ranking_against_sklearn():
    rng = random.Random(1)
    for grid in (None, 4) * 20:
        parents, scores, targets = random_case(rng, grid=grid, labeled=True)
        assert metrics.coverage(scores, targets) == FLOAT64.approx(coverage_error(targets, scores))
        # with one positive a row and no ties, ranking average precision is the reciprocal rank
        C = len(parents)
        scores = [[rng.random() for _ in range(C)] for _ in scores]
        labels = [rng.randrange(C) for _ in scores]
        single = [[c == label for c in range(C)] for label in labels]
        expected = label_ranking_average_precision_score(single, scores)
        assert metrics.mean_reciprocal_rank(scores, single) == FLOAT64.approx(expected)
        if C > 2:  # scikit-learn wants the scores of two classes as one column
            for k in range(1, C):
                expected = top_k_accuracy_score(labels, scores, k=k, labels=range(C))
                assert metrics.hit_at_k(scores, single, k) == FLOAT64.approx(expected)


def test_average_precision_by_hand():
    # .9: tp 1 fp 0, P = 1.  .8: 1 1.  .7: 2 2, P = 1/2.  .6: 3 2, P = 3/5.  (1 + 1/2 + 3/5) / 3
    scores = [[0.9], [0.8], [0.7], [0.7], [0.6]]
    targets = [[1], [0], [1], [0], [1]]
    assert metrics.average_precision(scores, targets) == FLOAT64.approx(0.7)
    # class 1 has no positive: pooled .9+ .8- .7- .6+ with P = 1 and 2/4; alone 1 and NaN
    scores, targets = [[0.9, 0.8], [0.6, 0.7]], [[1, 0], [1, 0]]
    assert metrics.average_precision(scores, targets) == FLOAT64.approx(3 / 4)
    assert metrics.average_precision(scores, targets, "none") == FLOAT64.approx([1, NAN])
    assert metrics.average_precision(scores, targets, "macro") == 1
    assert metrics.average_precision(scores, targets, classes=[0]) == 1


def test_average_precision_against_sklearn():
    rng = random.Random(2)
    for grid in (None, 5) * 20:
        parents, scores, targets = random_case(rng, grid=grid, labeled=True)
        y, s = np.array(targets, dtype=int), np.array(scores)
        expected = average_precision_score(y.ravel(), s.ravel())
        assert metrics.average_precision(scores, targets) == FLOAT64.approx(expected)
        assert average_precision_score(y, s, average="micro") == FLOAT64.approx(expected)
        seen = [c for c in range(len(parents)) if y[:, c].any()]
        each = [average_precision_score(y[:, c], s[:, c]) for c in seen]
        out = metrics.average_precision(scores, targets, "none")
        assert [out[c] for c in seen] == FLOAT64.approx(each)
        assert sum(1 for v in out if math.isnan(v)) == len(parents) - len(seen)
        assert metrics.average_precision(scores, targets, "macro") == FLOAT64.approx(np.mean(each))


def test_au_prc_leaves_out_the_roots_of_go():
    names = ["GO0003674", "GO0005575", "GO0008150", "GO0000001", "01"]
    assert metrics.evaluated_classes(names) == [3, 4]
    assert metrics.evaluated_classes(["01", "02", "01/01"]) == [0, 1, 2]  # top classes count
    # the first three are always right; of the rest .9- .8+ remains: P = 1/2
    scores, targets = [[1.0, 1.0, 1.0, 0.8, 0.9]], [[1, 1, 1, 1, 0]]
    assert metrics.au_prc(scores, targets, names) == FLOAT64.approx(1 / 2)


def area(*pairs, **options):
    """Clus's area of one class with these (score, truth) entries."""
    return metrics.clus_au_prc([[s] for s, _ in pairs], [[t] for _, t in pairs], **options)


def test_clus_au_prc_by_hand():
    # points (0, 1) (1/3, 1) (1/3, 1/2) (2/3, 1/2) (1, 3/5): 1/3 + 1/6 + (1/2 + 3/5) / 6
    out = area((0.9, 1), (0.8, 0), (0.7, 1), (0.7, 0), (0.6, 1))
    assert out == FLOAT64.approx(1 / 3 + 1 / 6 + 1.1 / 6)
    # one right, then three right and four wrong tied: from (tp, fp) = (1, 0) to (4, 4) fp grows by
    # 4/3 a tp, so that tp = 2 has P = 2 / (2 + 4/3) = 3/5, tp = 3 has 3 / (3 + 8/3) = 9/17
    out = area((0.9, 1), *[(0.5, 1)] * 3, *[(0.5, 0)] * 4)
    p = [1, 1, 3 / 5, 9 / 17, 1 / 2]
    assert out == FLOAT64.approx(sum(p[i] + p[i + 1] for i in range(4)) / 8)


def test_clus_curve_at_its_ends():
    # the first threshold with an answer has precision 1/2, kept back to recall 0
    assert metrics.clus_curve([(0.9, 1), (0.9, 0), (0.9, 1), (0.9, 0)]) == [(0.0, 0.5), (1.0, 0.5)]
    # a wrong answer first: the curve starts at precision 0 and climbs in a straight line
    assert metrics.clus_curve([(0.9, 0), (0.8, 1)])[-2:] == [(0.0, 0.0), (1.0, 0.5)]
    assert area((0.9, 0), (0.8, 1)) == FLOAT64.approx(1 / 4)
    # what comes after the last positive adds no area, though the curve continues down
    assert area((0.9, 1), (0.8, 0), (0.7, 0)) == 1
    assert area((0.9, 1)) == 1


def test_clus_pools_classes_with_a_positive_only():
    scores, targets = [[0.9, 0.95], [0.1, 0.2]], [[1, 0], [0, 0]]
    assert metrics.clus_au_prc(scores, targets) == 1
    # with class 1: .95- .9+ gives (0, 0) (1, 1/2)
    assert metrics.clus_au_prc(scores, targets, without_positives=True) == FLOAT64.approx(1 / 4)
    assert math.isnan(metrics.clus_au_prc(scores, targets, classes=[1]))


def test_clus_with_the_thresholds_of_vens_et_al():
    steps = [2 * i / 100 for i in range(51)]
    # both lie between .90 and .92, so the thresholds cannot tell them apart
    assert area((0.911, 1), (0.905, 0)) == 1
    assert area((0.911, 1), (0.905, 0), thresholds=steps) == FLOAT64.approx(1 / 2)
    # scores on the steps, an entry of score 1 among them: nothing changes
    pairs = [(1.0, 1), (0.9, 0), (0.5, 1), (0.5, 0), (0.02, 1), (0.0, 0)]
    assert area(*pairs, thresholds=steps) == FLOAT64.approx(area(*pairs))


def test_clus_au_prc_against_sklearn_without_ties():
    # no positives tied, and a positive first: then there is nothing to interpolate, and
    # scikit-learn's end at recall 0, precision 1, is Clus's too
    rng = random.Random(3)
    for _ in range(30):
        pairs = [(2.0, 1)] + [(rng.random(), rng.random() < 0.4) for _ in range(20)]
        precision, recall, _ = precision_recall_curve([t for _, t in pairs], [s for s, _ in pairs])
        assert area(*pairs) == FLOAT64.approx(auc(recall, precision))


def test_clus_interpolation_against_the_hyperbola():
    # from (tp, fp) = (1, 1) to (2000, 3000): precision x / (x + f(x)), f(x) = 1 + s (x - 1). With
    # a = 1 + s and b = 1 - s the antiderivative of x / (a x + b) is x/a - b/a^2 ln(a x + b)
    points = metrics.clus_curve(
        [(0.9, 1), (0.9, 0)] + [(0.5, 1)] * 1999 + [(0.5, 0)] * 2999,
    )
    assert len(points) == 2001
    s = 2999 / 1999
    a, b = 1 + s, 1 - s

    def integral(x):
        return x / a - b / a**2 * math.log(a * x + b)

    expected = (0.5 + integral(2000) - integral(1)) / 2000
    trapezoids = sum(
        (points[i + 1][0] - points[i][0]) * (points[i + 1][1] + points[i][1]) / 2
        for i in range(2000)
    )
    assert trapezoids == pytest.approx(expected, abs=1e-5)
