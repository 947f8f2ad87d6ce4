"""The reference links: worked examples, complements, extreme logits."""

import itertools
import math
import random

import pytest

from reference import links
from reference.loss_examples import DAG, LN2, TREE, log, random_hierarchy, random_logits
from tolerances import FLOAT64


def test_links_by_hand():
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]  # sigmoid(log a) = a / (1 + a)
    (p,), (q,) = links.probabilities([x], TREE, "sigmoid")
    assert p == FLOAT64.approx([1 / 2, 3 / 4, 2 / 3, 4 / 5, 1 / 2, 5 / 6])
    assert q == FLOAT64.approx([1 / 2, 1 / 4, 1 / 3, 1 / 5, 1 / 2, 1 / 6])
    # softmax over the leaves pug 1, cat 2, bulldog 4, plant 5: total 12; dog 1+4, animal 1+2+4
    (p,), (q,) = links.probabilities([x], TREE, "softmax")
    assert p == FLOAT64.approx([1 / 12, 7 / 12, 2 / 12, 4 / 12, 5 / 12, 5 / 12])
    assert q == FLOAT64.approx([11 / 12, 5 / 12, 10 / 12, 8 / 12, 7 / 12, 7 / 12])
    # with dog (weight 1) a terminal of its own: total 13, dog 1+4+1, animal 1+2+4+1
    (p,), _ = links.probabilities([x], TREE, "softmax", terminals=[0, 2, 3, 4, 5])
    assert p == FLOAT64.approx([1 / 13, 8 / 13, 2 / 13, 4 / 13, 6 / 13, 5 / 13])
    # animal 3/4; dog 3/4 * 1/2; pug 3/8 * 1/2; bulldog 3/8 * 4/5; cat 3/4 * 2/3
    (p,), (q,) = links.probabilities([x], TREE, "conditional")
    assert p == FLOAT64.approx([3 / 16, 3 / 4, 1 / 2, 3 / 10, 3 / 8, 5 / 6])
    assert q == FLOAT64.approx([13 / 16, 1 / 4, 1 / 2, 7 / 10, 5 / 8, 1 / 6])
    # dog takes the bulldog's 4/5, and so does animal
    (p,), (q,) = links.probabilities([x], TREE, "max")
    assert p == FLOAT64.approx([1 / 2, 4 / 5, 2 / 3, 4 / 5, 4 / 5, 5 / 6])
    assert q == FLOAT64.approx([1 / 2, 1 / 5, 1 / 3, 1 / 5, 1 / 5, 1 / 6])


def test_a_shared_descendant_counts_once():
    # DAG: the only leaf is 4, so with terminals 3 and 4 both top classes hold 3 and 4, once each
    (p,), (q,) = links.probabilities([[0.0] * 4 + [log(3)]], DAG, "softmax", terminals=[2, 3, 4])
    assert p == FLOAT64.approx([5 / 5, 4 / 5, 5 / 5, 4 / 5, 3 / 5])
    assert q == FLOAT64.approx([0, 1 / 5, 0, 1 / 5, 2 / 5])
    # 4 has the five ancestors-or-self 0 1 2 3 4, though 0 is reached over two ways: (1/2)^5
    (p,), _ = links.probabilities([[0.0] * 5], DAG, "conditional")
    assert p == FLOAT64.approx([1 / 2, 1 / 2, 1 / 4, 1 / 16, 1 / 32])


@pytest.mark.parametrize("link", sorted(links.LINKS))
def test_logs_and_complements_agree(link):
    rng = random.Random(0)
    for _ in range(40):
        parents = random_hierarchy(rng, rng.randint(1, 8), most_parents=2)
        logits = random_logits(rng, parents, 2)
        p, q = links.probabilities(logits, parents, link)
        log_p, log_q = links.log_probabilities(logits, parents, link)
        for i, j in itertools.product(range(2), range(len(parents))):
            assert p[i][j] + q[i][j] == FLOAT64.approx(1.0)
            assert math.exp(log_p[i][j]) == FLOAT64.approx(p[i][j])
            assert math.exp(log_q[i][j]) == FLOAT64.approx(q[i][j])


@pytest.mark.parametrize("link", ["softmax", "conditional", "max"])
def test_coherent_links(link):
    rng = random.Random(1)
    for _ in range(40):
        parents = random_hierarchy(rng, 7, most_parents=2)
        p, _ = links.probabilities(random_logits(rng, parents, 1), parents, link)
        for c in range(7):
            for a in parents[c]:
                assert p[0][c] <= p[0][a] * (1 + 1e-12)


def test_extreme_logits():
    # a chain of three with logit 40: 1 - p = 3 exp(-40) to first order, far below 1e-16
    chain = [[], [0], [1]]
    _, ((*_, log_q),) = links.log_probabilities([[40.0] * 3], chain, "conditional")
    assert log_q == FLOAT64.approx(log(3) - 40)
    # pug ahead of every other leaf by 20000: 1 - p(pug) = 2 exp(-20000) + exp(-30000)
    x = [1e4, 0.0, -1e4, -1e4, 0.0, -2e4]
    (log_p,), (log_q,) = links.log_probabilities([x], TREE, "softmax")
    assert log_p[0] == 0.0
    assert log_q[0] == FLOAT64.approx(LN2 - 2e4)
    assert log_p[5] == FLOAT64.approx(-3e4)
    assert log_q[1] == FLOAT64.approx(-3e4)  # all but the plant: its complement is the plant
    for link in links.LINKS:
        for sign in (1e4, -1e4):
            both = links.log_probabilities([[sign] * 6], TREE, link)
            assert all(math.isfinite(v) and v <= 0 for part in both for v in part[0])
