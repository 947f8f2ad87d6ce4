"""Scaled probabilities by loops over rows, parents and their children."""

import math


def scaled_choice(p, slope, share):
    """Return ((1 - share) p + share / K)^slope, divided by its sum, of K numbers."""
    powers = [((1 - share) * one + share / len(p)) ** slope for one in p]
    return [one / sum(powers) for one in powers]


def choices_below(row, parent, parents, ends):
    """Return the children of a class, and what each has of its probability; None for an end."""
    children = [c for c, above in enumerate(parents) if above == parent]
    whole = 1.0 if parent < 0 else row[parent]
    masses = [row[c] for c in children]
    if parent in ends:
        children.append(None)
        masses.append(max(whole - sum(masses), 0.0))
    return children, [one / sum(masses) for one in masses]


def scaled_steps(row, parents, levels, ends, slopes, shares):
    """Return the scaled probabilities of a row of a tree.

    Args:
        row: the probability of every class.
        parents: of every class, -1 at the top.
        levels: of every class, from 1.
        ends: classes with children at which a row may end; -1 among them where it may have none.
        slopes, shares: by level.
    """
    found = [0.0] * len(row)
    for parent in [-1, *range(len(row))]:
        children, p = choices_below(row, parent, parents, ends)
        if not children or children == [None]:
            continue
        level = 0 if parent < 0 else levels[parent]
        above = 1.0 if parent < 0 else found[parent]
        for child, one in zip(
            children, scaled_choice(p, slopes[level], shares[level]), strict=True
        ):
            if child is not None:
                found[child] = above * one
    return found


def surprise_of_choice(p, taken, slope, share):
    """Return minus the log-likelihood of what was taken, and of whether it is the most probable."""
    scaled = scaled_choice(p, slope, share)
    top = p.index(max(p))
    answer = scaled[top] if p[taken] >= p[top] else 1 - scaled[top]
    return -math.log(scaled[taken]) - math.log(answer)


def surprise_of_steps(rows, truths, parents, levels, ends, level, slope, share):
    """Return minus the log-likelihood of the steps of a level that rows took.

    A step counts as much as the class that it starts from is probable.

    Args:
        rows: the probabilities of every row.
        truths: the closed labels of every row, as a set of classes.
    """
    total = 0.0
    for row, true in zip(rows, truths, strict=True):
        for parent in [-1, *sorted(true)]:
            if (0 if parent < 0 else levels[parent]) != level:
                continue
            children, p = choices_below(row, parent, parents, ends)
            if len(children) < 2:
                continue
            taken = [c for c in children if c in true] or [None]
            if taken[0] in children:
                reached = 1.0 if parent < 0 else row[parent]
                total += reached * surprise_of_choice(p, children.index(taken[0]), slope, share)
    return total
