"""Limits in which a loss becomes another one."""

import math
import random

import pytest

from reference import links
from reference.cond_softmax import cond_softmax
from reference.hcl import hcl
from reference.hxe import hxe
from reference.lca_cost import lca_cost
from reference.leaf_ce import leaf_ce
from reference.level_weighted import level_weighted
from reference.loss_examples import (
    DAG,
    FLAT,
    one_hot,
    random_hierarchy,
    random_logits,
    random_targets,
)
from reference.mcloss import mcloss
from reference.soft_labels import soft_labels
from reference.taxonomy import leaves
from tolerances import FLOAT64


def tree_cases(seed, count=40):
    rng = random.Random(seed)
    for _ in range(count):
        parents = random_hierarchy(rng, rng.randint(2, 8))
        yield parents, random_logits(rng, parents, 3), random_targets(rng, parents, 3)


def test_hxe_without_discount_is_leaf_cross_entropy():
    for parents, logits, targets in tree_cases(10):
        assert hxe(logits, targets, parents, 0.0) == FLOAT64.approx(
            leaf_ce(logits, targets, parents)
        )


def test_soft_labels_with_a_huge_beta_are_leaf_cross_entropy():
    for parents, logits, _ in tree_cases(11):
        targets = [one_hot(parents, leaves(parents)[0])] * 3
        out = soft_labels(logits, targets, parents, 1e4)
        assert out == FLOAT64.approx(leaf_ce(logits, targets, parents))


def test_soft_labels_without_beta_are_uniform():
    for parents, logits, _ in tree_cases(12):
        below = leaves(parents)
        log_p, _ = links.log_probabilities(logits, parents, "softmax")
        out = soft_labels(logits, [one_hot(parents, below[0])] * 3, parents, 0.0)
        assert out == FLOAT64.approx([-sum(row[t] for t in below) / len(below) for row in log_p])


def test_cond_softmax_is_the_product_down_the_path():
    # on a tree with one label a row: exp(-loss) summed over the leaves is 1
    for parents, logits, _ in tree_cases(13):
        mass = 0.0
        for leaf in leaves(parents):
            mass += math.exp(-cond_softmax(logits[:1], [one_hot(parents, leaf)], parents)[0])
        assert mass == FLOAT64.approx(1.0)


def test_mcloss_of_no_label_is_bce_on_the_max_link():
    for parents, logits, _ in tree_cases(14):
        _, log_q = links.log_probabilities(logits, parents, "max")
        out = mcloss(logits, [[0] * len(parents)] * 3, parents)
        assert out == [FLOAT64.approx([-v for v in row]) for row in log_q]


def test_flat_hierarchies_reduce_to_known_losses():
    rng = random.Random(15)
    x = random_logits(rng, FLAT, 3)
    y = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    bce = [
        [math.log(1 + math.exp(-v if t else v)) for v, t in zip(row, target, strict=True)]
        for row, target in zip(x, y, strict=True)
    ]
    softmax = [[math.exp(v) / sum(math.exp(u) for u in row) for v in row] for row in x]
    ce = [-math.log(softmax[i][i]) for i in range(3)]

    for link in ("sigmoid", "conditional", "max"):
        for scope in ("levels", "ancestors", None):
            out = hcl(x, y, FLAT, link=link, scope=scope, curriculum=None, reduction="none")
            assert out["loss"] == [FLOAT64.approx(row) for row in bce]
    assert mcloss(x, y, FLAT) == [FLOAT64.approx(row) for row in bce]
    assert level_weighted(x, y, FLAT, [1.0]) == [FLOAT64.approx(row) for row in bce]
    assert hxe(x, y, FLAT, 0.7, weighting="height") == FLOAT64.approx(ce)
    for alpha in (0.0, 0.7):  # every class is one step from the root
        assert hxe(x, y, FLAT, alpha) == FLOAT64.approx([math.exp(-alpha) * one for one in ce])
    assert leaf_ce(x, y, FLAT) == FLOAT64.approx(ce)
    assert cond_softmax(x, y, FLAT) == FLOAT64.approx(ce)
    # every other class is at distance 1
    assert lca_cost(x, y, FLAT) == FLOAT64.approx([1 - softmax[i][i] for i in range(3)])
    # label smoothing: 1 : exp(-beta) : exp(-beta)
    b = math.exp(-0.8)
    smooth = []
    for i in range(3):
        log_p = [math.log(p) for p in softmax[i]]
        smooth.append(-((1 - b) * log_p[i] + b * sum(log_p)) / (1 + 2 * b))
    assert soft_labels(x, y, FLAT, 0.8) == FLOAT64.approx(smooth)


def test_dags_are_refused_where_a_path_must_be_unique():
    with pytest.raises(ValueError, match="tree"):
        hxe([[0.0] * 5], [[0] * 5], DAG, 0.1)
    with pytest.raises(ValueError, match="tree"):
        cond_softmax([[0.0] * 5], [[0] * 5], DAG)
