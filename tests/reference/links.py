"""Links: a row of logits x -> node probabilities p(c) and their complements q(c) = 1 - p(c).

    sigmoid      p(c) = 1 / (1 + exp(-x_c))
    softmax      p(c) = sum of softmax(x)_t over the terminals t at or below c, each once
                 q(c) = the same sum over all other terminals
    scaled-softmax  softmax of x / 0.05
    conditional  p(c) = product of sigmoid(x_a) over c and its ancestors a, each once
                 q(c) = sum_i (prod_{j<i} s_j) (1 - s_i): the first step that fails is step i
    max          p(c) = sigmoid(max of x_b over c and its descendants b)
    min          p(c) = sigmoid(min of x_a over c and its ancestors a)
    siblings     p(c) = product over c and its ancestors a of softmax(x over a's siblings)_a
                 q(c) = the first step that fails, as for conditional; trees
    random-walk  p(c) = max over c and its descendants of the mean of sigmoid(x) where a walk stops
                 that before each of 12 steps to a parent or child stops with probability 0.8,
                 q(c) = the minimum of the mean of 1 - sigmoid(x)
    awx          p(c) = min(1 - eps, (sum of sigmoid(x_t)^l over the terminals t below)^(1/l)),
                 q(c) = 1 - p(c); l = 5, eps = 1e-6, and a class counts as below itself

p and q are each computed by their own formula, never one as 1 minus the other, and so are their
logarithms (but for awx, which is cut off), so that both stay accurate where the other is nearly 1
and logits of +-1e4 work.
"""

import math

from reference.taxonomy import ancestors_or_self, descendants_or_self, leaves

# scalars -----------------------------------------------------------------------------------------


def sigmoid(x):
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x))


def log_sigmoid(x):
    if x >= 0:
        return -math.log1p(math.exp(-x))
    return x - math.log1p(math.exp(x))


def logsumexp(xs):
    """Log of the sum of exp(x), shifted by the maximum; -inf for an empty sum."""
    top = max(xs, default=-math.inf)
    if top == -math.inf:
        return -math.inf
    return top + math.log(math.fsum(math.exp(x - top) for x in xs))


def share(inside, outside):
    """Sum of exp over ``inside`` as a share of the sum over both lists."""
    top = max(inside + outside)
    a = math.fsum(math.exp(x - top) for x in inside)
    b = math.fsum(math.exp(x - top) for x in outside)
    return a / (a + b)


def log_share(inside, outside):
    """Log of ``share``: with A and B the two sums, log A/(A+B) = -log(1 + exp(log B - log A))."""
    return log_sigmoid(logsumexp(inside) - logsumexp(outside))


# one row -> (p, q), lists over the classes -------------------------------------------------------


def sigmoid_row(row, parents, terminals=None):
    return [sigmoid(x) for x in row], [sigmoid(-x) for x in row]


def sigmoid_log_row(row, parents, terminals=None):
    return [log_sigmoid(x) for x in row], [log_sigmoid(-x) for x in row]


def inside_outside(row, parents, c, terminals=None):
    """Return the logits of the terminals at or below c, and those of all other terminals."""
    if terminals is None:
        terminals = leaves(parents)
    below = descendants_or_self(parents, c)
    return [row[t] for t in terminals if t in below], [row[t] for t in terminals if t not in below]


def softmax_row(row, parents, terminals=None):
    p, q = [], []
    for c in range(len(parents)):
        inside, outside = inside_outside(row, parents, c, terminals)
        p.append(share(inside, outside))
        q.append(share(outside, inside))
    return p, q


def softmax_log_row(row, parents, terminals=None):
    p, q = [], []
    for c in range(len(parents)):
        inside, outside = inside_outside(row, parents, c, terminals)
        p.append(log_share(inside, outside))
        q.append(log_share(outside, inside))
    return p, q


def conditional_row(row, parents, terminals=None):
    p, q = [], []
    for c in range(len(parents)):
        reached = 1.0  # prod_{j<i} s_j
        failed = 0.0
        for a in ancestors_or_self(parents, c):
            failed += reached * sigmoid(-row[a])
            reached *= sigmoid(row[a])
        p.append(reached)
        q.append(failed)
    return p, q


def conditional_log_row(row, parents, terminals=None):
    p, q = [], []
    for c in range(len(parents)):
        reached = 0.0
        failed = []
        for a in ancestors_or_self(parents, c):
            failed.append(reached + log_sigmoid(-row[a]))
            reached += log_sigmoid(row[a])
        p.append(reached)
        q.append(logsumexp(failed))
    return p, q


def highest_below(row, parents, c):
    return max(row[b] for b in descendants_or_self(parents, c))


def max_row(row, parents, terminals=None):
    best = [highest_below(row, parents, c) for c in range(len(parents))]
    return [sigmoid(x) for x in best], [sigmoid(-x) for x in best]


def max_log_row(row, parents, terminals=None):
    best = [highest_below(row, parents, c) for c in range(len(parents))]
    return [log_sigmoid(x) for x in best], [log_sigmoid(-x) for x in best]


