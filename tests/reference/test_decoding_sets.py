"""Reference decoders of sets: worked in exact fractions, and closed forms."""

import itertools
import math
from fractions import Fraction

import pytest

from reference import decoding
from reference.decoding_examples import (
    DAG,
    ROW,
    TREE,
    calibration_sets,
    cases,
    chosen,
    multi_hot,
    tenths,
)
from reference.taxonomy import ancestors_or_self, descendants_or_self
from tolerances import FLOAT64


def test_ancestor_sets_by_hand():
    sets = decoding.ancestor_sets([5, -1, 2, 1], TREE)
    assert chosen(*sets) == [{0, 3, 5}, set(), {0, 2}, {1}]
    assert chosen(*decoding.ancestor_sets([4, 3], DAG)) == [{0, 1, 2, 3, 4}, {0, 1, 3}]


def test_coherent_by_hand():
    # bulldog lifts dog and animal to 5 tenths, cat has 4 of its own
    row = tenths(1, 2, 4, 3, 5, 1)
    out = [decoding.coherent([row], TREE, Fraction(t, 10))[0] for t in (0, 2, 4, 5, 6)]
    assert chosen(*out) == [{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4}, {0, 2, 3, 4}, {0, 3, 4}, set()]
    assert chosen(*decoding.coherent([[0.0, 0.0, 0.0, 0.0, 0.5]], DAG)) == [{0, 1, 2, 3, 4}]
    assert chosen(*decoding.coherent([[0.0, 0.0, 0.0, 0.5, 0.0]], DAG)) == [{0, 1, 3}]


def test_closed_sets_by_hand():
    sets = decoding.closed_sets([(), (), (0,)])
    assert [sorted(members) for members in sets] == [[], [0], [1], [0, 1], [0, 2], [0, 1, 2]]
    assert decoding.closed_sets([(), (), (0,)], keep=[0, 2]) == [set(), {0}, {0, 2}]


def test_closed_sets_are_all_of_them():
    for most_parents in (1, 3):
        for _, parents, _, _ in cases(4, count=10, most_parents=most_parents):
            every = itertools.product([False, True], repeat=len(parents))
            closed = {
                frozenset(members)
                for members in chosen(*every)
                if all(set(ancestors_or_self(parents, c)) <= members for c in members)
            }
            found = decoding.closed_sets(parents)
            assert len(found) == len(closed)
            assert set(found) == closed


def test_f_beta_by_hand():
    assert decoding.f_beta({0, 3}, {0, 3, 5}) == Fraction(2 * 2, 2 + 3)
    assert decoding.f_beta({0, 3}, {0, 3, 5}, 2) == Fraction(5 * 2, 2 + 4 * 3)  # near recall, 2/3
    assert decoding.f_beta({0, 3}, {0, 3, 5}, 0) == 1  # precision
    assert decoding.f_beta(set(), {0}) == decoding.f_beta({0}, set()) == 0
    assert decoding.f_beta(set(), set()) == decoding.f_beta(set(), {0}, 0) == 0


def test_expected_f_by_hand():
    sets = [{0}, {0, 3}, {0, 3, 5}, {0, 1, 3}, {0, 1, 3, 5}]
    # ten times the value; the summands are plant, cat, dog, bulldog, pug
    by_hand = [
        Fraction(2, 3) + Fraction(2, 3) + 1 + Fraction(3, 2),
        Fraction(1, 2) + 1 + 2 * Fraction(4, 5) + 3 * Fraction(4, 5),
        Fraction(2, 5) + Fraction(4, 5) + 2 * Fraction(4, 6) + 3,
        2 * Fraction(2, 4)
        + Fraction(2, 5)
        + Fraction(4, 5)
        + 2 * Fraction(4, 6)
        + 3 * Fraction(4, 6),
        2 * Fraction(2, 5)
        + Fraction(2, 6)
        + Fraction(4, 6)
        + 2 * Fraction(4, 7)
        + 3 * Fraction(6, 7),
    ]
    found = decoding.expected_fs(sets, ROW, TREE)
    assert found == [value / 10 for value in by_hand]
    # 11/20 < 83/150: the third and the fourth tie there, and plant comes before pug
    assert found[1] == Fraction(11, 20)
    assert found[2] == found[3] == Fraction(83, 150) > found[4]
    assert chosen(*decoding.expected_f([ROW], TREE)) == [{0, 1, 3}]
    assert chosen(*decoding.expected_f([ROW], TREE, keep=[0, 3, 5])) == [{0, 3, 5}]
    # precision alone: animal, 7 tenths; with dog (7 + 6) / 2
    assert chosen(*decoding.expected_f([ROW], TREE, beta=0)) == [{0}]
    # nearly recall alone: everything with mass
    assert chosen(*decoding.expected_f([ROW], TREE, beta=1000)) == [{0, 1, 2, 3, 4, 5}]
    # nothing ends at a class: every set has 0, and the smallest wins
    assert chosen(*decoding.expected_f([[0] * 6], TREE)) == [set()]


