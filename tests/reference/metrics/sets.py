"""Precision, recall and F of closed sets of classes."""

import math

from reference.metrics.common import ROOT, positives, reduce
from reference.taxonomy import ancestors_or_self, levels


def closed(row, parents):
    """Return the closure of a row of C booleans, or of one class number, as a set."""
    labels = ([] if row == ROOT else [row]) if isinstance(row, int) else positives(row)
    return {a for c in labels for a in ancestors_or_self(parents, c)}


def measure(tp, answered, true, name, beta):
    """Precision, recall or F of counts; 0 for a division by zero."""
    if name == "precision":
        return tp / answered if answered else 0.0
    if name == "recall":
        return tp / true if true else 0.0
    precision = tp / answered if answered else 0.0
    recall = tp / true if true else 0.0
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def set_measure(predicted, targets, parents, average, name, beta=1.0):
    answers = [closed(row, parents) for row in predicted]
    truths = [closed(list(row), parents) for row in targets]

    def pooled(keep):
        tp = answered = true = 0
        for answer, truth in zip(answers, truths, strict=True):
            tp += len(answer & truth & keep)
            answered += len(answer & keep)
            true += len(truth & keep)
        return measure(tp, answered, true, name, beta)

    everything = set(range(len(parents)))
    if average == "micro":
        return pooled(everything)
    if average == "macro":
        counted = [c for c in sorted(everything) if any(c in truth for truth in truths)]
        return sum(pooled({c}) for c in counted) / len(counted) if counted else math.nan
    if average == "samples":
        out = []
        for answer, truth in zip(answers, truths, strict=True):
            out.append(measure(len(answer & truth), len(answer), len(truth), name, beta))
        return sum(out) / len(out)
    if average == "level":
        level = levels(parents)
        return [pooled({c for c in everything if level[c] == m}) for m in range(1, max(level) + 1)]
    raise ValueError(f"unknown average {average!r}")


def hierarchical_precision(predicted, targets, parents, average="micro"):
    """Share of the answered classes that are true, both sides closed (Kiritchenko et al. 2005).

    ``predicted``: N rows of C booleans, or N class numbers (-1: the root, nothing answered).
    "micro": pooled counts; "macro": mean over the classes with a positive target; "samples": mean
    over rows, all of them; "level": L floats, pooled within a level. A division by zero gives 0,
    so a row with neither truth nor answer has the value 0.
    """
    return set_measure(predicted, targets, parents, average, "precision")


def hierarchical_recall(predicted, targets, parents, average="micro"):
    """Share of the true classes that are answered; see ``hierarchical_precision``."""
    return set_measure(predicted, targets, parents, average, "recall")


def hierarchical_f1(predicted, targets, parents, average="micro", beta=1.0):
    """(1 + beta^2) P R / (beta^2 P + R); see ``hierarchical_precision``."""
    return set_measure(predicted, targets, parents, average, "f", beta)


def exact_match(predicted, targets, parents, reduction="mean"):
    """Whether the closed sets are the same; nothing answered where nothing is true is a match."""
    out = []
    for row, target in zip(predicted, targets, strict=True):
        out.append(float(closed(row, parents) == closed(list(target), parents)))
    return reduce(out, reduction)
