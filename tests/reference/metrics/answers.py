"""The figures of answers: exact, accuracy by level, severity, F1, calibration, answered, complete.

``answers``: N sets of class numbers, closed under ancestors or not; ``truth`` likewise. ``known``:
N rows of C booleans, or None where everything is known.
"""

import math

from reference.taxonomy import levels


def close(classes, parents):
    """The classes and all their ancestors."""
    found, left = set(), list(classes)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(parents[one])
    return found


def figures(answers, truth, p, parents, terminals, known=None, bins=15):
    """All figures by name; NaN where one has no value."""
    level = levels(parents)
    depth = max(level)
    right = [0] * depth
    labeled = [0] * depth
    counted, wrong_levels = 0, []
    both = sizes = 0
    sure = []
    answered = complete = 0
    for row, (answer, label) in enumerate(zip(answers, truth, strict=True)):
        knows = [True] * len(parents) if known is None else known[row]
        if not any(knows):
            continue
        counted += 1
        whole = close(answer, parents)
        a = {c for c in whole if knows[c]}
        t = close(label, parents)
        wrong = 0
        for k in range(1, depth + 1):
            at_a, at_t = {c for c in a if level[c] == k}, {c for c in t if level[c] == k}
            wrong += at_a != at_t
            if at_t or k == 1:
                labeled[k - 1] += 1
                right[k - 1] += at_a == at_t
        wrong_levels.append(wrong)
        both += len(a & t)
        sizes += len(a) + len(t)
        ends = {c for c in whole if not any(c in parents[d] for d in whole)}
        sure += [(p[row][c], c in t) for c in sorted(ends) if knows[c]]
        answered += bool(whole)
        complete += bool(whole) and all(c in terminals for c in ends)
    mistakes = [one for one in wrong_levels if one]
    return {
        "accuracy": [r / n if n else math.nan for r, n in zip(right, labeled, strict=True)],
        "exact": (counted - len(mistakes)) / counted if counted else math.nan,
        "severity": sum(mistakes) / len(mistakes) if mistakes else math.nan,
        "f1": 2 * both / sizes if sizes else 0.0,
        "calibration": calibration(sure, bins),
        "answered": answered / counted if counted else math.nan,
        "complete": complete / counted if counted else math.nan,
    }


def calibration(sure, bins):
    """The expected calibration error of pairs of a probability and whether it was right."""
    if not sure:
        return math.nan
    error = 0.0
    for b in range(bins):
        last = b == bins - 1
        inside = [(q, y) for q, y in sure if b / bins <= q < (b + 1) / bins or (last and q == 1)]
        error += abs(sum(q for q, _ in inside) - sum(y for _, y in inside))
    return error / len(sure)
