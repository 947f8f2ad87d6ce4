"""Plots: the plots of the page as inline SVG, made here; their colors are in the page's style.

A panel is as wide as a phone and is placed beside others where there is room, so that text has one
size everywhere. The bars of the mistakes are laid out in percent and fill whatever width there is.

Reliability: of the answers a model is 80 % sure of, are 80 % right? The error of the diagram is the
figure ``calibration``,

    sum over bins b of n_b / n * |mean of p in b - fraction right in b|

One more diagram per level is about the class of the answer there, over the rows with a label at the
level.

Risk: what fraction of the answers is wrong, as a model answers less.

    leave rows unanswered   answer the best terminal class where it is the most probable; the rest
                            gets no answer
    stop higher up          the decoder ``Stop``: every row is answered, as deep as p exceeds the
                            threshold

Both are read at the same thing, the fraction of the levels that is answered: a row without an
answer has none of them, a row that is answered at level 2 has two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import plural
from hierlearn.metrics import operating_curve
from hierlearn.metrics.calibration import BINS, bin_of, binned_error
from hierlearn.metrics.measure import measure_rows, shown
from hierlearn.reports.decisions import decide
from hierlearn.reports.markup import safe, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.reports.page import Outcome


WIDTH = 360  # of a panel, in pixels


def panel(title: str, plot: str) -> str:
    """Return a plot below its title, which is markup already."""
    return f'<figure class="panel"><figcaption>{title}</figcaption>{plot}</figure>'


def severity_bars(summary: Mapping[str, Any]) -> str:
    """Return one bar per candidate: the fraction of rows right, wrong at 1, 2, ... levels."""
    step, bar = 42, 20
    height = step * len(summary["candidates"])
    lines = [f'<svg class="bars" width="100%" height="{height}" role="img" aria-label="Mistakes">']
    for number, key in enumerate(summary["candidates"]):
        shares = summary["severity"][key]
        y = step * number
        mistakes = f"{100 * (1 - shares[0]):.1f} % wrong"
        lines.append(
            f'<text x="0" y="{y + 12}" class="name">{safe(summary["labels"][number])}</text>'
        )
        lines.append(f'<text x="100%" y="{y + 12}" class="value">{mistakes}</text>')
        begin = 0.0
        for levels, share in enumerate(shares):
            if share:
                text = f"{wrong_text(levels)}: {100 * share:.1f} %"
                lines.append(
                    f'<rect x="{100 * begin:.3f}%" y="{y + 17}" width="{100 * share:.3f}%" '
                    f'height="{bar}" style="fill:{wrong_color(levels, len(shares) - 1)}">'
                    f"<title>{text}</title></rect>"
                )
            if share >= 0.065:  # narrower ones have no room for text on a phone
                lines.append(
                    f'<text x="{100 * (begin + share / 2):.3f}%" y="{y + 31}" class="inside">'
                    f"{100 * share:.1f}</text>"
                )
            begin += share
    return "\n".join([*lines, "</svg>"])


def severity_legend(depth: int) -> str:
    """Return what the colors of the bars mean."""
    items = [
        f'<span><i style="background:{wrong_color(levels, depth)}"></i>{wrong_text(levels)}</span>'
        for levels in range(depth + 1)
    ]
    return f'<p class="legend">{"".join(items)}</p>'


def wrong_text(levels: int) -> str:
    """Say how wrong an answer is."""
    return "exact" if levels == 0 else f"wrong at {plural(levels, 'level')}"


def wrong_color(levels: int, depth: int) -> str:
    """Return the CSS color of how wrong an answer is: exact has its own, wrong ones darken."""
    if levels == 0:
        return "var(--right)"
    share = 100 if depth == 1 else round(100 * (levels - 1) / (depth - 1))
    return f"color-mix(in oklab, var(--far) {share}%, var(--near))"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def span(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of an axis, a little wider than its values."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return low - room, high + room


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most ``most`` + 1 round numbers between two values."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    begin = math.ceil(low / step - 1e-9)
    return [step * n for n in range(begin, math.floor(high / step + 1e-9) + 1)]


def tick_texts(marks: Sequence[float]) -> list[str]:
    """Return round numbers as texts with as few digits as distinguish them."""
    step = marks[1] - marks[0] if len(marks) > 1 else 1.0
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{mark + 0.0:.{digits}f}" for mark in marks]


SHOWN = 7  # diagrams before the fold
SIZE = 282  # of a diagram's square, in pixels
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
    left, top, below = 48, 10, 36
    foot, right = top + SIZE, left + SIZE

    def x(value: float) -> float:
        return left + value * SIZE

    def y(value: float) -> float:
        return foot - value * SIZE

    lines = [
        f'<svg class="reliability" viewBox="0 0 {WIDTH} {foot + below}" role="img" aria-label='
        f'"calibration error {shown("calibration", one.error)}">'
    ]
    for share in (0, 0.5, 1):
        lines += [
            line(x(0), y(share), right, y(share), "grid"),
            line(x(share), y(0), x(share), top, "grid"),
            f'<text x="{x(share)}" y="{foot + 15}" class="tick">{100 * share:.0f}</text>',
            f'<text x="{left - 6}" y="{y(share) + 4}" class="value">{100 * share:.0f}</text>',
        ]
    lines += [
        line(x(0), y(0), x(1), y(1), "reference"),
        f'<text x="{x(0.5)}" y="{foot + 31}" class="tick">sure, in %</text>',
        f'<text transform="translate({left - 37} {y(0.5)}) rotate(-90)" class="tick">'
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


THRESHOLDS = np.concatenate(  # a sure model needs them close to 1
    [np.linspace(0, 0.99, 100), 1 - np.logspace(-2, -6, 41)[1:], [1.0]]
).tolist()
LIMITS = (0.01, 0.02, 0.05, 0.10, 0.20)  # risks of the table


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
    width, height, left, top = 520, 290, 40, 12
    foot, right = height - 42, width - 18
    wide = 100 * max(1.0, float(leave.depth.max()), float(stop.depth.max()))

    def x(percentage: float) -> float:
        return left + percentage / wide * (right - left)

    def y(percentage: float) -> float:
        return foot - percentage / high * (foot - top)

    lines = [
        f'<svg class="risk" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="wrong answers against answered levels">'
    ]
    marks = ticks(0, high, 4)
    for mark, text in zip(marks, tick_texts(marks), strict=True):
        lines.append(line(left, y(mark), right, y(mark), "grid"))
        lines.append(f'<text x="{left - 6}" y="{y(mark) + 4:.1f}" class="value">{text}</text>')
    lines += [
        f'<text x="{x(mark):.1f}" y="{foot + 16}" class="tick">{mark}</text>'
        for mark in (0, 25, 50, 75, 100)
    ]
    lines.append(
        f'<text x="{(left + right) / 2}" y="{foot + 35}" class="tick">levels answered, in %</text>'
    )
    for kind, curve in curves.items():
        known = np.flatnonzero(~np.isnan(curve.risk))  # where something is answered
        if len(known) > 400:
            known = known[np.linspace(0, len(known) - 1, 400).round().astype(int)]
        ends = zip(curve.depth[known].tolist(), curve.risk[known].tolist(), strict=True)
        points = " ".join(f"{x(100 * depth):.1f},{y(100 * risk):.1f}" for depth, risk in ends)
        lines.append(f'<polyline points="{points}" class="{kind}"/>')
    return "\n".join([*lines, "</svg>"])


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
