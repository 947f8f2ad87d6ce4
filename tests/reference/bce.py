"""Binary cross entropy of one entry, from log_p = log p, log_q = log(1 - p) and y in {0, 1}.

    bce = -log p_t        p_t = p for y = 1, 1 - p for y = 0

``log_base`` is the base of the logarithm: math.e, or 2 for a loss that is at least the 0-1 loss.
"""

import math


def bce(log_p, log_q, y, log_base=math.e):
    log_pt = log_p if y else log_q
    return -log_pt / math.log(log_base)
