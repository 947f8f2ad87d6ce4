"""The focal loss of one entry, from log_p = log p, log_q = log(1 - p) and y in {0, 1}.

    focal = -alpha_t (1 - p_t)^gamma log p_t

p_t = p and alpha_t = alpha for y = 1; p_t = 1 - p and alpha_t = 1 - alpha for y = 0. With alpha
None alpha_t = 1. ``log_base`` is the base of the logarithm.
"""

import math


def focal(log_p, log_q, y, alpha, gamma, log_base=math.e):
    log_pt, log_other = (log_p, log_q) if y else (log_q, log_p)
    weight = 1.0
    if alpha is not None:
        weight = alpha if y else 1.0 - alpha
    if log_pt == 0.0 or weight == 0.0:
        return 0.0
    return -weight * math.exp(log_other) ** gamma * log_pt / math.log(log_base)
