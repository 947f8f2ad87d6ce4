"""A tree, scores and targets worked out by hand, and random cases, for the tests of the metrics."""

import math

from reference.taxonomy import ancestors_or_self, levels

# The tree of most examples, in class order, with levels and heights:
#   0 animal 1 2    1 plant 1 1    2 animal/cat 2 0    3 animal/dog 2 1    4 plant/oak 2 0
#   5 animal/dog/bulldog 3 0       6 animal/dog/pug 3 0                    the root 0 3
TREE = [(), (), (0,), (0,), (1,), (3,), (3,)]
ANIMAL, PLANT, CAT, DOG, OAK, BULLDOG, PUG = range(7)
# A DAG of heights 3 2 2 1 0, root 4.
DAG = [(), (), (0,), (1, 2), (0, 3)]
NAN = math.nan
# Row A is a pug, row B a dog of no known breed, row C a cat and an oak, row D nothing.
SCORES = [
    [0.6, 0.1, 0.2, 0.9, 0.05, 0.3, 0.4],  # dog animal pug bulldog cat plant oak
    [0.2, 0.3, 0.5, 0.4, 0.8, 0.45, 0.1],  # oak cat bulldog dog plant animal pug
    [0.5, 0.5, 0.5, 0.5, 0.1, 0.5, 0.2],  # animal = plant = cat = dog = bulldog, pug oak
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],  # pug, the rest
]
TARGETS = [
    [1, 0, 0, 1, 0, 0, 1],
    [1, 0, 0, 1, 0, 0, 0],
    [1, 1, 1, 0, 1, 0, 0],
    [0, 0, 0, 0, 0, 0, 0],
]


def one_hot(parents, *labels):
    found = {a for c in labels for a in ancestors_or_self(parents, c)}
    return [c in found for c in range(len(parents))]


def random_parents(rng, size, most=1):
    """Draw parents in level order; up to ``most`` of them per class."""
    drawn = [tuple(rng.sample(range(c), min(c, rng.randint(0, most)))) for c in range(size)]
    level = levels(drawn)
    order = sorted(range(size), key=lambda c: level[c])
    place = {c: number for number, c in enumerate(order)}
    return [tuple(sorted(place[p] for p in drawn[c])) for c in order]


def random_case(rng, most=1, rows=6, grid=None, labeled=False):
    """Draw parents, scores in [0, 1) (of ``grid`` distinct values) and closed targets."""
    parents = random_parents(rng, rng.randint(2, 10), most)
    C = len(parents)
    draw = rng.random if grid is None else lambda: rng.randrange(grid) / grid
    scores = [[draw() for _ in range(C)] for _ in range(rows)]
    least = 1 if labeled else 0
    labels = [rng.sample(range(C), rng.randint(least, min(C, 2))) for _ in range(rows)]
    return parents, scores, [one_hot(parents, *row) for row in labels]
