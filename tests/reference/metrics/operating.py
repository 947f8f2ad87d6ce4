"""Accuracy against specificity of decisions that stop early."""

import math

from reference.metrics.accuracy import answer_accuracy, mean_level
from reference.metrics.common import ROOT, positives, ranked_classes
from reference.taxonomy import children, levels, terminal_labels


def greedy_chain(row, parents):
    """Return the walk from the root to the most probable child, down to a leaf."""
    below = children(parents)
    here = [c for c in range(len(parents)) if not parents[c]]
    chain = []
    while here:
        chain.append(ranked_classes(row, here)[0])
        here = below[chain[-1]]
    return chain


def stop(row, parents, threshold):
    """Return the last class of the greedy chain before the first with p <= threshold, or -1."""
    answer = ROOT
    for c in greedy_chain(row, parents):
        if not row[c] > threshold:
            break
        answer = c
    return answer


def operating_curve(probabilities, targets, parents, thresholds):
    """Return a dict of lists, one float per threshold, each row decoded again by ``stop``.

    "accuracy": share of the answers in the closure, the root among them. "specificity": mean level
    of the answer (root: 0) / mean level of the row's deepest label (none: 0); NaN if that is 0.
    "answered": share that is not the root. "exact": share that is a most specific label. Every row
    counts.
    """
    level = levels(parents)
    curve = {"thresholds": list(thresholds)}
    curve.update({name: [] for name in ("accuracy", "specificity", "answered", "exact")})
    N = len(targets)
    deepest = sum(max((level[c] for c in positives(t)), default=0) for t in targets) / N
    for threshold in thresholds:
        answers = [stop(row, parents, threshold) for row in probabilities]
        exact = [c in terminal_labels(t, parents) for c, t in zip(answers, targets, strict=True)]
        curve["accuracy"].append(answer_accuracy(answers, targets))
        curve["specificity"].append(mean_level(answers, parents) / deepest if deepest else math.nan)
        curve["answered"].append(sum(1 for c in answers if c != ROOT) / N)
        curve["exact"].append(sum(exact) / N)
    return curve
