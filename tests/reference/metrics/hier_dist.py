"""Distances in the hierarchy between predictions and labels."""

import math

from reference.metrics.common import ROOT, positives, ranked_classes, reduce
from reference.taxonomy import ancestors_or_self, heights, leaves, root_height, terminal_labels


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
    """Return per row the mean distance of the k best candidates, and whether the best is wrong."""
    allowed = candidate_classes(candidates, targets, parents, terminals)
    if not 1 <= k <= len(allowed):
        raise ValueError(f"k = {k} with {len(allowed)} candidates")
    out, mistakes = [], []
    for i in range(len(targets)):
        row = annotated[i] if annotated is not None else None
        labels = reference_set(targets[i], parents, reference, row)
        best = ranked_classes(scores[i], allowed)[:k]
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
