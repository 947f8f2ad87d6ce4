"""TSLE: the layer of a factorization machine, the encoder and the loss, by loops.

    fm(x)     the sum over pairs i < j of x_i x_j v_i v_j, entry by entry
    encode    unit length of W x + MLP(norm(fm(x)))
    rank      the mean over pairs of max(0, 1 - s_p + s_n), and calibration times the mean bce
    match     the mean over rows with other labels of max(0, margin - e_i . l_i + e_i . l_j)

``norm`` are the running moments of a batch normalization. Matrices have one list per input.
"""

from reference.hmcn import affine, norm, relu
from reference.links import log_sigmoid


def interactions(x, factors):
    width = len(factors[0])
    found = [0.0] * width
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            for f in range(width):
                found[f] += x[i] * x[j] * factors[i][f] * factors[j][f]
    return found


def unit(x):
    length = sum(one * one for one in x) ** 0.5
    return [one / length for one in x]


def encode(x, linear, factors, moments, hidden, last):
    """Return the encoding of one row; linear, hidden and last are pairs (weight, bias)."""
    pairs = affine(relu(affine(norm(interactions(x, factors), *moments), *hidden)), *last)
    return unit([a + b for a, b in zip(affine(x, *linear), pairs, strict=True)])


def decode(encoding, hidden, last):
    """Return the logits of one encoding."""
    scaled = [one * len(encoding) ** 0.5 for one in encoding]
    return affine(relu(affine(scaled, *hidden)), *last)


def rank(scores, targets, calibration, known=None):
    """Return the ranking loss of one row."""
    classes = [c for c in range(len(scores)) if known is None or known[c]]
    labels = [c for c in classes if targets[c]]
    others = [c for c in classes if not targets[c]]
    hinges = [max(0.0, 1.0 - scores[p] + scores[n]) for p in labels for n in others]
    bces = [-log_sigmoid(scores[c] if targets[c] else -scores[c]) for c in classes]
    return sum(hinges) / max(len(hinges), 1) + calibration * sum(bces) / max(len(bces), 1)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def match(rows, labels, targets, margin, i):
    """Return the margin loss of row i among all rows."""
    hinges = [
        max(0.0, margin - dot(rows[i], labels[i]) + dot(rows[i], labels[j]))
        for j in range(len(rows))
        if targets[j] != targets[i]
    ]
    return sum(hinges) / max(len(hinges), 1)
