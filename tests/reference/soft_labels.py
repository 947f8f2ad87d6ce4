"""Soft labels (Bertinetto et al. 2020).

    q(A | c) = exp(-beta d(A, c)) / sum_B exp(-beta d(B, c))     A, B over the terminals
    d(A, c)  = height of the LCA of A and c / the largest height of a pair,  d(A, A) = 0
    loss     = - sum_A q(A) log p(A)                             p the softmax over the terminals

Several labels in a row: the mean of their q. A label that is no terminal (an inner class while
the terminals are the leaves): the mean of q over the terminals below it. No label: loss 0.
"""

import math

from reference.links import log_share
from reference.taxonomy import (
    descendants_or_self,
    lca_height,
    leaves,
    terminal_labels,
)


def distances(parents, terminals):
    """Return the distance of every pair of terminals, as the authors do: over the largest."""
    found = {(a, c): lca_height(parents, a, c) * (a != c) for a in terminals for c in terminals}
    largest = max(max(found.values()), 1)
    return {pair: height / largest for pair, height in found.items()}


def soft_label(parents, c, beta, terminals):
    """Return q(. | c), a list over the terminals."""
    if c not in terminals:
        below = [t for t in terminals if t in descendants_or_self(parents, c)]
        return mean_label([soft_label(parents, t, beta, terminals) for t in below])
    d = distances(parents, terminals)
    mass = [math.exp(-beta * d[a, c]) for a in terminals]
    return [m / sum(mass) for m in mass]


def mean_label(labels):
    return [sum(q[a] for q in labels) / len(labels) for a in range(len(labels[0]))]


def log_softmax(row, terminals, t):
    """Log p(t) with p the softmax over the terminals."""
    return log_share([row[t]], [row[k] for k in terminals if k != t])


def soft_labels(logits, targets, parents, beta, terminals=None):
    """Return N row losses."""
    if terminals is None:
        terminals = leaves(parents)
    out = []
    for row, target in zip(logits, targets, strict=True):
        labels = terminal_labels(target, parents)
        loss = 0.0
        if labels:
            q = mean_label([soft_label(parents, c, beta, terminals) for c in labels])
            for a, t in enumerate(terminals):
                if q[a] > 0.0:
                    loss -= q[a] * log_softmax(row, terminals, t)
        out.append(loss)
    return out
