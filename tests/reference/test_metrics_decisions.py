"""Reference metrics of decisions, sets and probabilities: by hand and against scikit-learn."""

import random

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from reference import metrics
from reference.metric_examples import (
    ANIMAL,
    BULLDOG,
    CAT,
    DAG,
    DOG,
    NAN,
    OAK,
    PUG,
    SCORES,
    TARGETS,
    TREE,
    one_hot,
    random_case,
)
from reference.taxonomy import leaves
from reference.test_metrics_distance import dist
from tolerances import FLOAT64


def test_terminal_and_leaf_accuracy_by_hand():
    # terminals: A dog, B oak, C cat (right). Leaves: A pug (right), B has no leaf, C cat (right)
    rows = metrics.terminal_accuracy(SCORES, TARGETS, TREE, reduction="none")
    assert rows == FLOAT64.approx([0, 0, 1, NAN])
    # with the leaves alone as terminals A is right
    assert metrics.terminal_accuracy(SCORES, TARGETS, TREE, leaves(TREE)) == FLOAT64.approx(2 / 3)
    assert metrics.leaf_accuracy(SCORES, TARGETS, TREE, "none") == FLOAT64.approx([1, NAN, 1, NAN])
    wrong = [[0, 0, 0, 0, 0, 1.0, 0]]  # bulldog
    assert metrics.leaf_accuracy(wrong, TARGETS[:1], TREE) == 0


def test_level_accuracy_by_hand():
    # A animal, dog, pug: all right. B plant, oak: wrong. C animal, cat (tied with dog): right
    rows = metrics.level_accuracy(SCORES, TARGETS, TREE, "none")
    expected = [[1, 1, 1], [0, 0, NAN], [1, 1, NAN], [NAN] * 3]
    assert rows == [FLOAT64.approx(row) for row in expected]
    assert metrics.level_accuracy(SCORES, TARGETS, TREE) == FLOAT64.approx([2 / 3, 2 / 3, 1])
    assert metrics.level_accuracy(SCORES[1:], TARGETS[1:], TREE) == FLOAT64.approx(
        [1 / 2, 1 / 2, NAN]
    )


def test_levels_and_answers_by_hand():
    # dog 2, oak 2, animal 1, pug 3
    assert metrics.mean_predicted_level(SCORES, TARGETS, TREE) == 2
    labeled = metrics.mean_predicted_level(SCORES, TARGETS, TREE, unlabeled=False)
    assert labeled == FLOAT64.approx(5 / 3)
    assert metrics.mean_level([PUG, metrics.ROOT], TREE) == 1.5
    # dog of a pug, the root, the pug of no dog, and nothing of nothing
    answers = [DOG, metrics.ROOT, PUG, metrics.ROOT]
    assert metrics.answer_accuracy(answers, TARGETS, "none") == [1, 1, 0, 1]


def test_hierarchical_f1_by_hand():
    # truth pug, dog, animal. Answer bulldog, closed: bulldog, dog, animal: 2 of 3 and 2 of 3
    truth = [one_hot(TREE, PUG)]
    for function in (
        metrics.hierarchical_precision,
        metrics.hierarchical_recall,
        metrics.hierarchical_f1,
    ):
        assert function([BULLDOG], truth, TREE) == FLOAT64.approx(2 / 3)
        assert function([one_hot(TREE, BULLDOG)], truth, TREE) == FLOAT64.approx(2 / 3)
        bare = [c == BULLDOG for c in range(7)]
        assert function([bare], truth, TREE) == FLOAT64.approx(2 / 3)  # the answer is closed first
        assert function([BULLDOG], truth, TREE, "level") == [1, 1, 0]
        # of the classes with a positive, animal 1, dog 1, pug 0
        assert function([BULLDOG], truth, TREE, "macro") == FLOAT64.approx(2 / 3)
        assert function([metrics.ROOT], truth, TREE) == 0


