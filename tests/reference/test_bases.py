"""The reference base losses: worked examples, and when they bound the 0-1 error."""

import math
import random

from reference import links
from reference.bases import zero_one
from reference.bce import bce
from reference.focal import focal
from reference.loss_examples import LN2, log
from tolerances import FLOAT64


def test_bases_by_hand():
    log_p, log_q = log(1 / 4), log(3 / 4)
    assert bce(log_p, log_q, 1) == FLOAT64.approx(2 * LN2)
    assert bce(log_p, log_q, 1, log_base=2) == FLOAT64.approx(2.0)
    assert bce(log_p, log_q, 0) == FLOAT64.approx(-log(3 / 4))
    # y = 1: alpha (1 - p)^2 (-ln p) = 1/4 * 9/16 * 2 ln 2;  y = 0: 3/4 * 1/16 * -ln 3/4
    assert focal(log_p, log_q, 1, alpha=0.25, gamma=2.0) == FLOAT64.approx(9 / 64 * 2 * LN2)
    assert focal(log_p, log_q, 0, alpha=0.25, gamma=2.0) == FLOAT64.approx(-3 / 64 * log(3 / 4))
    assert focal(log_p, log_q, 1, alpha=None, gamma=2.0) == FLOAT64.approx(9 / 16 * 2 * LN2)
    for y in (0, 1):  # gamma 0 without alpha is bce
        assert focal(log_p, log_q, y, None, 0.0, 2) == bce(log_p, log_q, y, 2)
    assert [zero_one(log_p, log_q, y) for y in (0, 1)] == [0.0, 1.0]
    assert [zero_one(log_q, log_p, y) for y in (0, 1)] == [1.0, 0.0]
    assert [zero_one(-LN2, -LN2, y) for y in (0, 1)] == [1.0, 1.0]  # p = 1/2: never right
    assert bce(0.0, -math.inf, 1) == 0.0
    assert focal(0.0, -math.inf, 1, 0.25, 2.0) == 0.0
    assert bce(0.0, -math.inf, 0) == math.inf


def test_base_two_bounds_zero_one_and_the_natural_logarithm_does_not():
    rng = random.Random(2)
    broken = 0
    for _ in range(1000):
        x = rng.gauss(0, 2)
        log_p, log_q, y = links.log_sigmoid(x), links.log_sigmoid(-x), rng.randint(0, 1)
        error = zero_one(log_p, log_q, y)
        assert bce(log_p, log_q, y, 2) >= error
        broken += bce(log_p, log_q, y) < error
    assert broken > 0
