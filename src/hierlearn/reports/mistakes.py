"""Mistakes: the worst decisions of a candidate, for the page to show with both paths side by side.

Worst is the largest height, then the decision that most seeds agree on, then the most probable.
A row is shown once, by the worst decision on it; of each height some are kept, so that mild
mistakes can be looked at too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hierlearn.studies.decisions import Decisions

MOST = 24  # rows kept per height
LONGEST = 400  # characters of a row's text


def worst(decisions: Decisions, *, most: int = MOST) -> list[list[int]]:
    """Return [row, true class, decided class, height, agreeing seeds, p in percent] of each."""
    seeds, rows = np.nonzero(decisions.heights > 0)
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
    """Return the texts of some rows by row number, shortened."""
    if texts is None:
        return {}
    return {str(row): shorten(texts[row]) for row in sorted(set(rows))}


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most ``longest`` characters."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
