"""The oracles of the metrics: examples worked by hand, scikit-learn, identities."""

import math
import random

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    auc,
    average_precision_score,
    coverage_error,
    label_ranking_average_precision_score,
    precision_recall_curve,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)

from reference import metrics
from reference.taxonomy import ancestors_or_self, leaves, levels
from tolerances import FLOAT64

# The tree of most examples, in class order, with levels and heights:
#   0 animal 1 2    1 plant 1 1    2 animal/cat 2 0    3 animal/dog 2 1    4 plant/oak 2 0
#   5 animal/dog/bulldog 3 0       6 animal/dog/pug 3 0                    the root 0 3
TREE = [(), (), (0,), (0,), (1,), (3,), (3,)]
ANIMAL, PLANT, CAT, DOG, OAK, BULLDOG, PUG = range(7)
# A DAG of heights 3 2 2 1 0, root 4.
DAG = [(), (), (0,), (1, 2), (0, 3)]
NAN = math.nan

# Row A is a pug, row B a dog of no known breed, row C a cat and an oak, row D nothing.
SCORES = [
    [0.6, 0.1, 0.2, 0.9, 0.05, 0.3, 0.4],  # dog animal pug bulldog cat plant oak
    [0.2, 0.3, 0.5, 0.4, 0.8, 0.45, 0.1],  # oak cat bulldog dog plant animal pug
    [0.5, 0.5, 0.5, 0.5, 0.1, 0.5, 0.2],  # animal = plant = cat = dog = bulldog, pug oak
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],  # pug, the rest
]
TARGETS = [
    [1, 0, 0, 1, 0, 0, 1],
    [1, 0, 0, 1, 0, 0, 0],
    [1, 1, 1, 0, 1, 0, 0],
    [0, 0, 0, 0, 0, 0, 0],
]


def one_hot(parents, *labels):
    found = {a for c in labels for a in ancestors_or_self(parents, c)}
    return [c in found for c in range(len(parents))]


def random_parents(rng, size, most=1):
    """Draw parents in level order; up to ``most`` of them per class."""
    drawn = [tuple(rng.sample(range(c), min(c, rng.randint(0, most)))) for c in range(size)]
    level = levels(drawn)
    order = sorted(range(size), key=lambda c: level[c])
    place = {c: number for number, c in enumerate(order)}
    return [tuple(sorted(place[p] for p in drawn[c])) for c in order]


def random_case(rng, most=1, rows=6, grid=None, labeled=False):
    """Draw parents, scores in [0, 1) (of ``grid`` distinct values) and closed targets."""
    parents = random_parents(rng, rng.randint(2, 10), most)
    C = len(parents)
    draw = rng.random if grid is None else lambda: rng.randrange(grid) / grid
    scores = [[draw() for _ in range(C)] for _ in range(rows)]
    least = 1 if labeled else 0
    labels = [rng.sample(range(C), rng.randint(least, min(C, 2))) for _ in range(rows)]
    return parents, scores, [one_hot(parents, *row) for row in labels]


# ranking -----------------------------------------------------------------------------------------


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


# precision and recall over thresholds ------------------------------------------------------------


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
    # what comes after the last positive adds no area, though the curve goes on down
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


# distance in the hierarchy -----------------------------------------------------------------------


def dist(scores=SCORES, targets=TARGETS, parents=TREE, **options):
    return metrics.hier_dist(scores, targets, parents, reduction="none", **options)


def test_heights_of_common_ancestors_by_hand():
    for a, b, height in [(PUG, BULLDOG, 1), (PUG, CAT, 2), (PUG, OAK, 3), (PUG, DOG, 1)]:
        assert metrics.lca_height(TREE, a, b) == metrics.lca_height(TREE, b, a) == height
    assert metrics.lca_height(TREE, PUG, PUG) == 0
    assert metrics.lca_height(TREE, ANIMAL, ANIMAL) == 2
    assert metrics.lca_height(TREE, metrics.ROOT, PUG) == 3
    # 4 stands below all; of 2 and 0, above both 2 and 4, the lower is 2. 1 and 2: the root.
    assert [metrics.lca_height(DAG, 4, c) for c in range(5)] == [3, 2, 2, 1, 0]
    assert metrics.lca_height(DAG, 1, 2) == 4


