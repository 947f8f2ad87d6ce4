"""All classes above a threshold, closed under ancestors."""

from reference.decoding.common import kept_or_all
from reference.taxonomy import descendants_or_self


def coherent(rows, parents, threshold=0.5, keep=None):
    """Return the sets of the classes that, or one of whose descendants, have p >= threshold."""
    kept = kept_or_all(parents, keep)
    return [
        [
            c in kept and any(row[d] >= threshold for d in descendants_or_self(parents, c))
            for c in range(len(parents))
        ]
        for row in rows
    ]
