"""Trees, by loops: walk every tree to a leaf, and average the targets of its training rows.

    p_j = mean over trees of (sum of the weights of the rows of the leaf that have j) / (sum of all)

A tree is nested: ("leaf",) or (feature, threshold, left, right); a row goes left where
x[feature] <= threshold.
"""


def leaf_of(tree, x):
    """Return the way to the leaf of a row, as a string of l and r."""
    way = ""
    while len(tree) > 1:
        feature, threshold, left, right = tree
        if x[feature] <= threshold:
            way, tree = way + "l", left
        else:
            way, tree = way + "r", right
    return way


def trees(forest, training, targets, weights, rows):
    """Return the probabilities of rows, from training rows with closed targets and weights."""
    out = []
    for x in rows:
        p = [0.0 for _ in targets[0]]
        for tree in forest:
            leaf = leaf_of(tree, x)
            inside = [i for i, other in enumerate(training) if leaf_of(tree, other) == leaf]
            whole = sum(weights[i] for i in inside)
            for j in range(len(p)):
                has = sum(weights[i] for i in inside if targets[i][j])
                p[j] += has / whole / len(forest)
        out.append(p)
    return out


def trees_of_known(forest, training, targets, known, rows, ancestors):
    """Return the same where some targets are unknown, all rows counting alike.

    Rows of a leaf share 1 / T; p_j is the share of the rows that have j among those that know j,
    and no more than that of any ancestor.
    """
    out = []
    for x in rows:
        has, lacks = [0.0 for _ in targets[0]], [0.0 for _ in targets[0]]
        for tree in forest:
            leaf = leaf_of(tree, x)
            inside = [i for i, other in enumerate(training) if leaf_of(tree, other) == leaf]
            for i in inside:
                for j in range(len(has)):
                    if known[i][j]:
                        side = has if targets[i][j] else lacks
                        side[j] += 1 / len(inside)
        p = [a / (a + b) if a + b else 0.0 for a, b in zip(has, lacks, strict=True)]
        out.append([min([p[j], *(p[k] for k in ancestors[j])]) for j in range(len(p))])
    return out
