"""Icicle: the data of the interactive plot of the hierarchy, small for thousands of classes.

The plot is a tree; a class of a DAG is drawn below its first parent. The page draws it from

    names, parent       of each class; -1 for a top class
    titles              of each class, null where it has none; no list where no class has one
    support             test rows of each class, and at the end all that have a label
    accuracy            of each candidate and class in thousandths, 0 where there is no test row;
                        at the end the fraction of all decisions that are right
    confused            of each candidate, flat triples: true class, decided class, how often
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.reports.decisions import Decisions, Ints, Truth

MOST_CONFUSED = 4000  # pairs of classes kept per candidate, the most frequent


def tree(hierarchy: Hierarchy, truth: Truth) -> dict[str, Any]:
    """Return what all candidates share."""
    return {
        "root": hierarchy.root,
        "sep": hierarchy.sep if hierarchy.named_by == "path" else None,
        "names": list(hierarchy.bare_names),
        **({"titles": list(hierarchy.titles)} if hierarchy.has_titles else {}),
        "parent": hierarchy.structure.first_parents.tolist(),
        "support": [*truth.support.tolist(), truth.labeled],
    }


def of_candidate(
    truth: Truth, decisions: Decisions, *, most: int = MOST_CONFUSED
) -> dict[str, Any]:
    """Return the accuracy of every class and the most confused pairs of a candidate."""
    seeds = len(decisions.decided)
    hits = np.append(decisions.hits, seeds * truth.labeled - np.count_nonzero(decisions.heights))
    found = seeds * np.append(truth.support, truth.labeled)
    accuracy = np.rint(1000 * hits / np.maximum(found, 1)).astype(np.int64)
    pairs, kept, left_out = confused(decisions, len(truth.hierarchy), most)
    return {
        "accuracy": accuracy.tolist(),
        "confused": np.column_stack([*pairs, kept]).ravel().tolist(),
        "left_out": left_out,
    }


def confused(decisions: Decisions, count: int, most: int) -> tuple[tuple[Ints, Ints], Ints, int]:
    """Return pairs (true, decided), how often each occurs, and how many rarer ones are left out."""
    wrong = decisions.mistakes
    keys = decisions.nearest[wrong] * count + decisions.decided[wrong]
    found, often = np.unique(keys, return_counts=True)
    order = np.lexsort((found, -often))[:most]
    return (found[order] // count, found[order] % count), often[order], len(found) - len(order)
