"""HMCN: its loss and its forward pass, by loops.

    loss     bce(x_c, y_c) + penalty * sum over parents k of c of max(0, p_c - p_k)^2
    network  A_1 = relu(norm(W_1 x)), A_h = relu(norm(W_h [A_(h-1); x])), level h's logits
             V_h relu(T_h A_h), global logits W A_H; the answer is the mean of both sigmoids

``norm`` are the running moments of a batch normalization. Weights are given as nested lists, one
list per input.
"""

from reference.bce import bce
from reference.constraint import is_known
from reference.links import log_sigmoid, sigmoid


def hmcn(logits, targets, parents, penalty, mask=None):
    """Return the N x C losses."""
    out = [[0.0 for _ in parents] for _ in logits]
    for i, row in enumerate(logits):
        for j in range(len(parents)):
            if is_known(mask, i, j):
                loss = bce(log_sigmoid(row[j]), log_sigmoid(-row[j]), targets[i][j])
                for k in parents[j]:
                    loss += penalty * max(0.0, sigmoid(row[j]) - sigmoid(row[k])) ** 2
                out[i][j] = loss
    return out


def affine(x, weight, bias):
    return [
        bias[k] + sum(x[d] * weight[d][k] for d in range(len(x))) for k in range(len(weight[0]))
    ]


def relu(x):
    return [max(0.0, one) for one in x]


def norm(x, weight, bias, mean, variance):
    return [
        (x[k] - mean[k]) / (variance[k] + 1e-5) ** 0.5 * weight[k] + bias[k] for k in range(len(x))
    ]


def hmcn_f(x, layers, hidden, outputs, last):
    """Return the local and the global logits of one row.

    Args:
        x: the inputs.
        layers: of every level, (weight, bias) and (weight, bias, mean, variance) of its norm.
        hidden: of every level, (weight, bias) of T.
        outputs: of every level, (weight, bias) of V.
        last: (weight, bias) of W.
    """
    above, local = [], []
    for (linear, moments), own, output in zip(layers, hidden, outputs, strict=True):
        above = relu(norm(affine([*above, *x], *linear), *moments))
        local += affine(relu(affine(above, *own)), *output)
    return local, affine(above, *last)
