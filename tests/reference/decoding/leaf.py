"""The most probable terminal class."""

from reference.decoding.common import first_best, kept_or_all
from reference.taxonomy import children, leaves


def leaf(rows, parents, terminals=None, keep=None):
    """Return the most probable leaf; ties: the first.

    With inner ``terminals``, the class of largest p less that of its children.
    """
    if terminals is None:
        terminals = leaves(parents)
    options = set(terminals) & kept_or_all(parents, keep)
    if set(terminals) <= set(leaves(parents)):
        return [first_best(options, row) for row in rows]
    below = children(parents)
    own = [[row[c] - sum(row[k] for k in below[c]) for c in range(len(parents))] for row in rows]
    return [first_best(options, row) for row in own]
