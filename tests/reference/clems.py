"""CLEMS by loops: SMACOF with any weights, costs of label sets, and the answers of points."""

import math


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def stress(points, distances, weights):
    """The weighted squared errors of all pairs."""
    return sum(
        weights[i][j] * (distance(points[i], points[j]) - distances[i][j]) ** 2
        for i in range(len(points))
        for j in range(i)
    )


def majorizer(new, old, distances, weights):
    """What bounds the stress from above, touches it at ``old`` and is lowest after a step."""
    total = 0.0
    for i in range(len(new)):
        for j in range(i):
            between = sum(
                (a - b) * (c - d) for a, b, c, d in zip(new[i], new[j], old[i], old[j], strict=True)
            )
            inner = distances[i][j] * between / distance(old[i], old[j])
            square = distance(new[i], new[j]) ** 2
            total += weights[i][j] * (distances[i][j] ** 2 + square - 2 * inner)
    return total


def solve(matrix, right):
    """Gaussian elimination with pivots."""
    n = len(matrix)
    rows = [[*matrix[i], *right[i]] for i in range(n)]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(n):
            if i != k:
                factor = rows[i][k] / rows[k][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [[x / rows[i][i] for x in rows[i][n:]] for i in range(n)]


def smacof_step(points, distances, weights):
    """The Guttman transform, with the mean of the points at 0."""
    n, size = len(points), len(points[0])
    v = [[0.0] * n for _ in range(n)]
    right = [[0.0] * size for _ in range(n)]
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            v[i][j] -= weights[i][j]
            v[i][i] += weights[i][j]
            length = distance(points[i], points[j])
            if length == 0:
                continue
            pull = weights[i][j] * distances[i][j] / length
            for k in range(size):
                right[i][k] += pull * (points[i][k] - points[j][k])
    # V has the constants in its kernel: adding 1 / n to each entry picks the solution of mean 0.
    return solve([[x + 1 / n for x in row] for row in v], right)


# ---------------------------------------------------------------------- label sets


def closure(classes, parents):
    """The classes of a set with all their ancestors."""
    found, open_ = set(), list(classes)
    while open_:
        one = open_.pop()
        if one not in found:
            found.add(one)
            open_.extend(parents[one])
    return found


def height(c, children):
    return 0 if not children[c] else 1 + max(height(d, children) for d in children[c])


def hier_dist(truth, answer, parents):
    """The mean height to the nearest class of the other set, averaged over both directions.

    Sets are lists of most specific classes; classes are numbered, ``parents[c]`` lists parents.
    """
    classes = range(len(parents))
    children = [[d for d in classes if c in parents[d]] for c in classes]
    tops = [c for c in classes if not parents[c]]
    root = 1 + max(height(c, children) for c in tops)

    def between(a, b):
        if a == b:
            return 0
        common = closure([a], parents) & closure([b], parents)
        return min((height(c, children) for c in common), default=root)

    def directed(some, others):
        if not some or not others:
            return root if some or others else 0
        return sum(min(between(a, b) for b in others) for a in some) / len(some)

    return (directed(truth, answer) + directed(answer, truth)) / 2


# ---------------------------------------------------------------------- answers


def answers(z, points, sets, temperature, count, *, nearest):
    """The probability of each of ``count`` classes for an embedding z.

    ``points`` are those of the sets as answers, ``sets`` their closed classes.
    """
    squares = [sum((a - b) ** 2 for a, b in zip(z, u, strict=True)) for u in points]
    least = min(squares)
    weights = [math.exp((least - one) / temperature) for one in squares]
    weights = [one / sum(weights) for one in weights]
    if nearest:
        best = squares.index(least)
        weights = [one / 2 + (0.5 if k == best else 0.0) for k, one in enumerate(weights)]
    return [sum(w for w, s in zip(weights, sets, strict=True) if c in s) for c in range(count)]


def squared_distance(z, point):
    """The loss of a row, and its gradient."""
    difference = [a - b for a, b in zip(z, point, strict=True)]
    return sum(d * d for d in difference), [2 * d for d in difference]
