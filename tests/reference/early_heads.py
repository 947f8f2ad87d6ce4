"""Early heads: the logits of one row, and the loss of a batch, by loops.

    A_1 = relu(W_1 x), A_i = relu(W_i A_(i-1)); main logits V A_n
    level h of H has an early head U_h on layer i = ceil(h n / H), unless i = n
    loss = mean over rows and classes of bce(main) + weight * mean over rows and all classes of bce
           (early), 0 for the classes of levels without an early head

Weights are given as nested lists, one list per input.
"""

from reference.bce import bce
from reference.constraint import is_known
from reference.hmcn import affine, relu
from reference.links import log_sigmoid


def layer_of(level, levels, layers):
    """Return the hidden layer of a level, both from 1: the first at least as far down."""
    layer = 1
    while layer / layers < level / levels - 1e-12:
        layer += 1
    return layer


def early_heads(x, layers, main, outputs, levels):
    """Return the main logits, and those of the early heads, a list per level.

    Args:
        x: the inputs.
        layers: (weight, bias) of every hidden layer.
        main: (weight, bias) of the main head.
        outputs: (weight, bias) of the early heads.
        levels: H.
    """
    hidden = []
    for one in layers:
        x = relu(affine(x, *one))
        hidden.append(x)
    where = [layer_of(level, levels, len(layers)) for level in range(1, levels + 1)]
    early = [layer for layer in where if layer < len(layers)]
    assert len(early) == len(outputs)
    found = [affine(hidden[layer - 1], *own) for layer, own in zip(early, outputs, strict=True)]
    return affine(hidden[-1], *main), found


def early_loss(rows, targets, weights, levels, weight, mask=None):
    """Return the loss of a batch; ``weights`` are layers, main and outputs."""
    total, count = 0.0, 0
    for i, x in enumerate(rows):
        main, early = early_heads(x, *weights, levels)
        coarse = [one for level in early for one in level]
        for j, logit in enumerate(main):
            if not is_known(mask, i, j):
                continue
            count += 1
            total += bce(log_sigmoid(logit), log_sigmoid(-logit), targets[i][j])
            if j < len(coarse):
                own = bce(log_sigmoid(coarse[j]), log_sigmoid(-coarse[j]), targets[i][j])
                total += weight * own
    return total / count
