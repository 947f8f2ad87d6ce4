"""Squared hinge among the siblings of every parent.

    loss = sum over the sibling groups G that hold a positive of
           sum_{c in G} max(0, margin - s_c x_c)^2        s_c = 1 for a positive, else -1

The children of one parent are siblings, and so are the top classes. Trees and forests only.
"""

from reference.taxonomy import children


def hinge(logits, targets, parents, margin=4.0):
    """Return N row losses."""
    if any(len(p) > 1 for p in parents):
        raise ValueError("the hinge among siblings needs a tree: a class has several parents")
    groups = [[c for c in range(len(parents)) if not parents[c]], *children(parents)]
    out = []
    for row, target in zip(logits, targets, strict=True):
        loss = 0.0
        for group in groups:
            if any(target[c] for c in group):
                for c in group:
                    side = 1 if target[c] else -1
                    loss += max(0.0, margin - side * row[c]) ** 2
        out.append(loss)
    return out
