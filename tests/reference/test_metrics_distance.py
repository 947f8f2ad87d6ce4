"""Reference distances in the hierarchy: examples worked out by hand, identities."""

import math
import random

import pytest

from reference import metrics
from reference.metric_examples import (
    ANIMAL,
    BULLDOG,
    CAT,
    DAG,
    DOG,
    NAN,
    OAK,
    PLANT,
    PUG,
    SCORES,
    TARGETS,
    TREE,
    random_case,
)
from reference.taxonomy import ancestors_or_self, levels
from tolerances import FLOAT64


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
    assert dist(correct_cost="zero") == FLOAT64.approx([0, 3, 0, NAN])
    assert dist(reference="terminal") == FLOAT64.approx([1, 3, 2, NAN])
    assert dist(reference="terminal", correct_cost="zero") == FLOAT64.approx([1, 3, 2, NAN])
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
    assert dist(candidates="terminal", correct_cost="zero") == FLOAT64.approx([0, 3, 0, NAN])
    assert dist(candidates="terminal", correct_cost="zero", reference="terminal") == FLOAT64.approx(
        [1, 3, 0, NAN]
    )
    # without oak and dog: A pug; B cat, height 2 to dog; C cat
    terminals = [PUG, CAT, BULLDOG]
    assert dist(candidates="terminal", terminals=terminals) == FLOAT64.approx([0, 2, 0, NAN])


def test_hier_dist_of_the_k_best_by_hand():
    # A dog 1, animal 2. B oak 3, cat 2. C animal 2, plant 1
    assert dist(k=2) == FLOAT64.approx([1.5, 2.5, 1.5, NAN])
    assert dist(k=2, correct_cost="zero") == FLOAT64.approx([0, 2.5, 0, NAN])
    # path to the terminals: dog 1, animal 2; oak 4, cat 2; animal 1 (cat), plant 1 (oak)
    assert dist(k=2, distance="path", reference="terminal") == FLOAT64.approx([1.5, 3, 1, NAN])
    with pytest.raises(ValueError, match="k = 5 with 4"):
        dist(k=5, candidates="leaves")


def test_hier_dist_to_annotated_labels_by_hand():
    # A is annotated as dog and pug, B as nothing, C as plant and cat, D as oak
    annotated = [[0, 0, 0, 1, 0, 0, 1], [0] * 7, [0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0]]
    options = {"reference": "annotated", "annotated": annotated}
    assert dist(**options) == FLOAT64.approx([1, NAN, 2, 3])
    assert dist(correct_cost="zero", **options) == FLOAT64.approx([0, NAN, 2, 3])
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
        best = [metrics.ranked_classes(row)[0] for row in scores]
        assert dist(scores, targets, parents) == FLOAT64.approx(
            metrics.hierarchical_cost(best, targets, parents, reduction="none")
        )
        hit = metrics.hit_at_k(scores, targets)
        zero = metrics.hier_dist(scores, targets, parents, correct_cost="zero")
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
