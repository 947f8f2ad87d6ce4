"""The probability that a row ends at a class."""

from reference.decoding.common import ROOT
from reference.taxonomy import descendants_or_self


def raw_mass(row, parents):
    """Return q of every class, negative where p does not add up.

    q(c) is p(c) less the q of everything below c, each class once; in a tree this is p(c) less the
    p of the children.
    """

    found = {}

    def mass(c):
        if c not in found:
            below = [d for d in descendants_or_self(parents, c) if d != c]
            found[c] = row[c] - sum(mass(d) for d in below)
        return found[c]

    return [mass(c) for c in range(len(parents))]


def terminal_mass(row, parents):
    """Return q of every class, with 0 for a negative one. The rest up to 1 ends at the root."""
    return [max(0, q) for q in raw_mass(row, parents)]


def first_excess(rows, parents, tolerance=1e-4):
    """Return the first place where p does not add up, or None.

    Returns:
        (row, class, mass below it, its p): the first row and in it the first class, the root
        coming before all, whose p is smaller than the mass of what lies below it by more than the
        tolerance. In a tree the mass below is the sum of the p of the children.
    """
    for i, row in enumerate(rows):
        q = raw_mass(row, parents)
        if sum(q) > 1 + tolerance:
            return i, ROOT, sum(q), 1
        for c in range(len(parents)):
            if q[c] < -tolerance:
                return i, c, row[c] - q[c], row[c]
    return None
