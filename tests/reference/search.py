"""Nearest rows by loops in double precision: every distance, then a sort."""

import math


def distance(a, b, name):
    """The distance of two lists of numbers."""
    if name == "cosine":
        lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
        return 1.0 if lengths == 0 else 1 - sum(x * y for x, y in zip(a, b, strict=True)) / lengths
    squared = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return squared if name == "squared" else math.sqrt(squared)


def nearest(queries, rows, k, name):
    """For each query the k least distances, ascending, and the numbers of their rows."""
    distances, numbers = [], []
    for query in queries:
        ranked = sorted((distance(query, row, name), number) for number, row in enumerate(rows))
        distances.append([one for one, _ in ranked[:k]])
        numbers.append([number for _, number in ranked[:k]])
    return distances, numbers


def recall(found, expected):
    """The mean fraction of the expected row numbers that were found."""
    shares = [len(set(a) & set(b)) / len(set(b)) for a, b in zip(found, expected, strict=True)]
    return sum(shares) / len(shares)


def mixed(number):
    """Return the hash of a row number by which rows that tie are chosen, with 64-bit integers."""

    def signed(value):
        return (value + 2**63) % 2**64 - 2**63

    number = signed(number * 0x9E3779B97F4A7C15)
    number = signed((number ^ (number >> 32)) * 0xBF58476D1CE4E5B9)
    return number ^ (number >> 29)


def nearest_with_ties(queries, rows, k):
    """Return squared distances and numbers of the first k rows by distance, then by their hash.

    They are sorted by distance, then by number.
    """
    distances, numbers = [], []
    for query in queries:
        found = [
            (sum((x - y) ** 2 for x, y in zip(query, row, strict=True)), mixed(number), number)
            for number, row in enumerate(rows)
        ]
        best = sorted((distance, number) for distance, _, number in sorted(found)[:k])
        distances.append([distance for distance, _ in best])
        numbers.append([number for _, number in best])
    return distances, numbers