def test_paths_by_hand():
    for a, b, edges in [
        (PUG, PUG, 0),
        (PUG, BULLDOG, 2),
        (PUG, CAT, 3),
        (PUG, OAK, 5),
        (PUG, 0, 2),
    ]:
        assert metrics.path_length(TREE, a, b) == metrics.path_length(TREE, b, a) == edges
    assert metrics.path_length(TREE, metrics.ROOT, PUG) == 3
    assert metrics.path_length(TREE, ANIMAL, PLANT) == 2
    with pytest.raises(ValueError, match="tree"):
        metrics.path_length(DAG, 0, 1)


def test_hier_dist_by_hand():
    # predictions over all classes: A dog, B oak, C animal
    assert dist() == FLOAT64.approx([1, 3, 2, NAN])  # a hit on dog costs 1, on animal 2
    assert metrics.hier_dist(SCORES, TARGETS, TREE) == 2
    assert dist(hits="zero") == FLOAT64.approx([0, 3, 0, NAN])
    assert dist(reference="terminal") == FLOAT64.approx([1, 3, 2, NAN])
    assert dist(reference="terminal", hits="zero") == FLOAT64.approx([1, 3, 2, NAN])
    # edges: A dog in the closure, one above pug. B oak - plant - root - animal (- dog).
    # C animal in the closure, one above cat
    assert dist(distance="path") == FLOAT64.approx([0, 3, 0, NAN])
    assert dist(distance="path", reference="terminal") == FLOAT64.approx([1, 4, 1, NAN])


def test_hier_dist_candidates_by_hand():
    # leaves: A pug .4, B oak, C cat before bulldog
    assert dist(candidates="leaves") == FLOAT64.approx([0, 3, 0, NAN])
    # dog is the most specific label of B, hence terminal: A dog
    assert metrics.default_terminals(TARGETS, TREE) == [CAT, DOG, OAK, BULLDOG, PUG]
    assert dist(candidates="terminal") == FLOAT64.approx([1, 3, 0, NAN])
    assert dist(candidates="terminal", hits="zero") == FLOAT64.approx([0, 3, 0, NAN])
    assert dist(candidates="terminal", hits="zero", reference="terminal") == FLOAT64.approx(
        [1, 3, 0, NAN]
    )
    # without oak and dog: A pug; B cat, height 2 to dog; C cat
    terminals = [PUG, CAT, BULLDOG]
    assert dist(candidates="terminal", terminals=terminals) == FLOAT64.approx([0, 2, 0, NAN])


def test_hier_dist_of_the_k_best_by_hand():
    # A dog 1, animal 2. B oak 3, cat 2. C animal 2, plant 1
    assert dist(k=2) == FLOAT64.approx([1.5, 2.5, 1.5, NAN])
    assert dist(k=2, hits="zero") == FLOAT64.approx([0, 2.5, 0, NAN])
    # path to the terminals: dog 1, animal 2; oak 4, cat 2; animal 1 (cat), plant 1 (oak)
    assert dist(k=2, distance="path", reference="terminal") == FLOAT64.approx([1.5, 3, 1, NAN])
    with pytest.raises(ValueError, match="k = 5 with 4"):
        dist(k=5, candidates="leaves")


def test_hier_dist_to_annotated_labels_by_hand():
    # A is annotated as dog and pug, B as nothing, C as plant and cat, D as oak
    annotated = [[0, 0, 0, 1, 0, 0, 1], [0] * 7, [0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0]]
    options = {"reference": "annotated", "annotated": annotated}
    assert dist(**options) == FLOAT64.approx([1, NAN, 2, 3])
    assert dist(hits="zero", **options) == FLOAT64.approx([0, NAN, 2, 3])
    assert dist(distance="path", **options) == FLOAT64.approx([0, NAN, 1, 5])


