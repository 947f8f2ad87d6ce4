"""Decoders in naive loops: node probabilities to decisions, by enumeration from the definitions.

``rows`` is N lists of C node probabilities p; ``parents[c]`` holds the numbers of the parents of
class c, () for a top class. The implicit root has p = 1 and the number -1. ``targets`` is N closed
rows of C booleans. A decoder called ``name(rows, parents, ...)`` answers for all rows: N class
numbers (-1: the root, no class) or N lists of C booleans. Functions of one ``row`` give the values
that are compared, for tests that must allow for rounding in a tie.

    q(c) = p(c) - sum of q over what lies below c       the mass that ends at c

Every decoder takes ``keep``: it may answer these classes only; None means all of them.

Only + - * / and comparisons touch the values, so rows of ``fractions.Fraction`` (with ``beta`` and
``spread`` integers or fractions) give exact values and exact ties.
"""

import math
from fractions import Fraction

from reference.taxonomy import (
    ancestors_or_self,
    children,
    descendants_or_self,
    heights,
    leaves,
    levels,
    root_height,
    terminal_labels,
)

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


def kept_of(parents, keep):
    return set(range(len(parents))) if keep is None else set(keep)


def ancestor_sets(classes, parents):
    """Return each class with its ancestors, as N lists of C booleans; the root: all False."""
    out = []
    for answer in classes:
        path = [] if answer == ROOT else ancestors_or_self(parents, answer)
        out.append([c in path for c in range(len(parents))])
    return out


# ---------------------------------------------------------------------- the mass that ends


def raw_mass(row, parents):
    """Return q of every class, negative where p does not add up.

    q(c) is p(c) less the q of everything below c, each class once; in a tree this is p(c) less the
    p of the children.
    """

    found = {}

    def mass(c):
        if c not in found:
            below = [d for d in descendants_or_self(parents, c) if d != c]
            found[c] = row[c] - sum(mass(d) for d in below)
        return found[c]

    return [mass(c) for c in range(len(parents))]


def terminal_mass(row, parents):
    """Return q of every class, with 0 for a negative one. The rest up to 1 ends at the root."""
    return [max(0, q) for q in raw_mass(row, parents)]


def first_excess(rows, parents, tolerance=1e-4):
    """Return the first place where p does not add up, or None.

    Returns:
        (row, class, mass below it, its p): the first row and in it the first class, the root
        coming before all, whose p is smaller than the mass of what lies below it by more than the
        tolerance. In a tree the mass below is the sum of the p of the children.
    """
    for i, row in enumerate(rows):
        q = raw_mass(row, parents)
        if sum(q) > 1 + tolerance:
            return i, ROOT, sum(q), 1
        for c in range(len(parents)):
            if q[c] < -tolerance:
                return i, c, row[c] - q[c], row[c]
    return None


# ---------------------------------------------------------------------- argmax, leaf, top-down


def argmax(rows, parents, keep=None):
    """Return the most probable class of all; ties: the first."""
    return [first_best(kept_of(parents, keep), row) for row in rows]


def leaf(rows, parents, terminals=None, keep=None):
    """Return the most probable leaf; with inner ``terminals``, the class of largest p less that of
    its children; ties: the first."""
    if terminals is None:
        terminals = leaves(parents)
    options = set(terminals) & kept_of(parents, keep)
    if set(terminals) <= set(leaves(parents)):
        return [first_best(options, row) for row in rows]
    below = children(parents)
    ends = [[row[c] - sum(row[k] for k in below[c]) for c in range(len(parents))] for row in rows]
    return [first_best(options, row) for row in ends]


def greedy_chain(row, parents, keep=None):
    """Return the classes met from the root to the most probable child, on to a leaf.

    In a DAG the children of a class are all that name it as a parent, and the walk starts at the
    classes without a parent. Ties: the first child. A list, top class first, without padding.
    """
    kept = kept_of(parents, keep)
    below = children(parents)
    options = [c for c in range(len(parents)) if not parents[c] and c in kept]
    chain = []
    while options:
        chain.append(first_best(options, row))
        options = [k for k in below[chain[-1]] if k in kept]
    return chain


