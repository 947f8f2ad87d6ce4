"""Reference decoders that stop early: thresholds, risk control."""

import math
from fractions import Fraction

import pytest

from reference import decoding
from reference.decoding_examples import (
    CALIBRATION,
    ROW,
    SMALL,
    TREE,
    calibration_sets,
    cases,
    most_specific,
    multi_hot,
    tenths,
)


def test_stop_by_hand():
    # the chain animal, dog, pug has 7, 6 and 3 tenths
    out = [decoding.stop([ROW], TREE, Fraction(t, 10))[0] for t in (0, 2, 3, 5, 6, 7, 10)]
    assert out == [5, 5, 3, 3, 0, -1, -1]
    # dog has 9 tenths, but animal before it only 5
    assert decoding.stop([tenths(5, 4, 1, 9, 2, 3)], TREE, Fraction(6, 10)) == [-1]
    assert decoding.stop([tenths(5, 4, 1, 9, 2, 3)], TREE, Fraction(4, 10)) == [3]
    assert decoding.stop([tenths(0, 0, 0, 0, 0, 0)], TREE, 0) == [-1]
    assert decoding.deepest_above([tenths(5, 4, 1, 9, 2, 3)], TREE, Fraction(6, 10)) == [3]
    assert decoding.deepest_above([ROW], TREE, Fraction(7, 10)) == [-1]


def test_above_one_half_stop_is_the_deepest_class_of_a_tree():
    for _, parents, p, _ in cases(6, count=60, size=9):
        for threshold in (Fraction(1, 2), Fraction(3, 5), Fraction(4, 5), 1):
            assert decoding.stop([p], parents, threshold) == decoding.deepest_above(
                [p], parents, threshold
            )
    # In a DAG two classes may both hold more than half and neither lie above the other: 35, 45
    # and 20 of 100 end at 0, 4 and 3, where 4 lies under 0 and 3, and 3 under 2 under 1.
    parents = [(), (), (1,), (2,), (0, 3)]
    row = [Fraction(v, 100) for v in (80, 65, 65, 65, 45)]
    assert decoding.terminal_mass(row, parents) == [Fraction(v, 100) for v in (35, 0, 0, 20, 45)]
    assert decoding.stop([row], parents, Fraction(1, 2)) == [0]
    assert decoding.deepest_above([row], parents, Fraction(1, 2)) == [3]


def test_rows_needed_by_hand():
    # 1 / (n + 1) <= alpha
    assert [decoding.rows_needed(a) for a in (0.5, 0.1, 0.099, 0.07, 0.01)] == [1, 9, 10, 14, 99]
    assert [decoding.rows_needed(1 / d) for d in range(2, 200)] == list(range(1, 199))


def test_risk_threshold_by_hand():
    rows = [row for row, _, _ in CALIBRATION]
    targets = [multi_hot(SMALL, *labels) for _, labels, _ in CALIBRATION]
    scores = [score for _, _, score in CALIBRATION]
    pairs = list(zip(rows, targets, strict=True))
    assert [decoding.first_wrong(row, y, SMALL) for row, y in pairs] == scores
    # the scores 0, 5, 6 and 8 tenths: so many rows err
    errors = [decoding.stop_errors(rows, targets, SMALL, Fraction(t, 10)) for t in (0, 4, 5, 6, 8)]
    assert errors == [3, 3, 2, 1, 0]
    # (errors + 1) / 5 <= alpha allows 0, 0, 1, 1, 2 and 3 errors
    out = [decoding.risk_threshold(rows, targets, SMALL, a) for a in (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)]
    assert out == tenths(8, 8, 6, 6, 5, 0)
    with pytest.raises(ValueError, match=r"4 rows; alpha 0\.19 needs 5"):
        decoding.risk_threshold(rows, targets, SMALL, 0.19)
    for alpha in (0, 1, -0.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            decoding.risk_threshold(rows, targets, SMALL, alpha)


def test_the_score_is_the_smallest_p_so_far():
    # p rises along the chain 0, 2: at 3 tenths the walk never reaches the wrong class
    row = tenths(3, 2, 9, 1)
    assert decoding.first_wrong(row, multi_hot(SMALL, 3), SMALL) == Fraction(3, 10)
    assert decoding.first_wrong(row, multi_hot(SMALL, 1), SMALL) == Fraction(3, 10)
    # two paths: either is right; no label: nothing is
    assert decoding.first_wrong(row, multi_hot(SMALL, 2, 3), SMALL) == 0
    assert decoding.first_wrong(row, multi_hot(SMALL), SMALL) == Fraction(3, 10)


@pytest.mark.parametrize("most_parents", [1, 3])
def test_risk_threshold_is_a_quantile_of_the_scores(most_parents):
    for parents, rows, targets in calibration_sets(7, most_parents=most_parents):
        pairs = list(zip(rows, targets, strict=True))
        scores = [decoding.first_wrong(row, y, parents) for row, y in pairs]
        for t in sorted({0, *scores}, reverse=True):
            late = sum(s > t for s in scores)
            assert decoding.stop_errors(rows, targets, parents, t) == late
        for alpha in (0.15, 0.25, 0.5, 0.9):
            allowed = math.floor(Fraction(str(alpha)) * (len(rows) + 1)) - 1
            first = min(t for t in {0, *scores} if sum(s > t for s in scores) <= allowed)
            assert decoding.risk_threshold(rows, targets, parents, alpha) == first


@pytest.mark.parametrize("most_parents", [1, 3])
def test_the_promises_hold_on_average_over_which_row_is_left_out(most_parents):
    # Exchangeable rows: given all n + 1 of them, each is equally often the one not calibrated on.
    # So the promise must hold for every such collection, and not only in the long run.
    for parents, rows, targets in calibration_sets(8, most_parents=most_parents):
        for alpha in (0.2, 0.35):
            errors = missed = 0
            for i in range(len(rows)):
                rest = rows[:i] + rows[i + 1 :], targets[:i] + targets[i + 1 :]
                t = decoding.risk_threshold(*rest, parents, alpha)
                errors += decoding.stop_errors(rows[i : i + 1], targets[i : i + 1], parents, t)
                t = decoding.conformal_threshold(*rest, parents, alpha)
                found = decoding.conformal(rows[i : i + 1], parents, t)[0]
                missed += any(y and not c for y, c in most_specific(parents, targets[i], found))
            assert errors <= alpha * len(rows)
            assert missed <= alpha * len(rows)
