"""What base losses share: the 0-1 error, and applying a function of one entry to N x C lists."""


def zero_one(log_p, log_q, y):
    """0 where p_t > 1/2, strictly, else 1: a score on the boundary is never correct."""
    correct = log_p > log_q if y else log_q > log_p  # p > 1 - p is p > 1/2
    return 0.0 if correct else 1.0


def elementwise(base, log_p, log_q, targets):
    """Apply ``base(log_p, log_q, y)`` to every entry of N x C lists."""
    out = [[0.0 for _ in row] for row in targets]
    for i in range(len(targets)):
        for j in range(len(targets[i])):
            out[i][j] = base(log_p[i][j], log_q[i][j], targets[i][j])
    return out