def greedy_chains(rows, parents):
    """Return the chains of all rows, filled up with -1 to the depth of the hierarchy."""
    depth = max(levels(parents))
    chains = [greedy_chain(row, parents) for row in rows]
    return [chain + [ROOT] * (depth - len(chain)) for chain in chains]


def top_down(rows, parents, keep=None):
    """Return the last class of the greedy chain. Trees only."""
    if not is_tree(parents):
        raise ValueError("top-down needs a tree")
    return [(greedy_chain(row, parents, keep) or [ROOT])[-1] for row in rows]


# ---------------------------------------------------------------------- coherent sets


def coherent(rows, parents, threshold=0.5, keep=None):
    """Return the sets of the classes that, or one of whose descendants, have p >= threshold."""
    kept = kept_of(parents, keep)
    return [
        [
            c in kept and any(row[d] >= threshold for d in descendants_or_self(parents, c))
            for c in range(len(parents))
        ]
        for row in rows
    ]


# ---------------------------------------------------------------------- least expected cost


def common(parents, a, b):
    """Return the classes that are an ancestor of both or one of the two; -1 has no such class."""
    if ROOT in (a, b):
        return set()
    return set(ancestors_or_self(parents, a)) & set(ancestors_or_self(parents, b))


def lca_height_cost(parents, prediction, truth):
    """Height of the lowest common ancestor; either may be the root. DAG: the smallest height."""
    height = heights(parents)
    return min(
        (height[a] for a in common(parents, prediction, truth)), default=root_height(parents)
    )


def path_cost(parents, prediction, truth):
    """Edges on the way between two classes of a tree, of which either may be the root.

    Each class but the root has one edge, the one above it; the way takes those above exactly one
    of its two ends.
    """
    if not is_tree(parents):
        raise ValueError("the length of a path needs a tree")
    ends = [set() if c == ROOT else set(ancestors_or_self(parents, c)) for c in (prediction, truth)]
    return len(ends[0] ^ ends[1])


COSTS = {"lca-height": lca_height_cost, "path": path_cost}


def expected_costs(row, parents, cost="lca-height"):
    """Return the expected cost of predicting each of the C classes.

    Args:
        row: C probabilities that add up.
        parents: parents of each class.
        cost: "lca-height", "path", or a matrix: cost[c][t] of predicting c where t is true. What
            ends at the root costs as much as the root's own height or path; a matrix has no
            entry for it, and it is left out.
    """
    classes = range(len(parents))
    q = terminal_mass(row, parents)
    if isinstance(cost, str):
        price, at_root = COSTS[cost], 1 - sum(q)
        return [
            sum(q[t] * price(parents, c, t) for t in classes) + at_root * price(parents, c, ROOT)
            for c in classes
        ]
    return [sum(q[t] * cost[c][t] for t in classes) for c in classes]


def cost(rows, parents, cost="lca-height", candidates="all", terminals=None, keep=None):
    """Return the candidate of least expected cost; ties: the first.

    ``candidates`` is "all", "leaves" or "terminal", these being the classes in ``terminals``, or
    the leaves where none are given. The root is no candidate.
    """
    of_name = {
        "all": range(len(parents)),
        "leaves": leaves(parents),
        "terminal": leaves(parents) if terminals is None else terminals,
    }
    chosen = set(of_name[candidates]) & kept_of(parents, keep)
    out = []
    for row in rows:
        expected = expected_costs(row, parents, cost)
        out.append(first_best(chosen, [-value for value in expected]))
    return out


# ---------------------------------------------------------------------- largest expected F


def closed_sets(parents, keep=None):
    """Return every set of classes closed under ancestors, the empty one included.

    By size, then in the order of their sorted members. Up to 2^C of them: for small C only.
    """
    kept = kept_of(parents, keep)
    level = levels(parents)
    found = [frozenset()]
    for c in sorted(kept, key=lambda c: level[c]):  # parents are decided before their children
        found += [chosen | {c} for chosen in found if all(p in chosen for p in parents[c])]
    return sorted(found, key=lambda chosen: (len(chosen), sorted(chosen)))


