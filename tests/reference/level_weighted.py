"""Binary cross entropy with one weight per level: w(m(c)) * bce(x_c, y_c).

``weights[0]`` is the weight of level 1, the top classes. Unknown entries are 0.
"""

from reference.bce import bce
from reference.constraint import is_known
from reference.links import log_sigmoid
from reference.taxonomy import levels


def level_weighted(logits, targets, parents, weights, mask=None):
    """Return the N x C losses."""
    m = levels(parents)
    out = [[0.0 for _ in parents] for _ in logits]
    for i in range(len(logits)):
        for j in range(len(parents)):
            if is_known(mask, i, j):
                x = logits[i][j]
                loss = bce(log_sigmoid(x), log_sigmoid(-x), targets[i][j])
                out[i][j] = weights[m[j] - 1] * loss
    return out
