"""DeViSE: the similarity of classes in a taxonomy, the loss and the head, by loops.

tree        s(a, b) = 1 - height(lowest common ancestor) / height(root), and s(a, a) = 1
DAG         g(a, b) = sum over common ancestors c of (height of the lowest parent - height) /
            height(root), and a class that is its own pair adds its height / height(root);
            s(a, b) = g(a, b) / sqrt(g(a, a) g(b, b))
loss        sum over labels y and negatives j of max(0, margin - s_y + s_j)
"""

import math

from reference.taxonomy import (
    ancestors_or_self,
    children,
    descendants_or_self,
    heights,
    root_height,
)


def tree_similarity(parents, a, b):
    if a == b:
        return 1.0
    above = [c for c in ancestors_or_self(parents, a) if c in ancestors_or_self(parents, b)]
    lowest = min((heights(parents)[c] for c in above), default=root_height(parents))
    return 1.0 - lowest / root_height(parents)


def shared(parents, a, b):
    height, root = heights(parents), root_height(parents)
    total = height[a] / root if a == b else 0.0
    for c in ancestors_or_self(parents, a):
        if c in ancestors_or_self(parents, b):
            above = min((height[p] for p in parents[c]), default=root)
            total += (above - height[c]) / root
    return total


def dag_similarity(parents, a, b):
    lengths = math.sqrt(shared(parents, a, a) * shared(parents, b, b))
    return shared(parents, a, b) / lengths


def devise(scores, targets, parents, terminals, margin, mask=None):
    """Return the N losses."""
    below = children(parents)
    out = []
    for i, row in enumerate(scores):
        known = [mask is None or mask[i][c] for c in range(len(parents))]
        positive = [bool(targets[i][c]) and known[c] for c in range(len(parents))]
        labels = [
            c for c in range(len(parents)) if positive[c] and not any(positive[k] for k in below[c])
        ]
        values, excused = [], set()
        for y in labels:
            if y in terminals and all(known[k] for k in below[y]):
                values.append(row[y])
                continue
            inside = descendants_or_self(parents, y)
            excused.update(inside)
            values.append(max(row[t] for t in inside if t in terminals))
        loss = 0.0
        for value in values:
            for j in terminals:
                if known[j] and not targets[i][j] and j not in excused:
                    loss += max(0.0, margin - value + row[j])
        out.append(loss)
    return out


def similarities(features, matrix, vectors):
    """Return t . (M f) of one row for every vector t; the matrix has one row per feature."""
    found = []
    for t in vectors:
        v = [sum(features[f] * matrix[f][d] for f in range(len(features))) for d in range(len(t))]
        found.append(sum(t[d] * v[d] for d in range(len(t))))
    return found
