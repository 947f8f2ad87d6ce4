"""The most probable class."""

from reference.decoding.common import first_best, kept_or_all


def argmax(rows, parents, keep=None):
    """Return the most probable class of all; ties: the first."""
    return [first_best(kept_or_all(parents, keep), row) for row in rows]
