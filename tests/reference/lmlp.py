"""HMC-LMLP: the logits of a row level by level, and the loss of one level, by loops.

    a_1 = sigmoid(MLP_1(x)), a_h = sigmoid(MLP_h([a_(h-1); x])), or MLP_h(a_(h-1)) without x
    MLP(z) = V relu(W z + b) + c
    loss of level h = mean of bce over the rows and the classes of level h that are known

Weights are given as nested lists, one list per input.
"""

from reference.bce import bce
from reference.constraint import is_known
from reference.hmcn import affine, relu
from reference.links import log_sigmoid, sigmoid


def lmlp(x, levels, use_inputs=True):
    """Return the logits of one row, a list per level.

    Args:
        x: the inputs.
        levels: of every level, (weight, bias) of the hidden layer and of the outputs.
        use_inputs: whether the levels below the first read x, too.
    """
    read, found = x, []
    for hidden, output in levels:
        found.append(affine(relu(affine(read, *hidden)), *output))
        read = [sigmoid(one) for one in found[-1]] + (list(x) if use_inputs else [])
    return found


def level_loss(rows, targets, levels, number, mask=None, use_inputs=True):
    """Return the loss that trains one level; targets and mask are N x C, levels first."""
    total, count = 0.0, 0
    for i, x in enumerate(rows):
        logits = lmlp(x, levels, use_inputs)
        begin = sum(len(one) for one in logits[:number])
        for k, logit in enumerate(logits[number]):
            if is_known(mask, i, begin + k):
                total += bce(log_sigmoid(logit), log_sigmoid(-logit), targets[i][begin + k])
                count += 1
    return total / max(count, 1)