def test_hierarchical_averages_by_hand():
    # A answers animal: tp 1 of 1 answered, 3 true. C answers cat and oak: 4 of 4, 4.
    # D answers nothing of nothing: 0
    predicted = [one_hot(TREE, ANIMAL), one_hot(TREE, CAT, OAK), [0] * 7]
    truth = [TARGETS[0], TARGETS[2], TARGETS[3]]
    assert metrics.hierarchical_precision(predicted, truth, TREE) == 1
    assert metrics.hierarchical_recall(predicted, truth, TREE) == FLOAT64.approx(5 / 7)
    assert metrics.hierarchical_f1(predicted, truth, TREE) == FLOAT64.approx(10 / 12)
    # beta = 2: 5 tp / (answered + 4 true) = 25 / (5 + 28)
    assert metrics.hierarchical_f1(predicted, truth, TREE, beta=2.0) == FLOAT64.approx(25 / 33)
    assert metrics.hierarchical_precision(predicted, truth, TREE, "samples") == FLOAT64.approx(
        2 / 3
    )
    assert metrics.hierarchical_recall(predicted, truth, TREE, "samples") == FLOAT64.approx(4 / 9)
    assert metrics.hierarchical_f1(predicted, truth, TREE, "samples") == FLOAT64.approx(1.5 / 3)
    # animal, plant, cat, oak 1; dog and pug never answered: 0; bulldog never true
    assert metrics.hierarchical_precision(predicted, truth, TREE, "macro") == FLOAT64.approx(4 / 6)
    # level 2: cat and oak of cat, oak and dog; level 3: pug missed, nothing answered
    assert metrics.hierarchical_recall(predicted, truth, TREE, "level") == FLOAT64.approx(
        [1, 2 / 3, 0]
    )
    assert metrics.hierarchical_precision(predicted, truth, TREE, "level") == FLOAT64.approx(
        [1, 1, 0]
    )
    assert metrics.exact_match(predicted, truth, TREE, "none") == [0, 1, 1]


def test_classes_of_the_same_bare_name_are_different_classes():
    # 0 Clothing, 1 Electronics, 2 Clothing/Other, 3 Electronics/Other
    parents = [(), (), (0,), (1,)]
    truth = [one_hot(parents, 2)]
    for average in ("micro", "macro", "samples"):
        assert metrics.hierarchical_f1([3], truth, parents, average) == 0
    assert metrics.exact_match([3], truth, parents) == 0
    assert metrics.hierarchical_f1([2], truth, parents) == 1


def test_sets_against_sklearn():
    rng = random.Random(5)
    for most in (1, 3) * 15:
        parents, scores, targets = random_case(rng, most)
        predicted = [[s > 0.6 for s in row] for row in scores]
        y = np.array(targets, dtype=int)
        sets = [metrics.closed(row, parents) for row in predicted]
        p = np.array([[int(c in answer) for c in range(len(parents))] for answer in sets])
        beta = rng.choice([0.5, 1.0, 2.0])
        seen = [c for c in range(len(parents)) if y[:, c].any()]
        for average in ("micro", "macro", "samples"):
            labels = seen if average == "macro" else None
            if labels == []:
                continue
            expected = precision_recall_fscore_support(
                y, p, beta=beta, labels=labels, average=average, zero_division=0
            )
            out = (
                metrics.hierarchical_precision(predicted, targets, parents, average),
                metrics.hierarchical_recall(predicted, targets, parents, average),
                metrics.hierarchical_f1(predicted, targets, parents, average, beta),
            )
            assert out == FLOAT64.approx(expected[:3])
        assert metrics.exact_match(predicted, targets, parents) == FLOAT64.approx(
            accuracy_score(y, p)
        )


def test_coherence_violations_by_hand():
    # A: dog .9 > animal .6. B: cat, dog > animal .2; oak > plant .3; bulldog .45 > dog .4.
    # C: equal is no violation. D: pug 1 > dog 0
    out = metrics.coherence_violations(SCORES, TREE, reduction="none")
    assert out == [1, 4, 0, 1]
    assert metrics.coherence_violations(SCORES, TREE) == 1.5
    assert metrics.coherence_violations(SCORES, TREE, reduction="sum") == 6
    assert metrics.coherence_violations(SCORES, TREE, 0.0, "none") == [1, 4, 0, 1]
    # with a tolerance of .25: A .3 over; B cat .3, oak .5 over; D
    assert metrics.coherence_violations(SCORES, TREE, 0.25, "none") == [1, 2, 0, 1]
    # each edge of a DAG is counted: 3 over 1 and over 2, 4 over 0 but not over 3
    assert metrics.coherence_violations([[0.5, 0.5, 0.5, 0.8, 0.7]], DAG) == 3


def test_calibration_error_by_hand():
    # two bins; level 1 has .1- .3+ | .8+ .6+: 1/2 |.2 - .5| + 1/2 |.7 - 1| = .3
    # level 2 has .5+ .9-, one bin: |.7 - .5| = .2, for .5 belongs to the upper half
    parents = [(), (), (0,)]
    probabilities = [[0.1, 0.8, 0.5], [0.3, 0.6, 0.9]]
    targets = [[0, 1, 1], [1, 1, 0]]
    assert metrics.calibration_error(probabilities, targets, parents, 2) == FLOAT64.approx(
        [0.3, 0.2]
    )
    # with .5 in the lower half: 1/2 |.5 - 1| + 1/2 |.9 - 0|
    out = metrics.calibration_error(probabilities, targets, parents, 2, closed_side="right")
    assert out == FLOAT64.approx([0.3, 0.7])
    # pooled: 2/6 |.2 - .5| + 4/6 |2.8/4 - 3/4|
    pooled = metrics.calibration_error(probabilities, targets, parents, 2, pooled=True)
    assert pooled == FLOAT64.approx(0.1 + 0.2 / 6)


