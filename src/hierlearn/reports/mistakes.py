"""Mistakes: the worst decisions of a candidate, for the page to show with both paths side by side.

Worst is the largest height, then the decision that most seeds agree on, then the most probable.
A row is shown once, by the worst decision on it; of each height some are kept, so that mild
mistakes can be looked at too.

Where a memory answers, a mistake comes with the training rows that weigh most in the answer of the
run that is surest of the decision: of one run, because each run has an embedding of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.hierarchy.titles import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.reports.decisions import Decisions

MOST = 24  # rows kept per height
LONGEST = 400  # characters of a row's text
LONGEST_NEIGHBOR = 160  # of a remembered row's text
MOST_LABELS = 4  # shown of a remembered row


def worst(decisions: Decisions, *, most: int = MOST) -> list[list[int]]:
    """Return [row, true class, decided class, height, agreeing seeds, p in percent] of each."""
    seeds, rows = np.nonzero(decisions.mistakes)
    decided = decisions.decided[seeds, rows]
    if not len(rows):
        return []
    order = np.lexsort((decided, rows))
    seeds, rows, decided = seeds[order], rows[order], decided[order]
    new = (np.diff(rows, prepend=-1) != 0) | (np.diff(decided, prepend=-1) != 0)
    starts = np.flatnonzero(new)
    agreed = np.diff(starts, append=len(rows))
    probable = np.add.reduceat(decisions.probability[seeds, rows], starts) / agreed
    rows, seeds, decided = rows[starts], seeds[starts], decided[starts]
    heights = decisions.heights[seeds, rows]
    truth = decisions.nearest[seeds, rows]
    kept: list[list[int]] = []
    seen: set[int] = set()
    room = dict.fromkeys(heights.tolist(), most)
    for one in np.lexsort((decided, rows, -probable, -agreed, -heights)).tolist():
        row, height = int(rows[one]), int(heights[one])
        if row in seen:
            continue
        seen.add(row)
        if not room[height]:
            continue
        room[height] -= 1
        percent = round(100 * float(probable[one]))
        kept.append([row, int(truth[one]), int(decided[one]), height, int(agreed[one]), percent])
    return kept


def texts_of(rows: Iterable[int], texts: Sequence[str] | None) -> dict[str, str]:
    """Return the texts, or the names, of some rows by row number, shortened."""
    if texts is None:
        return {}
    return {str(row): shorten(texts[row], LONGEST) for row in sorted(set(rows))}


def numbered(rows: int, split: str) -> list[str]:
    """Return what to call rows that have neither id nor line: by number, from 1."""
    of = "" if split == "all" else f" of {split}"
    return [f"row {number:,}{of}" for number in range(1, rows + 1)]


def neighbor(
    name: str,
    text: str | None,
    labels: Sequence[int],
    pair: tuple[int, int],
    hierarchy: Hierarchy,
) -> dict[str, Any]:
    """Return what the page shows of a remembered row but its weight, see ``evidence_of``.

    Args:
        name: its id.
        text: what to show of it; None where inputs are not texts.
        labels: its most specific labels.
        pair: the true and the decided class of the row that it misled, or did not.
        hierarchy: the taxonomy.
    """
    truth, decided = pair
    above = {c: {c, *hierarchy.ancestors(c)} for c in labels}
    shown = sorted(labels, key=lambda c: (decided not in above[c], truth not in above[c]))
    return {
        "id": name,
        **({} if text is None else {"text": shorten(text, LONGEST_NEIGHBOR)}),
        "decided": any(decided in one for one in above.values()),
        "true": any(truth in one for one in above.values()),
        "labels": shown[:MOST_LABELS],
        "more": max(0, len(labels) - MOST_LABELS),
    }
