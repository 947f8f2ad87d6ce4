"""The example-based curriculum loss (Lyu & Tsang 2020), for rows with several labels.

    l_i = sum_j l(i, j)        e = sum_ij of the 0-1 errors
    value = min over v in {0, 1}^N of max(sum_i v_i l_i, N - sum_i v_i + e)

The class-based problem of curriculum.py with rows in place of classes, and no hierarchy.
"""

import math

from reference import curriculum
from reference.bases import zero_one
from reference.bce import bce
from reference.constraint import is_known
from reference.links import log_sigmoid


def row_losses_and_errors(logits, targets, log_base=math.e, mask=None):
    """Return (l_1 .. l_N, e) for sigmoid + bce; unknown entries add nothing."""
    row_losses = [0.0 for _ in logits]
    errors = 0.0
    for i in range(len(logits)):
        for j in range(len(logits[i])):
            if is_known(mask, i, j):
                log_p, log_q = log_sigmoid(logits[i][j]), log_sigmoid(-logits[i][j])
                row_losses[i] += bce(log_p, log_q, targets[i][j], log_base)
                errors += zero_one(log_p, log_q, targets[i][j])
    return row_losses, errors


def sample_curriculum(logits, targets, log_base=math.e, mask=None):
    """Return a dict: loss = sum_i v_i l_i, selected (N bools), row_losses, e, and value."""
    row_losses, errors = row_losses_and_errors(logits, targets, log_base, mask)
    selected = curriculum.select(row_losses, len(row_losses) + errors)
    loss = 0.0
    for i in range(len(row_losses)):
        if selected[i]:
            loss += row_losses[i]
    return {
        "loss": loss,
        "selected": selected,
        "row_losses": row_losses,
        "e": errors,
        "value": curriculum.objective(curriculum.weights(selected), row_losses, errors),
    }


def brute_force(logits, targets, log_base=math.e, mask=None):
    """Return the value by trying all 2^N selections; for N <= 10."""
    row_losses, errors = row_losses_and_errors(logits, targets, log_base, mask)
    if len(row_losses) > 10:
        raise ValueError(f"brute force is for at most 10 rows, not {len(row_losses)}")
    return curriculum.brute_force(row_losses, errors)