def f_beta(chosen, truth, beta=1):
    """(1 + beta^2) |S n T| / (|S| + beta^2 |T|) of two sets; 0 where both are empty."""
    size = len(chosen) + beta * beta * len(truth)
    return Fraction(len(set(chosen) & set(truth))) * (1 + beta * beta) / size if size else 0


def expected_fs(sets, row, parents, beta=1):
    """Return the expected F_beta of each of several sets of class numbers.

    The truth is a class t and its ancestors with the mass q(t). What ends at the root has an empty
    truth, and F is 0 there.
    """
    q = terminal_mass(row, parents)
    truths = [ancestors_or_self(parents, t) for t in range(len(parents))]
    return [
        sum(q[t] * f_beta(chosen, truths[t], beta) for t in range(len(parents))) for chosen in sets
    ]


def expected_f(rows, parents, beta=1, keep=None):
    """Return the closed set of largest expected F_beta, over all closed sets.

    Ties: the smaller set, then the one that comes first in class order.
    """
    sets = closed_sets(parents, keep)
    out = []
    for row in rows:
        values = expected_fs(sets, row, parents, beta)
        best = sets[values.index(max(values))]  # the first of the best
        out.append([c in best for c in range(len(parents))])
    return out


# ---------------------------------------------------------------------- stopping early


def stop(rows, parents, threshold=0.5, keep=None):
    """Return the last class of the greedy chain before the first with p <= threshold."""
    out = []
    for row in rows:
        answer = ROOT
        for c in greedy_chain(row, parents, keep):
            if not row[c] > threshold:
                break
            answer = c
        out.append(answer)
    return out


def deepest_above(rows, parents, threshold):
    """Return the deepest class of all with p > threshold; ties: the first; none: the root."""
    level, classes = levels(parents), range(len(parents))
    return [first_best([c for c in classes if row[c] > threshold], level) for row in rows]


def stop_errors(rows, targets, parents, threshold):
    """Count the rows whose answer at this threshold is neither the root nor a label of theirs."""
    answers = stop(rows, parents, threshold)
    return sum(a != ROOT and not y[a] for a, y in zip(answers, targets, strict=True))


def rows_needed(alpha):
    """Return the smallest n with 1 / (n + 1) <= alpha: with fewer rows nothing can be promised."""
    n = 0
    while 1 / (n + 1) > alpha:
        n += 1
    return n


def check_calibration(rows, alpha):
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha} must lie between 0 and 1")
    if len(rows) < rows_needed(alpha):
        raise ValueError(f"{len(rows)} rows; alpha {alpha} needs {rows_needed(alpha)}")


def risk_threshold(rows, targets, parents, alpha):
    """Return the smallest threshold t that conformal risk control allows at the level alpha.

        (errors(t) + 1) / (n + 1) <= alpha

    Every place where an answer can change is tried: 0 and the p of every class on a chain.
    """
    check_calibration(rows, alpha)
    tried = {0}
    for row in rows:
        tried |= {row[c] for c in greedy_chain(row, parents)}
    for t in sorted(tried):
        if (stop_errors(rows, targets, parents, t) + 1) / (len(rows) + 1) <= alpha:
            return t
    raise AssertionError("the largest p stops every row at the root")


def first_wrong(row, target, parents):
    """Return the smallest p met on the chain up to its first wrong class; 0 if none is wrong.

    The row errs at the threshold t exactly where this score is larger than t.
    """
    chain = greedy_chain(row, parents)
    for i in range(len(chain)):
        if not target[chain[i]]:
            return min(row[c] for c in chain[: i + 1])
    return 0


# ---------------------------------------------------------------------- conformal sets


def memberships(row, parents, spread=1, terminals=None):
    """Return v of every class: the largest density of the class and its ancestors.

    The density of a class is p / size^spread, its size the number of terminal classes (the leaves
    unless ``terminals`` says otherwise) at or below it; without any the density is 0.
    """
    if terminals is None:
        terminals = leaves(parents)
    density = []
    for c in range(len(parents)):
        size = len(set(descendants_or_self(parents, c)) & set(terminals))
        density.append(row[c] / size**spread if size else 0)
    return [max(density[a] for a in ancestors_or_self(parents, c)) for c in range(len(parents))]


