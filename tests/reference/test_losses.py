"""The other reference losses: examples worked out by hand."""

import math
import random

import pytest

from reference import sample_curriculum
from reference.cond_softmax import cond_softmax
from reference.hxe import hxe, step_weights
from reference.lca_cost import lca_cost
from reference.leaf_ce import leaf_ce
from reference.level_weighted import level_weighted
from reference.loss_examples import FLAT, LN2, TREE, X, log, one_hot, random_logits
from reference.mcloss import mcloss
from reference.mixed import mixed
from reference.soft_labels import distances, soft_label, soft_labels
from reference.taxonomy import leaves
from tolerances import FLOAT64


def test_hxe_by_hand():
    # pug: P(animal) = 7/12, P(dog | animal) = 5/7, P(pug | dog) = 1/5; depths 1, 2, 3
    steps = [-log(7 / 12), -log(5 / 7), -log(1 / 5)]
    path = math.exp(-0.1) * steps[0] + math.exp(-0.2) * steps[1] + math.exp(-0.3) * steps[2]
    plant = -math.exp(-0.1) * log(5 / 12)
    dog = math.exp(-0.1) * steps[0] + math.exp(-0.2) * steps[1]
    both = [1, 1, 0, 0, 1, 1]
    targets = [one_hot(TREE, 0), one_hot(TREE, 5), one_hot(TREE, 4), both, [0] * 6]
    out = hxe([X] * 5, targets, TREE, alpha=0.1)
    assert out == FLOAT64.approx([path, plant, dog, (path + plant) / 2, 0.0])
    # heights of animal, dog and pug: 2, 1, 0; of plant: 0
    out = hxe([X] * 2, targets[:2], TREE, alpha=0.1, weighting="height")
    by_height = math.exp(-0.2) * steps[0] + math.exp(-0.1) * steps[1] + steps[2]
    assert out == FLOAT64.approx([by_height, -log(5 / 12)])
    # all seven nodes: the root weighs 1, animal and plant e^-1, dog and cat e^-2, two leaves e^-3
    total = 1 + 2 * math.exp(-1) + 2 * math.exp(-2) + 2 * math.exp(-3)
    weights = step_weights(TREE, 1.0, normalize=True)
    depths = [3, 1, 2, 3, 2, 1]
    assert weights == FLOAT64.approx([math.exp(-depth) / total for depth in depths])


def test_soft_labels_by_hand():
    # from pug: pug 0, cat 2/3, bulldog 1/3, plant 3/3
    terminals = leaves(TREE)
    d = distances(TREE, terminals)
    assert [d[a, 0] for a in terminals] == FLOAT64.approx([0, 2 / 3, 1 / 3, 1])
    # below one top class, animal: its own height is the largest
    animals = distances([[4], [], [1], [4], [1]], [0, 2, 3])
    assert [animals[a, 0] for a in (0, 2, 3)] == FLOAT64.approx([0, 1, 1 / 2])
    # beta = 3 ln 2: weights 1, 1/4, 1/2, 1/8, sum 15/8: q = 8/15, 2/15, 4/15, 1/15
    beta = 3 * LN2
    assert soft_label(TREE, 0, beta, terminals) == FLOAT64.approx([8 / 15, 2 / 15, 4 / 15, 1 / 15])
    log_p = [log(1 / 12), log(2 / 12), log(4 / 12), log(5 / 12)]
    pug = -(8 * log_p[0] + 2 * log_p[1] + 4 * log_p[2] + log_p[3]) / 15
    # dog is no terminal: the mean of pug's q and bulldog's (4, 2, 8, 1) / 15
    dog = -(6 * log_p[0] + 2 * log_p[1] + 6 * log_p[2] + log_p[3]) / 15
    # plant: 1/8 three times and 1, sum 11/8: q = 1/11 three times, 8/11; with pug: their mean
    plant = -(log_p[0] + log_p[1] + log_p[2] + 8 * log_p[3]) / 11
    targets = [one_hot(TREE, 0), one_hot(TREE, 4), [1, 1, 0, 0, 1, 1], [0] * 6]
    out = soft_labels([X] * 4, targets, TREE, beta)
    assert out == FLOAT64.approx([pug, dog, (pug + plant) / 2, 0.0])
    # dog as a terminal: d(dog, dog) = 0, though dog is 1 high; d(dog, pug) = 1/3
    q = soft_label(TREE, 4, beta, [0, 2, 3, 4, 5])  # 1/2, 1/4, 1/2, 1, 1/8: sum 19/8
    assert q == FLOAT64.approx([4 / 19, 2 / 19, 4 / 19, 8 / 19, 1 / 19])


def test_leaf_ce_by_hand():
    targets = [one_hot(TREE, 0), one_hot(TREE, 4), [1, 1, 0, 0, 1, 1], [0] * 6]
    expected = [-log(1 / 12), -log(5 / 12), -(log(1 / 12) + log(5 / 12)) / 2, 0.0]
    assert leaf_ce([X] * 4, targets, TREE) == FLOAT64.approx(expected)
    # dog as a terminal of weight 3: total 15, and the label dog is its own mass only
    x = [log(1), 9.0, log(2), log(4), log(3), log(5)]
    assert leaf_ce([x], [one_hot(TREE, 4)], TREE, [0, 2, 3, 4, 5]) == FLOAT64.approx([-log(3 / 15)])