def test_hier_dist_in_a_dag_by_hand():
    # truth 3 with 0, 1, 2; prediction 4: the lowest above both is 3, height 1. Truth 2 with 0;
    # prediction 1: the root, 4
    scores = [[0, 0, 0, 0, 1.0], [0, 1.0, 0, 0, 0]]
    targets = [[1, 1, 1, 1, 0], [1, 0, 1, 0, 0]]
    assert dist(scores, targets, DAG) == [1, 4]


def test_mistake_severity_by_hand():
    # only B's oak is outside the closure; against terminal labels dog and animal are mistakes too
    assert metrics.mistake_severity(SCORES, TARGETS, TREE) == 3
    assert metrics.mistake_severity(SCORES, TARGETS, TREE, reference="terminal") == 2
    rows = metrics.mistake_severity(SCORES, TARGETS, TREE, distance="path", reduction="none")
    assert rows == FLOAT64.approx([NAN, 3, NAN, NAN])
    assert math.isnan(metrics.mistake_severity(SCORES[:1], TARGETS[:1], TREE))
    # the best alone decides what is a mistake, whatever comes second: of the leaves A has pug,
    # bulldog; B has oak, cat, 3 and 2; C has cat, bulldog
    options = {"candidates": "leaves", "k": 2, "reduction": "none"}
    rows = metrics.mistake_severity(SCORES, TARGETS, TREE, **options)
    assert rows == FLOAT64.approx([NAN, 2.5, NAN, NAN])


def test_hierarchical_cost_by_hand():
    decisions = [DOG, metrics.ROOT, PLANT, PUG]
    # dog over pug 1, the root 3, plant over oak 1
    assert metrics.hierarchical_cost(decisions, TARGETS, TREE) == FLOAT64.approx(5 / 3)
    # one edge to pug, two from the root to dog, one to oak
    assert metrics.hierarchical_cost(decisions, TARGETS, TREE, "path") == FLOAT64.approx(4 / 3)
    cost = [[10 * c + t for t in range(7)] for c in range(7)]
    decisions = [DOG, CAT, PLANT, PUG]  # 36; 23; least of 12 and 14; no label
    rows = metrics.hierarchical_cost(decisions, TARGETS, TREE, cost=cost, reduction="none")
    assert rows == FLOAT64.approx([36, 23, 12, NAN])
    with pytest.raises(ValueError, match="root"):
        metrics.hierarchical_cost([metrics.ROOT], TARGETS[:1], TREE, cost=cost)


def test_distances_keep_their_identities():
    rng = random.Random(4)
    for most in (1, 3) * 20:
        parents, scores, targets = random_case(rng, most)
        # what is above a label and a prediction is above the more specific label as well
        assert dist(scores, targets, parents) == FLOAT64.approx(
            dist(scores, targets, parents, reference="terminal")
        )
        best = [metrics.ranking(row)[0] for row in scores]
        assert dist(scores, targets, parents) == FLOAT64.approx(
            metrics.hierarchical_cost(best, targets, parents, reduction="none")
        )
        hit = metrics.hit_at_k(scores, targets)
        zero = metrics.hier_dist(scores, targets, parents, hits="zero")
        if not math.isnan(hit) and hit < 1:
            severity = metrics.mistake_severity(scores, targets, parents)
            assert zero == FLOAT64.approx((1 - hit) * severity)
        if most == 1:
            level, C = levels(parents), len(parents)
            for a in range(C):
                for b in range(C):
                    above = set(ancestors_or_self(parents, a)) & set(ancestors_or_self(parents, b))
                    lowest = max((level[c] for c in above), default=0)
                    edges = level[a] + level[b] - 2 * lowest
                    assert metrics.path_length(parents, a, b) == edges


# accuracy ----------------------------------------------------------------------------------------


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


# sets --------------------------------------------------------------------------------------------


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


# probabilities -----------------------------------------------------------------------------------


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
        ("hits", lambda: dist(hits="one")),
    ],
)
def test_unknown_options_are_refused(word, call):
    with pytest.raises(ValueError, match=f"unknown {word}"):
        call()
