"""Conditional softmax: a softmax among the siblings of every parent.

    loss = sum over the sibling groups G that hold a positive of
           - (1 / |P|) sum_{c in P} log softmax_G(x)_c          P = the positives of G

The children of one parent are siblings, and so are the top classes. Trees and forests only.
"""

from reference.links import log_share
from reference.taxonomy import children


def cond_softmax(logits, targets, parents):
    """Return N row losses."""
    if any(len(p) > 1 for p in parents):
        raise ValueError("conditional softmax needs a tree: a class has several parents")
    groups = [[c for c in range(len(parents)) if not parents[c]], *children(parents)]
    out = []
    for row, target in zip(logits, targets, strict=True):
        loss = 0.0
        for group in groups:
            positives = [c for c in group if target[c]]
            for c in positives:
                others = [row[k] for k in group if k != c]
                loss -= log_share([row[c]], others) / len(positives)
        out.append(loss)
    return out
