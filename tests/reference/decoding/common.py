"""What several decoders share."""

from reference.taxonomy import ancestors_or_self

ROOT = -1


def is_tree(parents):
    return all(len(above) <= 1 for above in parents)


def first_best(classes, value):
    """Return the class of the largest value, the first of several; the root if there is none."""
    best = ROOT
    for c in sorted(classes):
        if best == ROOT or value[c] > value[best]:
            best = c
    return best


def kept_or_all(parents, keep):
    return set(range(len(parents))) if keep is None else set(keep)


def ancestor_sets(classes, parents):
    """Return each class with its ancestors, as N lists of C booleans; the root: all False."""
    out = []
    for answer in classes:
        path = [] if answer == ROOT else ancestors_or_self(parents, answer)
        out.append([c in path for c in range(len(parents))])
    return out