def conformal(rows, parents, threshold=0, spread=1, terminals=None, keep=None):
    """Return the candidates: all classes at or below one whose density reaches the threshold."""
    kept = kept_of(parents, keep)
    out = []
    for row in rows:
        v = memberships(row, parents, spread, terminals)
        out.append([c in kept and v[c] >= threshold for c in range(len(parents))])
    return out


def conformal_subtrees(rows, parents, threshold=0, spread=1, terminals=None):
    """Return the topmost candidates: those without a candidate among their ancestors."""
    out = []
    for chosen in conformal(rows, parents, threshold, spread, terminals):
        tops = []
        for c in range(len(parents)):
            above = [a for a in ancestors_or_self(parents, c) if a != c]
            tops.append(chosen[c] and not any(chosen[a] for a in above))
        out.append(tops)
    return out


def conformal_score(row, target, parents, spread=1, terminals=None):
    """Return the smallest v among the most specific labels of a row; infinite without labels."""
    v = memberships(row, parents, spread, terminals)
    return min((v[t] for t in terminal_labels(target, parents)), default=math.inf)


def conformal_threshold(rows, targets, parents, alpha, spread=1, terminals=None):
    """Return the k-th smallest score, k the largest integer with k / (n + 1) <= alpha.

    k is floor(alpha (n + 1)), without the rounding of that product: 0.29 * 100 is less than 29.
    """
    check_calibration(rows, alpha)
    scores = sorted(
        conformal_score(row, target, parents, spread, terminals)
        for row, target in zip(rows, targets, strict=True)
    )
    k = max(k for k in range(len(scores) + 1) if k / (len(scores) + 1) <= alpha)
    return scores[k - 1]


# ---------------------------------------------------------------------- some classes only


CLASS_DECODERS = {
    "argmax": argmax,
    "leaf": leaf,
    "top-down": top_down,
    "cost": cost,
    "stop": stop,
}
SET_DECODERS = {"coherent": coherent, "expected-f": expected_f, "conformal": conformal}


def allowed_classes(parents, allowed):
    """Return the classes at or below an allowed one."""
    return {d for c in allowed for d in descendants_or_self(parents, c)}


def kept_classes(parents, allowed):
    """Return the classes at or below an allowed one, and all ancestors of these."""
    inside = allowed_classes(parents, allowed)
    return {a for c in inside for a in ancestors_or_self(parents, c)}


def renormalized(row, parents, allowed):
    """Return p given that the row ends in an allowed subtree; all 0 where no mass is there.

    The mass q outside the allowed subtrees goes, their ancestors' own mass with it; the rest is
    divided by its sum; p is then the sum of q at and below each class, each once.
    """
    inside = allowed_classes(parents, allowed)
    mass = terminal_mass(row, parents)
    total = sum(mass[c] for c in inside)
    if total == 0:
        return [0 for _ in parents]
    q = [mass[c] / total if c in inside else 0 for c in range(len(parents))]
    return [sum(q[d] for d in descendants_or_self(parents, c)) for c in range(len(parents))]


def subset(rows, parents, allowed, decoder="argmax", **options):
    """Return what a decoder, given by name, answers among the kept classes for the renormalized p.

    Levels, heights and sizes stay those of the whole hierarchy. Without mass in the allowed
    subtrees: -1, or the empty set.
    """
    keep = kept_classes(parents, allowed)
    out = []
    for row in rows:
        p = renormalized(row, parents, allowed)
        if decoder in CLASS_DECODERS:
            decided = CLASS_DECODERS[decoder]([p], parents, keep=keep, **options)[0]
            nothing = ROOT
        else:
            decided = SET_DECODERS[decoder]([p], parents, keep=keep, **options)[0]
            nothing = [False for _ in parents]
        out.append(decided if any(p) else nothing)
    return out
