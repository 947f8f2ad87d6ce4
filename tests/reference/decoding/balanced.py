"""The terminal class of the best expected mean of exactness and hierarchical F1."""

from fractions import Fraction

from reference.decoding.common import first_best, kept_or_all
from reference.taxonomy import ancestors_or_self, children, leaves


def worths(row, parents, exact=Fraction(3, 4), terminals=None):
    """Return what each terminal class is worth, on average over where the row ends.

    A leaf has its p; an inner terminal class has what its children leave.
    """
    ends = leaves(parents) if terminals is None else terminals
    below = children(parents)
    inner = not set(ends) <= set(leaves(parents))
    q = {t: max(row[t] - sum(row[k] for k in below[t]), 0) if inner else row[t] for t in ends}
    path = {t: set(ancestors_or_self(parents, t)) for t in ends}
    found = {}
    for c in ends:
        found[c] = 0
        for t in ends:
            f1 = Fraction(2 * len(path[c] & path[t]), len(path[c]) + len(path[t]))
            found[c] += q[t] * (exact * (c == t) + (1 - exact) * f1)
    return found


def balanced(rows, parents, exact=Fraction(3, 4), terminals=None, keep=None):
    """Return the best terminal class; ties: the first."""
    out = []
    for row in rows:
        found = worths(row, parents, exact, terminals)
        options = set(found) & kept_or_all(parents, keep)
        out.append(first_best(options, [found.get(c, -1) for c in range(len(parents))]))
    return out


def hier_f1(rows, parents, terminals=None, keep=None):
    """Return the terminal class of the best expected hierarchical F1; ties: the first."""
    return balanced(rows, parents, Fraction(0), terminals, keep)
