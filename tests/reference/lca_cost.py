"""The expected LCA height under the softmax over the terminals.

    loss = sum_A p(A) d(A, c)                                    A over the terminals
    d(A, c) = height of the LCA of A and c / height of the root,  d(A, A) = 0

c is the row's terminal label; several: the mean over them. No label: 0.
"""

from reference.links import share
from reference.taxonomy import lca_height, leaves, root_height, terminal_labels


def lca_cost(logits, targets, parents, terminals=None):
    """Return N row losses."""
    if terminals is None:
        terminals = leaves(parents)
    out = []
    for row, target in zip(logits, targets, strict=True):
        labels = terminal_labels(target, parents)
        loss = 0.0
        for c in labels:
            for a in terminals:
                if a == c:
                    continue
                p = share([row[a]], [row[t] for t in terminals if t != a])
                d = lca_height(parents, a, c) / root_height(parents)
                loss += p * d / len(labels)
        out.append(loss)
    return out