def lowest_above(row, parents, c):
    return min(row[a] for a in ancestors_or_self(parents, c))


def min_row(row, parents, terminals=None):
    least = [lowest_above(row, parents, c) for c in range(len(parents))]
    return [sigmoid(x) for x in least], [sigmoid(-x) for x in least]


def min_log_row(row, parents, terminals=None):
    least = [lowest_above(row, parents, c) for c in range(len(parents))]
    return [log_sigmoid(x) for x in least], [log_sigmoid(-x) for x in least]


def steps(row, parents, c):
    """Return (x_a, the logits of a's siblings) for every a on the path down to c."""
    return [
        ([row[a]], [row[s] for s in range(len(parents)) if s != a and parents[s] == parents[a]])
        for a in ancestors_or_self(parents, c)
    ]


def siblings_row(row, parents, terminals=None):
    p, q = siblings_log_row(row, parents)
    return [math.exp(x) for x in p], [math.exp(x) for x in q]


def siblings_log_row(row, parents, terminals=None):
    p, q = [], []
    for c in range(len(parents)):
        reached = 0.0
        failed = []
        for own, others in steps(row, parents, c):
            if others:
                failed.append(reached + log_share(others, own))
                reached += log_share(own, others)
        p.append(reached)
        q.append(logsumexp(failed))
    return p, q


def awx_log_row(row, parents, terminals=None, order=5, eps=1e-6):
    p, q = [], []
    for c in range(len(parents)):
        inside, _ = inside_outside(row, parents, c, terminals)
        norm = logsumexp([order * log_sigmoid(x) for x in inside]) / order
        p.append(min(norm, math.log1p(-eps)))
        q.append(math.log(-math.expm1(p[-1])))
    return p, q


def awx_row(row, parents, terminals=None, order=5, eps=1e-6):
    p = []
    for c in range(len(parents)):
        inside, _ = inside_outside(row, parents, c, terminals)
        p.append(min(1 - eps, math.fsum(sigmoid(x) ** order for x in inside) ** (1 / order)))
    return p, [1 - one for one in p]


def walk_neighbors(parents):
    """The parents and children of every class; the class itself where there are none."""
    count = range(len(parents))
    found = [{*parents[c], *(d for d in count if c in parents[d])} for c in count]
    return [sorted(one) or [c] for c, one in enumerate(found)]


def random_walk_row(row, parents, terminals=None, restart=0.8, steps=12):
    found = []
    for begin, best in (([sigmoid(x) for x in row], max), ([sigmoid(-x) for x in row], min)):
        now = begin
        for _ in range(steps):
            means = [
                math.fsum(now[n] for n in near) / len(near) for near in walk_neighbors(parents)
            ]
            now = [restart * a + (1 - restart) * b for a, b in zip(begin, means, strict=True)]
        found.append(
            [best(now[b] for b in descendants_or_self(parents, c)) for c in range(len(parents))]
        )
    return tuple(found)


def random_walk_log_row(row, parents, terminals=None, restart=0.8, steps=12):
    found = []
    for begin, best in ((list(map(log_sigmoid, row)), max), ([log_sigmoid(-x) for x in row], min)):
        now = begin
        for _ in range(steps):
            means = [
                logsumexp([now[n] for n in near]) - math.log(len(near))
                for near in walk_neighbors(parents)
            ]
            now = [
                min(logsumexp([math.log(restart) + a, math.log(1 - restart) + b]), 0.0)
                for a, b in zip(begin, means, strict=True)
            ]
        found.append(
            [best(now[b] for b in descendants_or_self(parents, c)) for c in range(len(parents))]
        )
    return tuple(found)


def scaled_softmax_row(row, parents, terminals=None):
    return softmax_row([x / 0.05 for x in row], parents, terminals)


def scaled_softmax_log_row(row, parents, terminals=None):
    return softmax_log_row([x / 0.05 for x in row], parents, terminals)


LINKS = {
    "random-walk": (random_walk_row, random_walk_log_row),
    "scaled-softmax": (scaled_softmax_row, scaled_softmax_log_row),
    "awx": (awx_row, awx_log_row),
    "sigmoid": (sigmoid_row, sigmoid_log_row),
    "softmax": (softmax_row, softmax_log_row),
    "conditional": (conditional_row, conditional_log_row),
    "max": (max_row, max_log_row),
    "min": (min_row, min_log_row),
    "siblings": (siblings_row, siblings_log_row),
}

# all rows ----------------------------------------------------------------------------------------


def probabilities(logits, parents, link, terminals=None):
    """Return (p, 1 - p), both N x C."""
    rows = [LINKS[link][0](row, parents, terminals) for row in logits]
    return [p for p, _ in rows], [q for _, q in rows]


def log_probabilities(logits, parents, link, terminals=None):
    """Return (log p, log(1 - p)), both N x C."""
    rows = [LINKS[link][1](row, parents, terminals) for row in logits]
    return [p for p, _ in rows], [q for _, q in rows]
