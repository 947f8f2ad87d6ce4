"""Hierarchical cross entropy, HXELoss (Bertinetto et al. 2020).

    loss = - sum over the nodes c of the path of exp(-alpha height(c)) log p(c | parent(c))

The path leads from a top class down to the row's terminal label, that label included;
p(c | parent) = P(c) / P(parent) with P the softmax link over the terminals and P(root) = 1. At
alpha = 0 the sum telescopes to -log P(label), the mass of the label and of all below it. Several
terminal labels: the mean over them. No label: 0. Trees and forests only: in a DAG
the path is not unique.
"""

import math

from reference.links import log_share
from reference.taxonomy import descendants_or_self, heights, leaves, terminal_labels


def log_conditional(row, parents, c, terminals):
    """Log P(c) / P(parent of c), as a share of the parent's terminals."""
    below = descendants_or_self(parents, c)
    under_parent = range(len(parents))  # of a top class: everything is under the root
    if parents[c]:
        under_parent = descendants_or_self(parents, parents[c][0])
    inside = [row[t] for t in terminals if t in below]
    outside = [row[t] for t in terminals if t in under_parent and t not in below]
    return log_share(inside, outside)


def hxe(logits, targets, parents, alpha, terminals=None):
    """Return N row losses."""
    if any(len(p) > 1 for p in parents):
        raise ValueError("HXELoss needs a tree: a class has several parents")
    if terminals is None:
        terminals = leaves(parents)
    height = heights(parents)
    out = []
    for row, target in zip(logits, targets, strict=True):
        labels = terminal_labels(target, parents)
        loss = 0.0
        for label in labels:
            path = [label]
            while parents[path[-1]]:
                path.append(parents[path[-1]][0])
            for c in path:
                weight = math.exp(-alpha * height[c])
                loss -= weight * log_conditional(row, parents, c, terminals) / len(labels)
        out.append(loss)
    return out