def test_calibration_error_takes_both_ends():
    for side in ("left", "right"):
        out = metrics.calibration_error([[0.0], [1.0]], [[1], [0]], [()], closed_side=side)
        assert out == [1.0]


def test_calibration_error_against_sklearn():
    rng = random.Random(6)
    for _ in range(20):
        parents, probabilities, targets = random_case(rng, rows=10)
        y, p = np.array(targets, dtype=int).ravel(), np.array(probabilities).ravel()
        bins = rng.choice([1, 5, 15])
        share, mean = calibration_curve(y, p, n_bins=bins)  # of the bins that are not empty
        counts, _ = np.histogram(p, bins, (0.0, 1.0))
        expected = np.sum(counts[counts > 0] * np.abs(mean - share)) / len(p)
        out = metrics.calibration_error(probabilities, targets, parents, bins, pooled=True)
        assert out == FLOAT64.approx(expected)


def test_stop_by_hand():
    p = [0.9, 0.1, 0.2, 0.7, 0.95, 0.3, 0.4]
    assert metrics.greedy_chain(p, TREE) == [ANIMAL, DOG, PUG]
    stops = [metrics.stop(p, TREE, t) for t in (0.0, 0.3, 0.4, 0.69, 0.7, 0.9, 1.0)]
    assert stops == [PUG, PUG, DOG, DOG, ANIMAL, -1, -1]  # p must be more than the threshold
    # a class below an unsure one is not reached, however sure it is
    assert metrics.stop([0.4, 0.3, 0.1, 0.9, 0.2, 0.1, 0.8], TREE, 0.5) == -1
    # ties go to the first child; in a DAG 4 hangs below 0 beside 2, and below 3
    assert metrics.greedy_chain([0.5] * 7, TREE) == [ANIMAL, CAT]
    assert metrics.greedy_chain([0.9, 0.1, 0.5, 0.6, 0.4], DAG) == [0, 2, 3, 4]
    assert metrics.greedy_chain([0.9, 0.1, 0.5, 0.6, 0.7], DAG) == [0, 4]


def test_operating_curve_by_hand():
    # A, a pug, as above. B, a dog, walks plant .6, oak .55: wrong until it stops at the root.
    # Deepest labels: 3 and 2, mean 2.5
    probabilities = [[0.9, 0.1, 0.2, 0.7, 0, 0.3, 0.4], [0.4, 0.6, 0.1, 0.3, 0.55, 0.1, 0.2]]
    curve = metrics.operating_curve(probabilities, TARGETS[:2], TREE, [0.0, 0.5, 0.6, 0.9])
    # answers: pug, oak | dog, oak | dog, root | root, root
    assert curve["thresholds"] == [0.0, 0.5, 0.6, 0.9]
    assert curve["accuracy"] == [0.5, 0.5, 1, 1]
    assert curve["specificity"] == FLOAT64.approx([2.5 / 2.5, 2 / 2.5, 1 / 2.5, 0])
    assert curve["answered"] == [1, 1, 0.5, 0]
    assert curve["exact"] == [0.5, 0, 0, 0]


def test_operating_curve_gains_accuracy_and_loses_specificity():
    rng = random.Random(7)
    for most in (1, 3) * 10:
        parents, probabilities, targets = random_case(rng, most, labeled=True)
        steps = [t / 10 for t in range(11)]
        curve = metrics.operating_curve(probabilities, targets, parents, steps)
        assert curve["accuracy"] == sorted(curve["accuracy"])
        assert curve["answered"] == sorted(curve["answered"], reverse=True)
        assert curve["specificity"] == sorted(curve["specificity"], reverse=True)
        assert (curve["accuracy"][-1], curve["answered"][-1]) == (1, 0)


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("reduction", lambda: metrics.hit_at_k(SCORES, TARGETS, reduction="median")),
        ("average", lambda: metrics.average_precision(SCORES, TARGETS, "weighted")),
        ("average", lambda: metrics.hierarchical_f1([0], [[1]], [()], "weighted")),
        ("candidates", lambda: dist(candidates="inner")),
        ("reference", lambda: dist(reference="parents")),
        ("correct_cost", lambda: dist(correct_cost="one")),
    ],
)
def test_unknown_options_are_refused(word, call):
    with pytest.raises(ValueError, match=f"unknown {word}"):
        call()
