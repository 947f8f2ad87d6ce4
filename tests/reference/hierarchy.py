"""A hierarchy in naive loops and sets, from the definitions alone.

``parents[c]`` lists the parents of node c; an empty list makes it a top node. The implicit root
is no node and has the number -1.
"""

from __future__ import annotations

import math
import re

ROOT = -1


def levels(parents):
    """Level of every node: 1 at the top, else one more than its deepest parent."""

    def level(c):
        return 1 + max((level(p) for p in parents[c]), default=0)

    return [level(c) for c in range(len(parents))]


def children(parents, c):
    return [k for k in range(len(parents)) if c in parents[k]]


def heights(parents):
    """Longest path down to a leaf of every node: 0 for a leaf."""

    def height(c):
        return max((1 + height(k) for k in children(parents, c)), default=0)

    return [height(c) for c in range(len(parents))]


def root_height(parents):
    return 1 + max(heights(parents))


def leaves(parents):
    return [c for c in range(len(parents)) if not children(parents, c)]


def ancestors(parents, c):
    """Everything above c, without c."""
    found = set()
    for p in parents[c]:
        found |= {p} | ancestors(parents, p)
    return found


def descendants(parents, c):
    """Everything below c, without c."""
    return {k for k in range(len(parents)) if c in ancestors(parents, k)}


def closure(parents, labels):
    """Return the labels with all their ancestors."""
    found = set(labels)
    for c in labels:
        found |= ancestors(parents, c)
    return found


def terminal(parents, labels):
    """Return the most specific labels: those without a positive child once the set is closed."""
    closed = closure(parents, labels)
    return {c for c in closed if not any(k in closed for k in children(parents, c))}


def common_ancestors(parents, a, b):
    """Return what stands above both nodes, each counting as its own ancestor."""
    return closure(parents, [a]) & closure(parents, [b])


def lca(parents, a, b):
    """Return the common ancestor of smallest height, then deepest, then first; or the root.

    In a tree the common ancestors form a chain, and this is the deepest of them.
    """
    common = common_ancestors(parents, a, b)
    if not common:
        return ROOT
    level, height = levels(parents), heights(parents)
    if all(len(above) <= 1 for above in parents):
        return max(common, key=lambda c: level[c])
    return min(common, key=lambda c: (height[c], -level[c], c))


def lca_height(parents, a, b):
    found = lca(parents, a, b)
    return root_height(parents) if found == ROOT else heights(parents)[found]


def max_up(parents, row):
    """Maximum over each node and its descendants."""
    nodes = range(len(parents))
    return [max(row[k] for k in {c} | descendants(parents, c)) for c in nodes]


def sum_up(parents, row):
    """Sum over each node and its descendants, each counted once."""
    nodes = range(len(parents))
    return [sum(row[k] for k in sorted({c} | descendants(parents, c))) for c in nodes]


def logsumexp_up(parents, row):
    """Logarithm of the summed exponentials of each node and its descendants, each once."""
    return [math.log(total) for total in sum_up(parents, [math.exp(value) for value in row])]


def max_down(parents, row):
    """Maximum over each node and its ancestors."""
    return [max(row[p] for p in closure(parents, [c])) for c in range(len(parents))]


def sum_down(parents, row):
    """Sum over each node and its ancestors, each counted once."""
    return [sum(row[p] for p in sorted(closure(parents, [c]))) for c in range(len(parents))]


def encode(parents, rows):
    """Closed multi-hot rows."""
    return [[c in closure(parents, row) for c in range(len(parents))] for row in rows]


def natural_key(name):
    """Order in which runs of digits compare as numbers and all else by character."""
    key = []
    for run, char in re.findall(r"([0-9]+)|(.)", name, re.DOTALL):
        key.append((ord("0"), int(run)) if run else (ord(char), 0))
    return key, name


def class_order(parents, names):
    """Return the nodes by level, then by their first parent's place, then by natural name."""
    level = levels(parents)
    place = {}
    order = []
    for m in range(1, max(level) + 1):
        group = [c for c in range(len(parents)) if level[c] == m]

        def key(c):
            return min((place[p] for p in parents[c]), default=ROOT), natural_key(names[c])

        for c in sorted(group, key=key):
            place[c] = len(order)
            order.append(c)
    return order


def path_names(parents, names, sep="/"):
    """Return the path of every node of a tree."""

    def path(c):
        return path(parents[c][0]) + sep + names[c] if parents[c] else names[c]

    return [path(c) for c in range(len(parents))]