def test_expected_f_is_the_best_size_of_the_heaviest_classes():
    # For a fixed size k the value is a sum of weights over the set, and weights fall along paths.
    for most_parents in (1, 3):
        for rng, parents, p, q in cases(5, most_parents=most_parents):
            beta = rng.choice([1, 2, Fraction(1, 2)])
            classes = range(len(parents))
            best, value = [], 0
            for k in range(1, len(parents) + 1):
                weights = [
                    sum(
                        (1 + beta**2) * q[t] / (k + beta**2 * len(ancestors_or_self(parents, t)))
                        for t in descendants_or_self(parents, c)
                    )
                    for c in classes
                ]
                heaviest = sorted(classes, key=lambda c: (-weights[c], c))[:k]
                if sum(weights[c] for c in heaviest) > value:
                    best, value = heaviest, sum(weights[c] for c in heaviest)
            assert chosen(*decoding.expected_f([p], parents, beta)) == [set(best)]
            assert decoding.expected_fs([best], p, parents, beta) == [value]


def test_memberships_by_hand():
    # leaves at or below: animal 3, dog 2; densities 7/3, 2, 1, 3, 2, 3 tenths
    v = decoding.memberships(ROW, TREE)
    assert v == [Fraction(7, 30), *tenths(2), Fraction(7, 30), *tenths(3, 3, 3)]
    # spread 0: the densities are p itself, and everything under animal has animal's
    assert decoding.memberships(ROW, TREE, spread=0) == tenths(7, 2, 7, 7, 7, 7)
    # with dog as a terminal class too: animal 4, dog 3; densities 7/4, 2, 1, 2, 2, 3 tenths
    v = decoding.memberships(ROW, TREE, terminals=[1, 2, 3, 4, 5])
    assert v == [Fraction(7, 40), *tenths(2), Fraction(7, 40), *tenths(2, 2, 3)]
    # with plant and cat alone dog has none at or below it: what it has comes from animal
    assert decoding.memberships(ROW, TREE, terminals=[1, 2]) == tenths(7, 2, 7, 7, 7, 7)
    # the DAG has one leaf, at or below every class; 2 lies under 0 only
    v = decoding.memberships(tenths(3, 6, 4, 5, 2), DAG)
    assert v == tenths(3, 6, 4, 6, 6)
    # half a power of the size: animal's 3 leaves, dog's 2
    v = decoding.memberships([0.7, 0.2, 0.1, 0.6, 0.2, 0.3], TREE, spread=0.5)
    best = [0.7 / math.sqrt(3), 0.2, 0.7 / math.sqrt(3), *[0.6 / math.sqrt(2)] * 3]
    assert v == FLOAT64.approx(best)


