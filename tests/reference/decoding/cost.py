"""The class of least expected cost."""

from reference.decoding.common import ROOT, first_best, is_tree, kept_or_all
from reference.decoding.mass import terminal_mass
from reference.taxonomy import ancestors_or_self, heights, leaves, root_height


def common_ancestors(parents, a, b):
    """Return the classes that are an ancestor of both or one of the two; -1 has no such class."""
    if ROOT in (a, b):
        return set()
    return set(ancestors_or_self(parents, a)) & set(ancestors_or_self(parents, b))


def lca_height_cost(parents, prediction, truth):
    """Height of the lowest common ancestor; either may be the root. DAG: the smallest height."""
    height = heights(parents)
    return min(
        (height[a] for a in common_ancestors(parents, prediction, truth)),
        default=root_height(parents),
    )


def path_cost(parents, prediction, truth):
    """Edges on the path between two classes of a tree, of which either may be the root.

    Each class but the root has one edge, the one above it; the path takes those above exactly one
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
    chosen = set(of_name[candidates]) & kept_or_all(parents, keep)
    out = []
    for row in rows:
        expected = expected_costs(row, parents, cost)
        out.append(first_best(chosen, [-value for value in expected]))
    return out
