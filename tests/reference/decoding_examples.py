"""Hierarchies and rows in exact fractions for the tests of the decoders."""

import random
from fractions import Fraction

from reference import decoding
from reference.taxonomy import children, descendants_or_self, levels

#     0 animal            1 plant
#       2 cat   3 dog       (a leaf)
#         4 bulldog   5 pug
TREE = [(), (), (0,), (0,), (3,), (3,)]
# A DAG: 3 lies under both top classes, 4 under 2 and 3.
DAG = [(), (), (0,), (0, 1), (2, 3)]


def tenths(*values):
    return [Fraction(value, 10) for value in values]


# Of ten rows one ends at the root, two at plant, one at cat, one at dog itself, two at bulldog
# and three at pug.
ROW = tenths(7, 2, 1, 6, 2, 3)
ENDS = tenths(0, 2, 1, 1, 2, 3)


def chosen(*rows):
    """Return the sets as class numbers."""
    return [{c for c, inside in enumerate(row) if inside} for row in rows]


def multi_hot(parents, *labels):
    return decoding.coherent([[c in labels for c in range(len(parents))]], parents, 1)[0]


def random_parents(rng, size, most_parents=1):
    """Draw a hierarchy in class order: by level."""
    parents = []
    for c in range(size):
        count = min(c, rng.randint(0, most_parents))
        parents.append(tuple(sorted(rng.sample(range(c), count))))
    level = levels(parents)
    order = sorted(range(size), key=lambda c: level[c])
    place = {c: i for i, c in enumerate(order)}
    return [tuple(sorted(place[p] for p in parents[c])) for c in order]


def random_row(rng, parents):
    """Draw a distribution over the classes and the root; few distinct values, so that ties occur.

    Returns:
        p, q
    """
    weights = [rng.choice([0, 0, 1, 1, 2, 3, 5, 8]) for _ in parents]
    total = sum(weights) + rng.choice([0, 0, 1, 4]) or 1
    q = [Fraction(weight, total) for weight in weights]
    classes = range(len(parents))
    return [sum((q[d] for d in descendants_or_self(parents, c)), Fraction()) for c in classes], q


def cases(seed, count=30, most_parents=1, size=7):
    rng = random.Random(seed)
    for _ in range(count):
        parents = random_parents(rng, rng.randint(1, size), most_parents)
        yield rng, parents, *random_row(rng, parents)


SMALL = [(), (), (0,), (0,)]
CALIBRATION = [
    (tenths(9, 1, 6, 3), (3,), Fraction(6, 10)),  # chain 0, 2; 2 is wrong: min(9, 6)
    (tenths(8, 2, 5, 3), (1,), Fraction(8, 10)),  # chain 0, 2; 0 is wrong already
    (tenths(7, 3, 1, 6), (3,), 0),  # chain 0, 3, all right
    (tenths(4, 5, 1, 3), (0,), Fraction(5, 10)),  # chain 1, wrong
]


def calibration_sets(seed, count=12, most_parents=1):
    """Draw hierarchies with rows whose p need not be coherent, and closed targets."""
    for rng, parents, _, _ in cases(seed, count, most_parents):
        size = rng.randint(6, 14)
        rows = [[Fraction(rng.randint(0, 8), 8) for _ in parents] for _ in range(size)]
        labels = [rng.choices(range(len(parents)), k=rng.randint(1, 2)) for _ in rows]
        yield parents, rows, [multi_hot(parents, *row) for row in labels]


def most_specific(parents, target, found):
    """Pair the labels that have no label below them with whether they were found."""
    below = children(parents)
    tips = [y and not any(target[k] for k in below[c]) for c, y in enumerate(target)]
    return zip(tips, found, strict=True)
