"""Precision and recall over thresholds."""

import itertools
import math

from reference.metrics.common import column, reduce

# What C-HMCNN's data code leaves out of its AU(PRC): a root that its tree files are given as a
# class, and the three ontologies of GO. Top classes of a tree are evaluated.
NOT_EVALUATED = ("root", "GO0003674", "GO0005575", "GO0008150")


def counts_at(pairs, threshold):
    """Return (tp, fp) when every entry that scores at least the threshold is answered."""
    tp = sum(1 for score, truth in pairs if score >= threshold and truth)
    fp = sum(1 for score, truth in pairs if score >= threshold and not truth)
    return tp, fp


def descending(pairs):
    return sorted({score for score, _ in pairs}, reverse=True)


def average_precision_of(pairs):
    """Sum of precision times step in recall over falling thresholds; NaN without a positive.

    ``pairs``: (score, truth) entries. Tied entries are answered together.
    """
    total = sum(1 for _, truth in pairs if truth)
    if not total:
        return math.nan
    area, before = 0.0, 0
    for threshold in descending(pairs):
        tp, fp = counts_at(pairs, threshold)
        area += (tp - before) / total * tp / (tp + fp)
        before = tp
    return area


def average_precision(scores, targets, average="micro", classes=None):
    """Average precision. ``classes``: the class numbers evaluated (default: all).

    "micro": of all entries pooled; "macro": mean over the evaluated classes with a positive;
    "none": C floats, NaN for a class that is not evaluated or has no positive.
    """
    C = len(targets[0])
    classes = list(range(C)) if classes is None else list(classes)
    if average == "micro":
        return average_precision_of([pair for c in classes for pair in column(scores, targets, c)])
    out = [math.nan] * C
    for c in classes:
        out[c] = average_precision_of(column(scores, targets, c))
    if average == "none":
        return out
    if average != "macro":
        raise ValueError(f"unknown average {average!r}")
    return reduce(out, "mean")


def evaluated_classes(names):
    """Return the numbers of the classes that C-HMCNN evaluates."""
    return [c for c in range(len(names)) if names[c] not in NOT_EVALUATED]


def au_prc(scores, targets, names):
    """C-HMCNN's AU(PRC): pooled average precision of ``evaluated_classes``."""
    return average_precision(scores, targets, "micro", evaluated_classes(names))


def clus_curve(pairs, thresholds=None):
    """Return the (recall, precision) points that Clus draws, from recall 0 to 1.

    Davis and Goadrich (2006): between the counts of two thresholds tp grows one by one and fp in
    proportion. As in Clus: thresholds at every score; those that answer nothing give no point; the
    first point's precision is kept back to recall 0, with no curve below its tp.

    ``thresholds``: use these instead, as Clus does when asked to be compatible with Vens et al.
    (2008): 0, 0.02, ..., 1. The last point still answers what scores at least the smallest.
    """
    total = sum(1 for _, truth in pairs if truth)
    falling = descending(pairs) if thresholds is None else sorted(thresholds, reverse=True)
    points, last = [], None
    for threshold in falling:
        tp, fp = counts_at(pairs, threshold)
        if tp + fp == 0:
            continue
        if last is None:
            points.append((0.0, tp / (tp + fp)))
        else:
            for between in range(last[0] + 1, tp):
                slope = (fp - last[1]) / (tp - last[0])
                false = last[1] + slope * (between - last[0])
                points.append((between / total, between / (between + false)))
        points.append((tp / total, tp / (tp + fp)))
        last = tp, fp
    return points


def clus_au_prc(scores, targets, classes=None, thresholds=None, without_positives=False):
    """Clus's "Pooled AUPRC", the AU(PRC) of Vens et al. (2008): trapezoids under ``clus_curve``.

    Clus pools the classes that have a positive in these rows only; ``without_positives=True``
    pools the others too. NaN without any positive (Clus says 0).
    """
    classes = range(len(targets[0])) if classes is None else classes
    pairs = []
    for c in classes:
        if without_positives or any(target[c] for target in targets):
            pairs += column(scores, targets, c)
    if not any(truth for _, truth in pairs):
        return math.nan
    points = clus_curve(pairs, thresholds)
    area = 0.0
    for (r0, p0), (r1, p1) in itertools.pairwise(points):
        area += (r1 - r0) * (p0 + p1) / 2
    return area
