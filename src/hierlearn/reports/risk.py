"""Risk: what fraction of the answers is wrong, as a model answers less.

    leave rows unanswered   answer the best terminal class where it is the most probable; the rest
                            gets no answer
    stop higher up          the decoder ``Stop``: every row is answered, as deep as p exceeds the
                            threshold

Both are read at the same thing, the fraction of the levels that is answered: a row without an
answer has none of them, a row that is answered at level 2 has two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.metrics import operating_curve
from hierlearn.metrics.measure import measure_rows
from hierlearn.reports.decisions import decide
from hierlearn.reports.markup import table
from hierlearn.reports.plots import line, span, tick_texts, ticks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.reports.outcome import Outcome

THRESHOLDS = np.concatenate(  # a sure model needs them close to 1
    [np.linspace(0, 0.99, 100), 1 - np.logspace(-2, -6, 41)[1:], [1.0]]
).tolist()
LIMITS = (0.01, 0.02, 0.05, 0.10, 0.20)  # risks of the table
WIDE, TALL, LEFT, RIGHT, TOP, FOOT = 520, 290, 40, 18, 12, 42


@dataclass(frozen=True)
class RiskCurve:
    """The risk of a way to answer less, from answering most to least.

    Attributes:
        thresholds: (T,) what p must exceed, or at least be for ``leave``.
        answered: (T,) the fraction of the rows that is answered.
        depth: (T,) the fraction of the levels that is answered.
        risk: (T,) the fraction of the answers that is wrong; NaN where there is none.
    """

    thresholds: NDArray[np.float64]
    answered: NDArray[np.float64]
    depth: NDArray[np.float64]
    risk: NDArray[np.float64]

    def within(self, limit: float) -> int | None:
        """Return the place with the most answered levels at no more than some risk, or None."""
        fine = np.flatnonzero(self.risk <= limit)
        return int(fine[np.argmax(self.depth[fine])]) if len(fine) else None


def leave_curve(outcome: Outcome) -> RiskCurve:
    """Return the risk of the best terminal class, the least probable rows left unanswered."""
    space = outcome.space
    right = measure_rows(outcome.p, outcome.targets, space, ["terminal-accuracy"])
    right_of = right["terminal-accuracy"]
    counted = ~np.isnan(right_of)
    best = decide(outcome.p, space)
    p, hits = best["probability"][counted].astype(np.float64), right_of[counted]
    levels = space.hierarchy.levels
    deep = levels[best["terminal"][counted]].astype(np.float64)
    order = np.argsort(-p, kind="stable")
    p, hits, deep = p[order], hits[order], deep[order]
    last = np.append(p[1:] != p[:-1], True)  # rows of one probability are answered together
    count = np.arange(1, len(p) + 1)
    total = (outcome.targets.numpy() * levels).max(axis=1)[counted].sum()
    return RiskCurve(
        thresholds=p[last][::-1],
        answered=(count / len(p))[last][::-1],
        depth=(np.cumsum(deep) / total)[last][::-1],
        risk=(1 - np.cumsum(hits) / count)[last][::-1],
    )


def stop_curve(outcome: Outcome) -> RiskCurve:
    """Return the risk of the decoder ``Stop`` over its thresholds."""
    found = operating_curve(outcome.p, outcome.targets, outcome.space, THRESHOLDS)
    answered = found.answered.numpy()
    wrong = 1 - found.accuracy.numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        risk = np.where(answered > 0, wrong / answered, np.nan)
    return RiskCurve(found.thresholds.numpy(), answered, found.specificity.numpy(), risk)


def risk_plot(leave: RiskCurve, stop: RiskCurve) -> str:
    """Return both curves: answered levels against the risk."""
    curves = {"leave": leave, "stop": stop}
    most = max(float(np.nanmax(one.risk)) for one in curves.values())
    high = span([0.0, 100 * most])[1]
    foot, right = TALL - FOOT, WIDE - RIGHT
    wide = 100 * max(1.0, float(leave.depth.max()), float(stop.depth.max()))

    def x(percentage: float) -> float:
        return LEFT + percentage / wide * (right - LEFT)

    def y(percentage: float) -> float:
        return foot - percentage / high * (foot - TOP)

    lines = [
        f'<svg class="risk" viewBox="0 0 {WIDE} {TALL}" role="img" '
        f'aria-label="wrong answers against answered levels">'
    ]
    marks = ticks(0, high, 4)
    for mark, text in zip(marks, tick_texts(marks), strict=True):
        lines.append(line(LEFT, y(mark), right, y(mark), "grid"))
        lines.append(f'<text x="{LEFT - 6}" y="{y(mark) + 4:.1f}" class="value">{text}</text>')
    lines += [
        f'<text x="{x(mark):.1f}" y="{foot + 16}" class="tick">{mark}</text>'
        for mark in (0, 25, 50, 75, 100)
    ]
    lines.append(
        f'<text x="{(LEFT + right) / 2}" y="{foot + 35}" class="tick">levels answered, in %</text>'
    )
    for kind, curve in curves.items():
        points = " ".join(
            f"{x(100 * depth):.1f},{y(100 * risk):.1f}" for depth, risk in thinned(curve)
        )
        lines.append(f'<polyline points="{points}" class="{kind}"/>')
    return "\n".join([*lines, "</svg>"])


def thinned(curve: RiskCurve, most: int = 400) -> list[tuple[float, float]]:
    """Return the points of a curve, at most some, without those where nothing is answered."""
    known = np.flatnonzero(~np.isnan(curve.risk))
    if len(known) > most:
        known = known[np.linspace(0, len(known) - 1, most).round().astype(int)]
    return list(zip(curve.depth[known].tolist(), curve.risk[known].tolist(), strict=True))


def risk_table(leave: RiskCurve, stop: RiskCurve) -> str:
    """Return what can be answered at a few risks."""
    heads = [
        "wrong at most",
        '<span class="key leave">rows answered</span>',
        '<span class="key stop">levels answered</span>',
        '<span class="key stop">threshold</span>',
    ]
    rows = []
    for limit in LIMITS:
        one, other = leave.within(limit), stop.within(limit)
        cells = [
            "" if one is None else f"{100 * leave.answered[one]:.1f} %",
            "" if other is None else f"{100 * stop.depth[other]:.1f} %",
            "" if other is None else f"{stop.thresholds[other]:.4g}",
        ]
        if any(cells):
            shown = (f'<td class="number">{cell or "none"}</td>' for cell in cells)
            rows.append([f"{100 * limit:.0f} %", *shown])
    return table(heads, rows, kind="risks") if rows else ""
