"""Every metric in naive loops, straight from its definition.

Arguments are plain lists. ``scores``: N rows of C numbers, larger is more likely. ``targets``: N
rows of C truth values (bool or 0/1), closed under ancestors. ``parents[c]``: the parents of class c
as numbers in class order, () for a top class. ``classes``: N decisions, -1 for the implicit root.

``reduction="none"`` gives one float a row, NaN where the row does not count; ``"mean"`` the mean
over the rows that count, NaN if there is none. Ties: the class of the smaller number comes first.
Nothing is validated beyond what a definition needs; ValueError for an option that does not exist.

Ranking         hit_at_k, mean_reciprocal_rank, coverage
Precision       average_precision, au_prc, evaluated_classes, clus_curve, clus_au_prc
Distance        hier_dist, mistake_severity, hierarchical_cost, default_terminals
Accuracy        terminal_accuracy, leaf_accuracy, level_accuracy, answer_accuracy, mean_level,
                mean_predicted_level
Sets            hierarchical_precision, hierarchical_recall, hierarchical_f1, exact_match
Probabilities   coherence_violations, calibration_error, operating_curve, greedy_chain, stop
"""

import itertools
import math

from reference.taxonomy import (
    ancestors_or_self,
    children,
    heights,
    leaves,
    levels,
    root_height,
    terminal_labels,
)

ROOT = -1
# What C-HMCNN's data code leaves out of its AU(PRC): a root that its tree files are given as a
# class, and the three ontologies of GO. Top classes of a tree are evaluated.
NOT_EVALUATED = ("root", "GO0003674", "GO0005575", "GO0008150")


def reduce(values, reduction):
    """Return the rows, or the mean of those that are not NaN."""
    if reduction == "none":
        return values
    if reduction != "mean":
        raise ValueError(f"unknown reduction {reduction!r}")
    counted = [v for v in values if not math.isnan(v)]
    return sum(counted) / len(counted) if counted else math.nan


def positives(row):
    return [c for c in range(len(row)) if row[c]]


def ranking(row, candidates=None):
    """Return the candidates (default: all classes), best first."""
    candidates = range(len(row)) if candidates is None else candidates
    return sorted(candidates, key=lambda c: (-row[c], c))


# ranking -----------------------------------------------------------------------------------------


def hit_at_k(scores, targets, k=1, reduction="mean"):
    """Whether one of the k best classes is positive."""
    out = []
    for row, target in zip(scores, targets, strict=True):
        hit = any(target[c] for c in ranking(row)[:k])
        out.append(float(hit) if positives(target) else math.nan)
    return reduce(out, reduction)


def mean_reciprocal_rank(scores, targets, reduction="mean"):
    """1 / place of the first positive class in the ranking, places counted from 1."""
    out = []
    for row, target in zip(scores, targets, strict=True):
        value = math.nan
        for place, c in enumerate(ranking(row), start=1):
            if target[c]:
                value = 1 / place
                break
        out.append(value)
    return reduce(out, reduction)


def coverage(scores, targets, reduction="mean"):
    """Number of classes that score at least as much as the positive that scores least."""
    out = []
    for row, target in zip(scores, targets, strict=True):
        value = math.nan
        if positives(target):
            least = min(row[c] for c in positives(target))
            value = float(sum(1 for s in row if s >= least))
        out.append(value)
    return reduce(out, reduction)


# precision and recall over thresholds ------------------------------------------------------------


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


def column(scores, targets, c):
    return [(row[c], bool(target[c])) for row, target in zip(scores, targets, strict=True)]


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


# distance in the hierarchy -----------------------------------------------------------------------


def default_terminals(targets, parents):
    """Return the leaves and the inner classes that are a most specific label of some row."""
    found = set(leaves(parents))
    for target in targets:
        found |= set(terminal_labels(target, parents))
    return sorted(found)


def lca_height(parents, a, b):
    """Smallest height of what is above or equal to both; the root is above everything."""
    if ROOT in (a, b):
        return root_height(parents)
    common = set(ancestors_or_self(parents, a)) & set(ancestors_or_self(parents, b))
    height = heights(parents)
    return min([root_height(parents)] + [height[c] for c in common])


def path_length(parents, a, b):
    """Edges between two nodes, by breadth-first search; top classes hang under the root."""
    if any(len(above) > 1 for above in parents):
        raise ValueError("a path needs a tree: a class has several parents")
    neighbors = {c: [] for c in range(-1, len(parents))}
    for c in range(len(parents)):
        above = parents[c][0] if parents[c] else ROOT
        neighbors[c].append(above)
        neighbors[above].append(c)
    reached, ring, steps = {a}, [a], 0
    while b not in reached:
        ring = [n for node in ring for n in neighbors[node] if n not in reached]
        reached |= set(ring)
        steps += 1
    return steps


