"""Icicle: the data of the interactive picture of the hierarchy, small for thousands of classes.

The picture is a tree; a class of a DAG stands below its first parent. The page draws it from

    names, parent       of each class; -1 for a top class
    support             test rows of each class, and at the end all that have a label
    accuracy            of each entry and class in thousandths, 0 where there is no test row; at the
                        end the share of all decisions that are right
    confused            of each entry, flat triples: true class, decided class, how often
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.reports.judged import Ints, Judged, Truth

MOST_CONFUSED = 4000  # pairs of classes kept of each entry, the most frequent


def tree(hierarchy: Hierarchy, truth: Truth) -> dict[str, Any]:
    """Return what all entries share."""
    return {
        "root": hierarchy.root,
        "sep": hierarchy.sep if hierarchy.named_by == "path" else None,
        "names": list(hierarchy.bare_names),
        "parent": hierarchy.structure.first_parents.tolist(),
        "support": [*truth.support.tolist(), truth.labeled],
    }


def of_entry(truth: Truth, judged: Judged, *, most: int = MOST_CONFUSED) -> dict[str, Any]:
    """Return the accuracy of every class and the most confused pairs of an entry."""
    seeds = len(judged.decided)
    hits = np.append(judged.hits, seeds * truth.labeled - np.count_nonzero(judged.heights))
    found = seeds * np.append(truth.support, truth.labeled)
    share = np.rint(1000 * hits / np.maximum(found, 1)).astype(np.int64)
    pairs, kept, left_out = confused(judged, len(truth.hierarchy), most)
    return {
        "accuracy": share.tolist(),
        "confused": np.column_stack([*pairs, kept]).ravel().tolist(),
        "left_out": left_out,
    }


def confused(judged: Judged, count: int, most: int) -> tuple[tuple[Ints, Ints], Ints, int]:
    """Return pairs (true, decided), how often each occurs, and how many rarer ones are left out."""
    wrong = judged.heights > 0
    keys = judged.nearest[wrong] * count + judged.decided[wrong]
    found, often = np.unique(keys, return_counts=True)
    order = np.lexsort((found, -often))[:most]
    return (found[order] // count, found[order] % count), often[order], len(found) - len(order)
