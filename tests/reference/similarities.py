"""Similarities to titles -> scores of terminal classes and node probabilities, in naive loops."""

import math

from reference.taxonomy import ancestors_or_self, descendants_or_self


def path_score(row, classes, parents, t):
    """Mean over the titled classes at or above t of the mean similarity to their titles."""
    means = []
    for c in ancestors_or_self(parents, t):
        own = [row[k] for k in range(len(classes)) if classes[k] == c]
        if own:
            means.append(sum(own) / len(own))
    return sum(means) / len(means)


def node_probabilities(row, classes, parents, terminals, temperature):
    scores = [path_score(row, classes, parents, t) / temperature for t in terminals]
    top = max(scores)
    masses = [math.exp(one - top) for one in scores]
    total = math.fsum(masses)
    found = []
    for c in range(len(parents)):
        below = descendants_or_self(parents, c)
        inside = (m for t, m in zip(terminals, masses, strict=True) if t in below)
        found.append(math.fsum(inside) / total)
    return found
