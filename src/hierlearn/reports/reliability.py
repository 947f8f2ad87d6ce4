"""Reliability: of the answers a model is 80 % sure of, are 80 % right? One diagram for all of them.

Its error is the figure ``calibration``,

    sum over bins b of n_b / n * |mean of p in b - fraction right in b|

One more diagram per level is about the class of the answer there, over the rows with a label at the
level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.errors import plural
from hierlearn.metrics.answers import BINS, bin_of, binned_error
from hierlearn.metrics.evaluation import shown
from hierlearn.reports.plots import WIDTH, line, panel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.reports.outcome import Outcome

SHOWN = 7  # diagrams before the fold
SIZE = 282  # of a diagram's square, in pixels
LEFT, TOP, FOOT = 48, 10, 36
LARGEST, SMALLEST = 9.0, 2.2  # radius of a dot


@dataclass(frozen=True)
class Reliability:
    """How sure a model is, and how often it is right.

    Attributes:
        level: from 1; None for the classes that are answered.
        p: (B,) the mean probability in each bin that is not empty.
        right: (B,) the fraction that is right.
        rows: (B,) how many there are.
        error: the expected calibration error.
    """

    level: int | None
    p: NDArray[np.float64]
    right: NDArray[np.float64]
    rows: NDArray[np.int64]
    error: float


def reliabilities(outcome: Outcome, bins: int = BINS) -> list[Reliability]:
    """Return the reliability of the answers, and of every level that has an answered row."""
    found = []
    depth = outcome.space.hierarchy.depth
    for level in (None, *range(1, depth + 1)):
        sure, right = outcome.answers.sure_and_right(level)
        if not len(sure):
            continue
        place = bin_of(sure, bins)
        rows = torch.bincount(place, minlength=bins)
        sums = torch.bincount(place, sure, minlength=bins)
        hits = torch.bincount(place, right.double(), minlength=bins)
        kept = rows > 0
        found.append(
            Reliability(
                level,
                (sums[kept] / rows[kept]).numpy(),
                (hits[kept] / rows[kept]).numpy(),
                rows[kept].numpy(),
                float(binned_error(sure, right, bins)),
            )
        )
    return found


def reliability_panels(found: list[Reliability]) -> str:
    """Return the diagrams; those of deep levels folded."""
    panels = [panel(caption(one), diagram(one)) for one in found]
    shown = f'<div class="panels">{"".join(panels[:SHOWN])}</div>'
    if len(panels) <= SHOWN:
        return shown
    rest = f'<div class="panels">{"".join(panels[SHOWN:])}</div>'
    levels = len(panels) - SHOWN
    return shown + f"<details><summary>{levels} deeper levels</summary>{rest}</details>"


def caption(one: Reliability) -> str:
    """Return what a diagram is headed by."""
    sure = float(np.average(one.p, weights=one.rows))
    right = float(np.average(one.right, weights=one.rows))
    what = "the answers" if one.level is None else f"level {one.level}"
    return (
        f"<b>{what}</b> error {shown('calibration', one.error)}; {100 * sure:.1f} % sure on "
        f"average, {100 * right:.1f} % right; {plural(int(one.rows.sum()), 'class', 'classes')}"
    )


def diagram(one: Reliability) -> str:
    """Return probability against the fraction right, one dot per bin, its area the rows."""
    foot, right = TOP + SIZE, LEFT + SIZE

    def x(value: float) -> float:
        return LEFT + value * SIZE

    def y(value: float) -> float:
        return foot - value * SIZE

    lines = [
        f'<svg class="reliability" viewBox="0 0 {WIDTH} {foot + FOOT}" role="img" aria-label='
        f'"calibration error {shown("calibration", one.error)}">'
    ]
    for share in (0, 0.5, 1):
        lines += [
            line(x(0), y(share), right, y(share), "grid"),
            line(x(share), y(0), x(share), TOP, "grid"),
            f'<text x="{x(share)}" y="{foot + 15}" class="tick">{100 * share:.0f}</text>',
            f'<text x="{LEFT - 6}" y="{y(share) + 4}" class="value">{100 * share:.0f}</text>',
        ]
    lines += [
        line(x(0), y(0), x(1), y(1), "reference"),
        f'<text x="{x(0.5)}" y="{foot + 31}" class="tick">sure, in %</text>',
        f'<text transform="translate({LEFT - 37} {y(0.5)}) rotate(-90)" class="tick">'
        f"right, in %</text>",
    ]
    most = float(one.rows.max())
    for p, hits, rows in zip(one.p, one.right, one.rows, strict=True):
        radius = max(SMALLEST, LARGEST * (float(rows) / most) ** 0.5)
        lines += [
            line(x(p), y(p), x(p), y(hits), "gap"),
            f'<circle cx="{x(p):.1f}" cy="{y(hits):.1f}" r="{radius:.1f}" class="bin"><title>'
            f"{rows:,} of them: {100 * p:.1f} % sure, {100 * hits:.1f} % right</title></circle>",
        ]
    return "\n".join([*lines, "</svg>"])
