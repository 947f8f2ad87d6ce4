"""MCLoss of C-HMCNN (Giunchiglia & Lukasiewicz 2020), one value per class A.

    -y_A ln max_{B in D_A} (y_B h_B) - (1 - y_A) ln (1 - max_{B in D_A} h_B)

D_A is A and its descendants, h the sigmoid of the logits. Unknown entries are left out of the
maxima, and their own loss is 0.
"""

from reference.constraint import is_known
from reference.links import log_sigmoid
from reference.taxonomy import descendants_or_self


def mcloss(logits, targets, parents, mask=None):
    """Return the N x C losses."""
    out = [[0.0 for _ in parents] for _ in logits]
    for i in range(len(logits)):
        for a in range(len(parents)):
            if not is_known(mask, i, a):
                continue
            below = [b for b in descendants_or_self(parents, a) if is_known(mask, i, b)]
            if targets[i][a]:
                # y_B h_B is 0 where y_B = 0, and A itself is positive: only positives matter
                best = max(logits[i][b] for b in below if targets[i][b])
                out[i][a] = -log_sigmoid(best)
            else:
                best = max(logits[i][b] for b in below)
                out[i][a] = -log_sigmoid(-best)  # 1 - sigmoid(x) = sigmoid(-x)
    return out
