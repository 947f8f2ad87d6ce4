"""Base losses of one entry, from log_p = log p, log_q = log(1 - p) and the target y in {0, 1}.

With p_t = p and alpha_t = alpha for y = 1, and p_t = 1 - p and alpha_t = 1 - alpha for y = 0:

    bce       -log p_t
    focal     -alpha_t (1 - p_t)^gamma log p_t        (alpha None: alpha_t = 1)
    zero_one  1 unless p_t > 1/2, strictly: sign(0) is never right

``log_base`` is the base of the logarithm: math.e, or 2 for a bce that is at least the 0-1 loss.
"""

import math


def bce(log_p, log_q, y, log_base=math.e):
    log_pt = log_p if y else log_q
    return -log_pt / math.log(log_base)


def focal(log_p, log_q, y, alpha, gamma, log_base=math.e):
    log_pt, log_other = (log_p, log_q) if y else (log_q, log_p)
    weight = 1.0
    if alpha is not None:
        weight = alpha if y else 1.0 - alpha
    if log_pt == 0.0 or weight == 0.0:
        return 0.0
    return -weight * math.exp(log_other) ** gamma * log_pt / math.log(log_base)


def zero_one(log_p, log_q, y):
    right = log_p > log_q if y else log_q > log_p  # p > 1 - p is p > 1/2
    return 0.0 if right else 1.0


def matrix(log_p, log_q, targets, base):
    """Apply ``base(log_p, log_q, y)`` to every entry of N x C lists."""
    out = [[0.0 for _ in row] for row in targets]
    for i in range(len(targets)):
        for j in range(len(targets[i])):
            out[i][j] = base(log_p[i][j], log_q[i][j], targets[i][j])
    return out