DISTANCES = {"lca-height": lca_height, "path": path_length}


def reference_set(target, parents, reference, annotated_row=None):
    """Return the classes that a prediction is measured against."""
    if reference == "closure":
        return positives(target)
    if reference == "terminal":
        return terminal_labels(target, parents)
    if reference == "annotated":
        return positives(annotated_row)
    raise ValueError(f"unknown reference {reference!r}")


def distance_to(c, labels, parents, distance, correct_cost):
    """Distance of class c to the nearest label; NaN without a label."""
    if correct_cost not in ("height", "zero"):
        raise ValueError(f"unknown correct_cost {correct_cost!r}")
    if not labels:
        return math.nan
    if correct_cost == "zero" and c in labels:
        return 0.0
    return float(min(DISTANCES[distance](parents, c, r) for r in labels))


def candidate_classes(candidates, targets, parents, terminals=None):
    if candidates == "all":
        return list(range(len(parents)))
    if candidates == "leaves":
        return leaves(parents)
    if candidates != "terminal":
        raise ValueError(f"unknown candidates {candidates!r}")
    return default_terminals(targets, parents) if terminals is None else sorted(terminals)


def distances_and_mistakes(
    scores, targets, parents, candidates, correct_cost, reference, distance, k, terminals, annotated
):
    """Return, a row: the mean distance of its k best candidates; whether the best is not in R."""
    allowed = candidate_classes(candidates, targets, parents, terminals)
    if not 1 <= k <= len(allowed):
        raise ValueError(f"k = {k} with {len(allowed)} candidates")
    out, mistakes = [], []
    for i in range(len(targets)):
        row = annotated[i] if annotated is not None else None
        labels = reference_set(targets[i], parents, reference, row)
        best = ranking(scores[i], allowed)[:k]
        out.append(sum(distance_to(c, labels, parents, distance, correct_cost) for c in best) / k)
        mistakes.append(best[0] not in labels)
    return out, mistakes


def hier_dist(
    scores,
    targets,
    parents,
    *,
    candidates="all",
    correct_cost="height",
    reference="closure",
    distance="lca-height",
    k=1,
    terminals=None,
    annotated=None,
    reduction="mean",
):
    """Mean over the k best candidates of the distance to the nearest class of R.

    candidates: "all", "leaves", or "terminal" (``terminals``; default ``default_terminals``).
    R: "closure", "terminal", or "annotated" (positives of ``annotated``, N rows of C).
    distance: "lca-height" or "path" (trees only). correct_cost="zero": a class of R costs nothing.
    A row whose R is empty does not count.
    """
    out, _ = distances_and_mistakes(
        scores,
        targets,
        parents,
        candidates,
        correct_cost,
        reference,
        distance,
        k,
        terminals,
        annotated,
    )
    return reduce(out, reduction)


def mistake_severity(
    scores,
    targets,
    parents,
    *,
    candidates="all",
    correct_cost="height",
    reference="closure",
    distance="lca-height",
    k=1,
    terminals=None,
    annotated=None,
    reduction="mean",
):
    """``hier_dist`` over the rows whose best candidate is not in R; NaN without a mistake."""
    out, mistakes = distances_and_mistakes(
        scores,
        targets,
        parents,
        candidates,
        correct_cost,
        reference,
        distance,
        k,
        terminals,
        annotated,
    )
    return reduce(
        [v if wrong else math.nan for v, wrong in zip(out, mistakes, strict=True)], reduction
    )


def hierarchical_cost(
    classes,
    targets,
    parents,
    distance="lca-height",
    cost=None,
    *,
    correct_cost="height",
    reference="terminal",
    reduction="mean",
):
    """Cost of a decision: its distance to the nearest label, the root being a decision too.

    ``cost[c][t]``: C x C costs of decision c under label t instead, least over the row's most
    specific labels; then the root is no decision. A row without a label does not count.
    """
    out = []
    for c, target in zip(classes, targets, strict=True):
        labels = reference_set(target, parents, reference)
        if cost is None:
            out.append(distance_to(c, labels, parents, distance, correct_cost))
        elif c == ROOT:
            raise ValueError("a cost matrix says nothing about the root")
        else:
            out.append(float(min((cost[c][t] for t in labels), default=math.nan)))
    return reduce(out, reduction)


# accuracy ----------------------------------------------------------------------------------------


def terminal_accuracy(scores, targets, parents, terminals=None, reduction="mean"):
    """Whether the best terminal class is one of the row's most specific labels."""
    allowed = candidate_classes("terminal", targets, parents, terminals)
    out = []
    for row, target in zip(scores, targets, strict=True):
        labels = terminal_labels(target, parents)
        hit = ranking(row, allowed)[0] in labels
        out.append(float(hit) if labels else math.nan)
    return reduce(out, reduction)


