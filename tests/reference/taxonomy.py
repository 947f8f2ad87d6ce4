"""The few facts about a hierarchy that the oracles need, in naive loops.

``parents[c]`` lists the parents of class c in any order; a top class has []. Tree, forest or DAG.
"""


def children(parents):
    """Return, for every class, the list of its children."""
    below = [[] for _ in parents]
    for c in range(len(parents)):
        for p in parents[c]:
            below[p].append(c)
    return below


def leaves(parents):
    """Return the classes without a child."""
    below = children(parents)
    return [c for c in range(len(parents)) if not below[c]]


def levels(parents):
    """Longest path from the implicit root: 1 for a top class."""
    level = [1 for _ in parents]
    for _ in parents:  # a path has at most C classes, so C rounds settle every level
        for c in range(len(parents)):
            for p in parents[c]:
                level[c] = max(level[c], level[p] + 1)
    return level


def edges_to_root(parents, c):
    """Return the number of edges from a class of a tree up to the implicit root."""
    edges = 1
    while parents[c]:
        edges, c = edges + 1, parents[c][0]
    return edges


def heights(parents):
    """Longest path down to a leaf: 0 for a leaf."""
    height = [0 for _ in parents]
    for _ in parents:
        for c in range(len(parents)):
            for p in parents[c]:
                height[p] = max(height[p], height[c] + 1)
    return height


def root_height(parents):
    """Height of the implicit root, one above the highest class."""
    return max(heights(parents)) + 1


def ancestors_or_self(parents, c):
    """Return c and everything above it, each class once, in class order."""
    found = [c]
    for a in found:  # grows while it is walked
        for p in parents[a]:
            if p not in found:
                found.append(p)
    return sorted(found)


def descendants_or_self(parents, c):
    """Return c and everything below it, each class once, in class order."""
    return [k for k in range(len(parents)) if c in ancestors_or_self(parents, k)]


def lca_height(parents, a, b):
    """Smallest height of a class that is an ancestor of a, or a itself, and likewise of b.

    On a tree this is the height of the lowest common ancestor: of the common ancestors, which
    form a path, the lowest has the smallest height. Without a common class: the root's height.
    """
    height = heights(parents)
    best = root_height(parents)
    for k in ancestors_or_self(parents, a):
        if k in ancestors_or_self(parents, b):
            best = min(best, height[k])
    return best


def terminal_labels(row, parents):
    """Return the most specific labels of a row: the positives without a positive child."""
    below = children(parents)
    return [c for c in range(len(parents)) if row[c] and not any(row[k] for k in below[c])]
