"""HCL end to end: logits -> link -> base -> constraint -> curriculum -> reduction.

    L_j  = sum_i l_h(i, j)         e_h = sum_ij of the constrained 0-1 errors
    s    = Algorithm 1 on L with thresh = C + e_h, weights in {floor, 1}
    loss = sum_ij s_j l_h(i, j), over the number of known entries for reduction "mean"

normalize "mean" divides L and e_h by the number of rows N, so that thresh = C + e_h / N;
"losses" divides L alone. The defaults are the paper's.
"""

import math

from reference.bases import elementwise, zero_one
from reference.bce import bce
from reference.constraint import constrain, is_known
from reference.curriculum import objective, select, weights
from reference.focal import focal
from reference.links import log_probabilities


def hcl(
    logits,
    targets,
    parents,
    *,
    link="sigmoid",
    base="bce",
    log_base=math.e,
    alpha=0.25,
    gamma=2.0,
    scope="levels",
    curriculum="batch",
    normalize="sum",
    threshold=None,
    floor=0.0,
    mask=None,
    reduction="mean",
    terminals=None,
):
    """Return a dict.

    loss: a float, or N x C for reduction "none" (unknown entries 0); selected: C bools; weights:
    s, C floats; class_losses: L; e_h, l_h and l_hc = F(s): all four on the scale of ``normalize``.
    A given ``threshold`` replaces C + e_h (or C + e_h / N) in the selection only. ``alpha`` and
    ``gamma`` are read by base "focal" alone, ``terminals`` by link "softmax" alone.
    """
    N, C = len(logits), len(parents)

    def loss_of(log_p, log_q, y):
        if base == "bce":
            return bce(log_p, log_q, y, log_base)
        if base == "focal":
            return focal(log_p, log_q, y, alpha, gamma, log_base)
        raise ValueError(f"base is 'bce' or 'focal', not {base!r}")

    log_p, log_q = log_probabilities(logits, parents, link, terminals)
    losses = constrain(elementwise(loss_of, log_p, log_q, targets), parents, scope, mask)
    errors = constrain(elementwise(zero_one, log_p, log_q, targets), parents, scope, mask)

    scale, of_errors = {
        "sum": (1, 1),
        "mean": (max(N, 1), max(N, 1)),
        "losses": (max(N, 1), 1),
    }[normalize]
    class_losses = [0.0 for _ in range(C)]
    e_h = 0.0
    for j in range(C):
        for i in range(N):
            class_losses[j] += losses[i][j]
            e_h += errors[i][j]
        class_losses[j] /= scale
    e_h /= of_errors

    if curriculum == "batch":
        selected = select(class_losses, C + e_h if threshold is None else threshold)
    elif curriculum is None:
        selected = [True for _ in range(C)]
    else:
        raise ValueError(f"curriculum is 'batch' or None, not {curriculum!r}")
    s = weights(selected, floor)

    weighted = [[0.0 for _ in range(C)] for _ in range(N)]
    count = 0
    for i in range(N):
        for j in range(C):
            if is_known(mask, i, j):
                count += 1
                if s[j] != 0:
                    weighted[i][j] = s[j] * losses[i][j]
    total = sum(sum(row) for row in weighted)
    loss = {"none": weighted, "sum": total, "mean": total / max(count, 1)}[reduction]
    return {
        "loss": loss,
        "selected": selected,
        "weights": s,
        "class_losses": class_losses,
        "e_h": e_h,
        "l_h": sum(class_losses),
        "l_hc": objective(s, class_losses, e_h),
    }