def leaf_accuracy(scores, targets, parents, reduction="mean"):
    """Whether the best leaf is positive; rows without a positive leaf do not count."""
    below = leaves(parents)
    out = []
    for row, target in zip(scores, targets, strict=True):
        counts = any(target[c] for c in below)
        out.append(float(bool(target[ranking(row, below)[0]])) if counts else math.nan)
    return reduce(out, reduction)


def level_accuracy(scores, targets, parents, reduction="mean"):
    """L floats: whether the best class of the level is positive, over rows with a positive there.

    NaN for a level without such a row. "none": N rows of L.
    """
    level = levels(parents)
    rows = []
    for row, target in zip(scores, targets, strict=True):
        out = []
        for m in range(1, max(level) + 1):
            group = [c for c in range(len(parents)) if level[c] == m]
            counts = any(target[c] for c in group)
            out.append(float(bool(target[ranking(row, group)[0]])) if counts else math.nan)
        rows.append(out)
    if reduction == "none":
        return rows
    return [reduce([row[m] for row in rows], reduction) for m in range(max(level))]


def answer_accuracy(classes, targets, reduction="mean"):
    """Whether the decision is a positive class; the root always is right. Every row counts."""
    out = []
    for c, target in zip(classes, targets, strict=True):
        out.append(1.0 if c == ROOT else float(bool(target[c])))
    return reduce(out, reduction)


def mean_level(classes, parents, reduction="mean"):
    """Level of the decision, 0 for the root."""
    level = levels(parents)
    return reduce([0.0 if c == ROOT else float(level[c]) for c in classes], reduction)


def mean_predicted_level(scores, targets, parents, unlabeled=True, reduction="mean"):
    """Level of the best class of all. ``unlabeled``: rows without a label count too."""
    out = mean_level([ranking(row)[0] for row in scores], parents, "none")
    for i in range(len(out)):
        if not unlabeled and not positives(targets[i]):
            out[i] = math.nan
    return reduce(out, reduction)


# sets --------------------------------------------------------------------------------------------


def closed(row, parents):
    """Return the closure of a row of C truth values, or of one class number, as a set."""
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

    ``predicted``: N rows of C truth values, or N class numbers (-1: the root, nothing answered).
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


# probabilities -----------------------------------------------------------------------------------


def coherence_violations(probabilities, parents, tolerance=1e-6, reduction="mean"):
    """Number of (parent, child) edges with p(child) > p(parent) + tolerance.

    "none": a row; "mean": mean a row; "sum": over all rows.
    """
    out = []
    for row in probabilities:
        edges = [(p, c) for c in range(len(parents)) for p in parents[c]]
        out.append(float(sum(1 for p, c in edges if row[c] > row[p] + tolerance)))
    return sum(out) if reduction == "sum" else reduce(out, reduction)


def binned_error(pairs, bins, closed_side):
    """Sum over bins of (share of the entries) * |mean probability - share of positives|."""
    error = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        if closed_side == "left":  # [low, high), the last one with 1
            inside = [(p, y) for p, y in pairs if low <= p and (p < high or b == bins - 1)]
        else:  # (low, high], the first one with 0
            inside = [(p, y) for p, y in pairs if p <= high and (p > low or b == 0)]
        if inside:
            mean = sum(p for p, _ in inside) / len(inside)
            share = sum(1 for _, y in inside if y) / len(inside)
            error += len(inside) / len(pairs) * abs(mean - share)
    return error


def calibration_error(probabilities, targets, parents, bins=15, pooled=False, closed_side="left"):
    """L floats: expected calibration error of all entries of a level; ``pooled``: one, of all.

    Bins of equal width over [0, 1], their edges b / bins. ``closed_side``: "left" [low, high) or
    "right" (low, high]; it matters only for a probability that is an edge.
    """
    level = levels(parents)
    columns = [column(probabilities, targets, c) for c in range(len(parents))]
    if pooled:
        return binned_error([pair for pairs in columns for pair in pairs], bins, closed_side)
    out = []
    for m in range(1, max(level) + 1):
        pairs = [pair for c in range(len(parents)) if level[c] == m for pair in columns[c]]
        out.append(binned_error(pairs, bins, closed_side))
    return out


def greedy_chain(row, parents):
    """Return the walk from the root to the most probable child, down to a leaf."""
    below = children(parents)
    here = [c for c in range(len(parents)) if not parents[c]]
    chain = []
    while here:
        chain.append(ranking(row, here)[0])
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
    """Return a dict of lists, one float a threshold, each row decoded anew by ``stop``.

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
