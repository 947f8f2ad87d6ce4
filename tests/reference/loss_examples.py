"""Hierarchies and random batches for the tests of the reference losses."""

import math

from reference.taxonomy import ancestors_or_self

# The tree of most examples, deliberately not in level order:
#     1 animal          5 plant
#       4 dog   2 cat     (a leaf)
#         0 pug   3 bulldog
TREE = [[4], [], [1], [4], [1], []]
# A DAG: 3 has the parents 1 and 2, of levels 1 and 2; 4 hangs directly under 0 and under 3.
DAG = [[], [], [0], [1, 2], [0, 3]]
FLAT = [[], [], []]
LN2 = math.log(2)


def log(x):
    return math.log(x)


def random_hierarchy(rng, size, most_parents=1):
    """Draw a hierarchy in a random class order; up to ``most_parents`` parents per class."""
    order = list(range(size))
    rng.shuffle(order)
    parents = [[] for _ in range(size)]
    for position in range(1, size):
        count = min(position, rng.randint(0, most_parents))
        parents[order[position]] = rng.sample(order[:position], count)
    return parents


def random_targets(rng, parents, rows, most=3):
    out = []
    for _ in range(rows):
        positive = set()
        for c in rng.sample(range(len(parents)), min(len(parents), rng.randint(0, most))):
            positive |= set(ancestors_or_self(parents, c))
        out.append([int(c in positive) for c in range(len(parents))])
    return out


def random_logits(rng, parents, rows, scale=2.0):
    return [[rng.gauss(0, scale) for _ in parents] for _ in range(rows)]


def one_hot(parents, c):
    closed = ancestors_or_self(parents, c)
    return [int(k in closed) for k in range(len(parents))]


X = [log(1), 9.0, log(2), log(4), -9.0, log(5)]  # leaves pug 1, cat 2, bulldog 4, plant 5: of 12