def test_mcloss_by_hand():
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]  # h = 1/2 3/4 2/3 4/5 1/2 5/6
    # positives pug, dog, animal. pug: -ln 1/2. animal: max of positives pug 1/2, dog 1/2,
    # animal 3/4. dog: 1/2. Negatives cat 1 - 2/3, bulldog 1 - 4/5, plant 1 - 5/6.
    out = mcloss([x], [one_hot(TREE, 0)], TREE)
    assert out == [FLOAT64.approx([LN2, log(4 / 3), log(3), log(5), LN2, log(6)])]
    # all negative: dog and animal take the bulldog's 4/5
    out = mcloss([x], [[0] * 6], TREE)
    assert out == [FLOAT64.approx([LN2, log(5), log(3), log(5), log(5), log(6)])]
    # bulldog unknown: dog falls to max(1/2, 1/2), animal to 3/4
    out = mcloss([x], [[0] * 6], TREE, [[True, True, True, False, True, True]])
    assert out == [FLOAT64.approx([LN2, log(4), log(3), 0.0, LN2, log(6)])]


def test_cond_softmax_by_hand():
    # groups: animal 3, plant 5 | cat 2, dog 1 | pug 1, bulldog 4
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]
    pug = -log(3 / 8) - log(1 / 3) - log(1 / 5)
    dog = -log(3 / 8) - log(1 / 3)
    # pug, cat and plant: both of the top group, both of the middle group, pug of the last
    many = -(log(3 / 8) + log(5 / 8)) / 2 - (log(1 / 3) + log(2 / 3)) / 2 - log(1 / 5)
    targets = [one_hot(TREE, 0), one_hot(TREE, 4), [1, 1, 1, 0, 1, 1], [0] * 6]
    assert cond_softmax([x] * 4, targets, TREE) == FLOAT64.approx([pug, dog, many, 0.0])


def test_level_weighted_by_hand():
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]
    out = level_weighted([x], [one_hot(TREE, 0)], TREE, [1.0, 10.0, 100.0])
    expected = [100 * LN2, log(4 / 3), 10 * log(3), 100 * log(5), 10 * LN2, log(6)]
    assert out == [FLOAT64.approx(expected)]
    mask = [[False, True, True, True, True, True]]
    out = level_weighted([x], [one_hot(TREE, 0)], TREE, [1.0, 10.0, 100.0], mask)
    assert out == [FLOAT64.approx([0.0, *expected[1:]])]


def test_lca_cost_by_hand():
    # pug: cat 2/12 * 2/3 + bulldog 4/12 * 1/3 + plant 5/12 * 1 = (4 + 4 + 15) / 36
    # plant: 7/12 * 1. dog, no terminal: pug and bulldog 5/12 * 1/3, cat 2/12 * 2/3, plant 5/12
    targets = [one_hot(TREE, 0), [1, 1, 0, 0, 1, 1], one_hot(TREE, 4), [0] * 6]
    expected = [23 / 36, (23 / 36 + 7 / 12) / 2, (5 + 4 + 15) / 36, 0.0]
    assert lca_cost([X] * 4, targets, TREE) == FLOAT64.approx(expected)
    # dog as a terminal of weight 3, total 15: d(dog, dog) = 0
    x = [log(1), 9.0, log(2), log(4), log(3), log(5)]
    out = lca_cost([x], [one_hot(TREE, 4)], TREE, [0, 2, 3, 4, 5])
    assert out == FLOAT64.approx([(5 + 4 + 15) / 45])


def test_mixed_by_hand():
    parts = [[[1.0, 2.0], [0.0, 4.0]], [[10.0, 0.0], [20.0, 30.0]]]
    assert mixed(parts, [0.5, 0.25]) == [[3.0, 1.0], [5.0, 9.5]]
    with pytest.raises(ValueError, match="2 parts need as many weights, not 1"):
        mixed(parts, [0.5])


def test_sample_curriculum_by_hand():
    # base 2; rows 1 + 3 = 4 (p = 1/2 and 1/8, errors 2) and log2 4/3 twice = .83 (no error)
    logits = [[0.0, -log(7)], [log(3), -log(3)]]
    targets = [[1, 1], [1, 0]]
    out = sample_curriculum.sample_curriculum(logits, targets, log_base=2)
    a = math.log2(4 / 3)
    assert out["row_losses"] == FLOAT64.approx([4.0, 2 * a])
    assert out["e"] == 2.0
    # thresh 2 + 2 = 4: .83 <= 4, 4.83 > 3: the hard row is dropped; max(.83, 2 - 1 + 2) = 3
    assert out["selected"] == [False, True]
    assert (out["loss"], out["value"]) == FLOAT64.approx((2 * a, 3.0))


def test_sample_curriculum_against_brute_force():
    rng = random.Random(9)
    for _ in range(60):
        N = rng.randint(1, 8)
        logits = random_logits(rng, FLAT, N)
        targets = [[rng.randint(0, 1) for _ in FLAT] for _ in range(N)]
        mask = [[rng.random() < 0.8 for _ in FLAT] for _ in range(N)]
        out = sample_curriculum.sample_curriculum(logits, targets, 2, mask)
        assert out["value"] == FLOAT64.approx(
            sample_curriculum.brute_force(logits, targets, 2, mask)
        )
        assert out["e"] - 1e-9 <= out["value"] <= sum(out["row_losses"]) + 1e-9
