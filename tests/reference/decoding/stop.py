"""Stopping early: the last class of the chain above a threshold."""

from reference.decoding.common import ROOT, first_best
from reference.decoding.top_down import greedy_chain
from reference.taxonomy import levels


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