@pytest.mark.parametrize(
    ("threshold", "spread", "terminals", "members", "tops"),
    [
        # p of the leaves plant, cat, bulldog, pug: 2, 1, 2, 3 tenths
        (Fraction(31, 100), None, None, set(), set()),
        (Fraction(3, 10), None, None, {0, 3, 5}, {5}),
        (Fraction(2, 10), None, None, {0, 1, 3, 4, 5}, {1, 3}),
        (Fraction(1, 10), None, None, {0, 1, 2, 3, 4, 5}, {0, 1}),
        # dog ends with 6 - 2 - 3 tenths; below 2 tenths it comes as the parent of bulldog
        (Fraction(2, 10), None, [1, 2, 3, 4, 5], {0, 1, 3, 4, 5}, {1, 3}),
        (Fraction(3, 10), None, [1, 2, 3, 4, 5], {0, 3, 5}, {5}),
        # by subtrees: dog holds 6 tenths in two leaves, animal 7 in three
        (Fraction(31, 100), 1, None, set(), set()),
        (Fraction(3, 10), 1, None, {0, 3, 4, 5}, {3}),
        (Fraction(7, 30), 1, None, {0, 2, 3, 4, 5}, {0}),
        (Fraction(2, 10), 1, None, {0, 1, 2, 3, 4, 5}, {0, 1}),
        (Fraction(3, 10), 1, [1, 2, 3, 4, 5], {0, 3, 5}, {5}),
        (Fraction(2, 10), 1, [1, 2, 3, 4, 5], {0, 1, 3, 4, 5}, {1, 3}),
        (0, None, None, {0, 1, 2, 3, 4, 5}, {0, 1}),
    ],
)
def test_conformal_sets_by_hand(threshold, spread, terminals, members, tops):
    options = {"threshold": threshold, "spread": spread, "terminals": terminals}
    assert chosen(*decoding.conformal([ROW], TREE, **options)) == [members]
    assert chosen(*decoding.conformal_subtrees([ROW], TREE, **options)) == [tops]
    if spread is None and terminals is None:
        plain = set(decoding.leaf_conformal([ROW], TREE, threshold)[0])
        assert plain == members & {1, 2, 4, 5}


def test_an_inner_terminal_class_alone_stands_for_itself():
    row = tenths(9, 1, 0, 9, 1, 1)  # 7 tenths end at dog, a tenth at each of its leaves
    options = {"threshold": Fraction(5, 10), "terminals": [1, 2, 3, 4, 5]}
    assert chosen(*decoding.conformal([row], TREE, **options)) == [{0, 3}]
    assert chosen(*decoding.conformal_subtrees([row], TREE, **options)) == [{3}]


def test_conformal_sets_in_a_dag_by_hand():
    # the only leaf, 4, has 2 tenths; with spread it has what 1 has
    row = tenths(3, 6, 4, 5, 2)
    assert chosen(*decoding.conformal([row], DAG, Fraction(3, 10))) == [set()]
    assert chosen(*decoding.conformal([row], DAG, Fraction(2, 10))) == [{0, 1, 2, 3, 4}]
    assert chosen(*decoding.conformal([row], DAG, Fraction(6, 10), 1)) == [{0, 1, 2, 3, 4}]
    assert chosen(*decoding.conformal_subtrees([row], DAG, Fraction(6, 10), 1)) == [{4}]


def test_conformal_scores_and_threshold_by_hand():
    wanted = {None: tenths(3, 1, 1, 3), 1: [*tenths(3), *[Fraction(7, 30)] * 2, *tenths(3)]}
    for spread, expected in wanted.items():
        scores = [
            decoding.conformal_score(ROW, multi_hot(TREE, *labels), TREE, spread)
            for labels in ([5], [2], [5, 2], [0], [])
        ]
        assert scores == [*expected, math.inf]
    flat, first = [(), ()], [True, False]
    rows = [tenths(v, 10 - v) for v in (9, 5, 7, 3)]  # the scores: 9, 5, 7 and 3 tenths
    # k / 5 <= alpha: k = 1, 1, 2, 3, 4
    out = [
        decoding.conformal_threshold(rows, [first] * 4, flat, a) for a in (0.2, 0.39, 0.4, 0.6, 0.8)
    ]
    assert out == tenths(3, 3, 5, 7, 9)
    # 0.29 of 99 + 1 rows is 29 of them, though 0.29 * 100 falls short of 29
    rows = [[Fraction(v, 100), 0] for v in range(99, 0, -1)]
    out = decoding.conformal_threshold(rows, [first] * 99, flat, 0.29)
    assert out == Fraction(29, 100)
    with pytest.raises(ValueError, match=r"8 rows; alpha 0\.1 needs 9"):
        decoding.conformal_threshold(rows[:8], [first] * 8, flat, 0.1)


def test_conformal_threshold_is_the_largest_that_misses_few_enough():
    for parents, rows, targets in calibration_sets(9):
        for spread in (None, 0, 1):
            scores = [
                decoding.conformal_score(row, y, parents, spread)
                for row, y in zip(rows, targets, strict=True)
            ]
            for alpha in (0.15, 0.3, 0.7):
                fit = [
                    s
                    for s in scores
                    if (sum(other < s for other in scores) + 1) / (len(rows) + 1) <= alpha
                ]
                t = decoding.conformal_threshold(rows, targets, parents, alpha, spread)
                assert t == max(fit)
