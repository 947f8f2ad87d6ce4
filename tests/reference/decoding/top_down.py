"""The most probable child, again and again from the root."""

from reference.decoding.common import ROOT, first_best, is_tree, kept_or_all
from reference.taxonomy import children, levels


def greedy_chain(row, parents, keep=None):
    """Return the classes met from the root to the most probable child, on to a leaf.

    In a DAG the children of a class are all that name it as a parent, and the walk starts at the
    classes without a parent. Ties: the first child. A list, top class first, without padding.
    """
    kept = kept_or_all(parents, keep)
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
