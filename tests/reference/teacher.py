"""The teacher-student curriculum (Matiisen et al., 2017) by loops, over epochs of scores.

    reward   Q_k = slope of the least-squares line through the last scores of task k
    choice   P(k) = exp(|Q_k| / max |Q| / temperature) / sum of the same, drawn by one number

The random number of epoch t is that of Python's generator for the text "teacher SEED t".
"""

import math
import random

from reference.bce import bce
from reference.constraint import is_known
from reference.links import log_sigmoid
from reference.taxonomy import ancestors_or_self, levels


def tasks_of(parents, kind):
    """Return the list of classes of every task."""
    if kind == "levels":
        m = levels(parents)
        return [[c for c in range(len(parents)) if m[c] == level] for level in sorted(set(m))]
    tops = [c for c in range(len(parents)) if not parents[c]]
    return [[c for c in range(len(parents)) if t in ancestors_or_self(parents, c)] for t in tops]


def slope(points):
    """Return the slope of the line through (time, score) by the normal equations."""
    n = len(points)
    if n < 2:
        return 0.0
    st, sx = sum(t for t, _ in points), sum(x for _, x in points)
    stt, stx = sum(t * t for t, _ in points), sum(t * x for t, x in points)
    return (n * stx - st * sx) / (n * stt - st * st)


def window_rewards(scores, window):
    """Return Q of every task from its scores of all epochs so far; None is no score."""
    out = []
    for task in scores:
        points = [(t, x) for t, x in enumerate(task) if x is not None and t >= len(task) - window]
        out.append(slope(points))
    return out


def probabilities(rewards, temperature):
    sizes = [abs(q) for q in rewards]
    if max(sizes) > 0:
        sizes = [q / max(sizes) for q in sizes]
    weights = [math.exp((q - max(sizes)) / temperature) for q in sizes]
    return [w / sum(weights) for w in weights]


def choose(rewards, temperature, seed, epoch):
    """Return the number of the task of an epoch."""
    drawn, total = random.Random(f"teacher {seed} {epoch}").random(), 0.0
    p = probabilities(rewards, temperature)
    for task in range(len(p) - 1):
        total += p[task]
        if drawn < total:
            return task
    return len(p) - 1


def measure(logits, targets, task, mask):
    """Return the score of a task on the rows of an epoch; None without a known entry."""
    total = count = 0
    for i, row in enumerate(logits):
        for j in task:
            if is_known(mask, i, j):
                count += 1
                total -= bce(log_sigmoid(row[j]), log_sigmoid(-row[j]), targets[i][j])
    return total / count if count else None


def teacher(epochs, parents, *, kind, window, temperature, floor, seed):
    """Return, of each epoch, the N x C losses, the chosen task, and the rewards that chose it.

    Args:
        epochs: (logits, targets, mask) of the rows of each epoch.
        parents: of every class.
    """
    tasks = tasks_of(parents, kind)
    scores = [[] for _ in tasks]
    out = []
    for epoch, (logits, targets, mask) in enumerate(epochs):
        rewards = window_rewards(scores, window)
        task = choose(rewards, temperature, seed, epoch)
        losses = [[0.0 for _ in parents] for _ in logits]
        for i, row in enumerate(logits):
            for j in range(len(parents)):
                if is_known(mask, i, j):
                    value = bce(log_sigmoid(row[j]), log_sigmoid(-row[j]), targets[i][j])
                    losses[i][j] = value * (1.0 if j in tasks[task] else floor)
        out.append((losses, task, rewards))
        for k, classes in enumerate(tasks):
            scores[k].append(measure(logits, targets, classes, mask))
    return out
