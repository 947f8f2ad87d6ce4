"""Cross entropy on the softmax over the terminal classes.

    loss = - log (mass compatible with the row's terminal label c)

The mass is c's own softmax probability if c is a terminal, else the sum over the terminals below
it. Several terminal labels: the mean over them. No label: 0.
"""

from reference.links import log_share
from reference.taxonomy import descendants_or_self, leaves, terminal_labels


def leaf_ce(logits, targets, parents, terminals=None):
    """Return N row losses."""
    if terminals is None:
        terminals = leaves(parents)
    out = []
    for row, target in zip(logits, targets, strict=True):
        labels = terminal_labels(target, parents)
        loss = 0.0
        for c in labels:
            compatible = [c] if c in terminals else descendants_or_self(parents, c)
            inside = [row[t] for t in terminals if t in compatible]
            outside = [row[t] for t in terminals if t not in compatible]
            loss -= log_share(inside, outside) / len(labels)
        out.append(loss)
    return out
