"""How often a class is more probable than its parent."""

from reference.metrics.common import reduce


def coherence_violations(probabilities, parents, tolerance=1e-6, reduction="mean"):
    """Number of (parent, child) edges with p(child) > p(parent) + tolerance.

    "none": one per row; "mean": mean over rows; "sum": over all rows.
    """
    out = []
    for row in probabilities:
        edges = [(p, c) for c in range(len(parents)) for p in parents[c]]
        out.append(float(sum(1 for p, c in edges if row[c] > row[p] + tolerance)))
    return sum(out) if reduction == "sum" else reduce(out, reduction)
