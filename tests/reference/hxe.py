"""Hierarchical cross entropy, HXELoss (Bertinetto et al. 2020).

    loss = - sum over the nodes c of the path of exp(-alpha depth(c)) log p(c | parent(c))

depth(c) is the number of edges between c and the root, as in the code of the authors: they count
the indices that lead from the root of an nltk tree to the node. Their training script also divides
by the sum of the weights of all nodes, the root's included (``normalize``). With ``weighting``
"height" the longest way down to a leaf stands for the depth, as the paper reads literally.

The path leads from a top class down to the row's terminal label, that label included;
p(c | parent) = P(c) / P(parent) with P the softmax link over the terminals and P(root) = 1. At
alpha = 0 the sum telescopes to -log P(label), the mass of the label and of all below it. Several
terminal labels: the mean over them. No label: 0. Trees and forests only: in a DAG
the path is not unique.
"""

import math

from reference.links import log_share
from reference.taxonomy import (
    descendants_or_self,
    edges_to_root,
    heights,
    leaves,
    terminal_labels,
)


def log_conditional(row, parents, c, terminals):
    """Log P(c) / P(parent of c), as a share of the parent's terminals."""
    below = descendants_or_self(parents, c)
    under_parent = range(len(parents))  # of a top class: everything is under the root
    if parents[c]:
        under_parent = descendants_or_self(parents, parents[c][0])
    inside = [row[t] for t in terminals if t in below]
    outside = [row[t] for t in terminals if t in under_parent and t not in below]
    return log_share(inside, outside)


def step_weights(parents, alpha, weighting="depth", *, normalize=False):
    """Return the weight of the edge above every class."""
    if weighting == "height":
        return [math.exp(-alpha * height) for height in heights(parents)]
    weights = [math.exp(-alpha * edges_to_root(parents, c)) for c in range(len(parents))]
    total = 1.0  # of the root itself, at distance 0
    for weight in weights:
        total += weight
    return [weight / total for weight in weights] if normalize else weights


def hxe(logits, targets, parents, alpha, terminals=None, weighting="depth", *, normalize=False):
    """Return N row losses."""
    if any(len(p) > 1 for p in parents):
        raise ValueError("HXELoss needs a tree: a class has several parents")
    if terminals is None:
        terminals = leaves(parents)
    weights = step_weights(parents, alpha, weighting, normalize=normalize)
    out = []
    for row, target in zip(logits, targets, strict=True):
        labels = terminal_labels(target, parents)
        loss = 0.0
        for label in labels:
            path = [label]
            while parents[path[-1]]:
                path.append(parents[path[-1]][0])
            for c in path:
                loss -= weights[c] * log_conditional(row, parents, c, terminals) / len(labels)
        out.append(loss)
    return out
