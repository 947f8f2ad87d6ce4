"""The closed set of largest expected F."""

from fractions import Fraction

from reference.decoding.common import kept_or_all
from reference.decoding.mass import terminal_mass
from reference.taxonomy import ancestors_or_self, levels


def closed_sets(parents, keep=None):
    """Return every set of classes closed under ancestors, the empty one included.

    By size, then in the order of their sorted members. Up to 2^C of them: for small C only.
    """
    kept = kept_or_all(parents, keep)
    level = levels(parents)
    found = [frozenset()]
    for c in sorted(kept, key=lambda c: level[c]):  # parents are decided before their children
        found += [chosen | {c} for chosen in found if all(p in chosen for p in parents[c])]
    return sorted(found, key=lambda chosen: (len(chosen), sorted(chosen)))


def f_beta(chosen, truth, beta=1):
    """(1 + beta^2) |S n T| / (|S| + beta^2 |T|) of two sets; 0 where both are empty."""
    size = len(chosen) + beta * beta * len(truth)
    return Fraction(len(set(chosen) & set(truth))) * (1 + beta * beta) / size if size else 0


def expected_fs(sets, row, parents, beta=1):
    """Return the expected F_beta of each of several sets of class numbers.

    The truth is a class t and its ancestors with the mass q(t). What ends at the root has an empty
    truth, and F is 0 there.
    """
    q = terminal_mass(row, parents)
    truths = [ancestors_or_self(parents, t) for t in range(len(parents))]
    return [
        sum(q[t] * f_beta(chosen, truths[t], beta) for t in range(len(parents))) for chosen in sets
    ]


def expected_f(rows, parents, beta=1, keep=None):
    """Return the closed set of largest expected F_beta, over all closed sets.

    Ties: the smaller set, then the one that comes first in class order.
    """
    sets = closed_sets(parents, keep)
    out = []
    for row in rows:
        values = expected_fs(sets, row, parents, beta)
        best = sets[values.index(max(values))]  # the first of the best
        out.append([c in best for c in range(len(parents))])
    return out
