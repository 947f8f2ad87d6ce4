"""Fmax, Smin and information content by loops over rows, thresholds and classes."""

import math


def coherent(row, parents):
    """The largest score of each class and its descendants."""
    out = list(row)
    changed = True
    while changed:
        changed = False
        for child, above in enumerate(parents):
            for parent in above:
                if out[child] > out[parent]:
                    out[parent], changed = out[child], True
    return out


def information_content(targets, parents):
    """-log2 of how often rows that have all parents of a class have the class."""
    labeled = [row for row in targets if any(row)]
    out = []
    for number, above in enumerate(parents):
        base = [row for row in labeled if all(row[parent] for parent in above)]
        own = [row for row in labeled if row[number]]
        ratio = max(len(base), 1) / max(len(own), 1)
        out.append(math.log2(ratio) if ratio > 1 else 0.0)
    return out


def at_threshold(scores, targets, parents, ic, classes, threshold, namespace=None):
    """Precision, recall, both by information, uncertainty and misinformation at one threshold.

    As cafaeval: rows with a label in the namespace count, though it be none of the classes.
    """
    pr, rc, wpr, wrc, ru, mi = [], [], [], [], [], []
    for row, target in zip(scores, targets, strict=True):
        if not any(target[c] for c in (range(len(parents)) if namespace is None else namespace)):
            continue
        truth = {c for c in classes if target[c]}
        row = coherent(row, parents)
        found = {c for c in classes if row[c] >= threshold}
        if found:
            pr.append(len(found & truth) / len(found))
        rc.append(len(found & truth) / len(truth) if truth else 0.0)
        held, true = sum(ic[c] for c in found), sum(ic[c] for c in truth)
        both = sum(ic[c] for c in found & truth)
        if held > 0:
            wpr.append(both / held)
        wrc.append(both / true if true > 0 else 0.0)
        ru.append(sum(ic[c] for c in truth - found))
        mi.append(sum(ic[c] for c in found - truth))
    if not any(ic[c] for c in classes):  # all classes count alike
        wpr, wrc = pr, rc
    return [sum(x) / len(x) if x else 0.0 for x in (pr, rc, wpr, wrc, ru, mi)]


def harmonic(a, b):
    """F1."""
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def figures(scores, targets, parents, ic, classes, thresholds, namespace=None):
    """Fmax, weighted Fmax and Smin."""
    rows = [at_threshold(scores, targets, parents, ic, classes, t, namespace) for t in thresholds]
    return (
        max(harmonic(row[0], row[1]) for row in rows),
        max(harmonic(row[2], row[3]) for row in rows),
        min(math.hypot(row[4], row[5]) for row in rows),
    )
