"""Plots of a study: its figures, levels and curricula as inline SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.lab.summary import ARROWS, is_bold
from hierlearn.metrics.measure import find_metric
from hierlearn.reports.markup import safe
from hierlearn.reports.plots import WIDTH, line, panel, span, tick_texts, ticks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy


ROW, TOP, BOTTOM = 22, 8, 26  # of a dot plot: each row, above the first, below the last
CHARACTER = 6.4  # the width of an average one at 12 pixels
LABEL_SHARE = 0.34  # of a panel, the most that names take
VALUE = 48  # room for the figure at the right


@dataclass(frozen=True)
class Dot:
    """One row of a dot plot.

    Attributes:
        label: its name.
        mean: where the dot is; None where the figure is not defined.
        text: the figure as tables show it.
        deviation: over seeds.
        interval: over test rows.
        values: of the single seeds.
        kind: "first", "better", "worse" or "same", by the test against the first.
    """

    label: str
    mean: float | None
    text: str
    deviation: float | None = None
    interval: tuple[float, float] | None = None
    values: Sequence[float] = field(default_factory=tuple)
    kind: str = "same"

    @property
    def reach(self) -> list[float]:
        """Every number that must be inside the plot."""
        if self.mean is None:
            return []
        spread = self.deviation or 0.0
        return [self.mean - spread, self.mean + spread, *(self.interval or ()), *self.values]


def metric_dots(summary: Mapping[str, Any], metric: str) -> list[Dot]:
    """Return the rows of a metric, in the units of the table."""
    kind_of, found = find_metric(metric), []
    scale = kind_of.scale
    for number, figure in enumerate(summary["figures"][metric]):
        kind = "same"
        if number == 0:
            kind = "first"
        elif figure["significant"] and summary["directions"][metric] != "none":
            kind = "better" if is_bold(summary, metric, number) else "worse"
        interval, mean, spread = figure["interval"], figure["mean"], figure["deviation"]
        found.append(
            Dot(
                summary["labels"][number],
                None if mean is None else scale * mean,
                kind_of.format(mean),
                None if spread is None else scale * spread,
                None if interval is None else (scale * interval[0], scale * interval[1]),
                [scale * value for value in figure["values"] if value is not None],
                kind,
            )
        )
    return found


def metric_panels(summary: Mapping[str, Any]) -> str:
    panels = []
    for metric in summary["metrics"]:
        known, arrow = find_metric(metric), ARROWS[summary["directions"][metric]]
        unit = " in %" if known.unit == "percent" else ""
        title = f"<b>{safe(metric)}{unit} {arrow}</b> {safe(known.description)}"
        panels.append(panel(title, dot_plot(metric_dots(summary, metric), metric)))
    return "\n".join(panels)


def level_panels(
    summary: Mapping[str, Any], seeds: Mapping[str, Sequence[Sequence[float | None]]]
) -> str:
    """Return a dot plot of every level, in percent.

    Args:
        summary: of the study.
        seeds: by candidate, the accuracy of each level, one list per seed.
    """
    panels = []
    for level in range(len(summary["by_level"][summary["candidates"][0]])):
        dots: list[Dot] = []
        for label, key in zip(summary["labels"], summary["candidates"], strict=True):
            mean = summary["by_level"][key][level]
            values = [100 * value for one in seeds[key] if (value := one[level]) is not None]
            place, text = None if mean is None else 100 * mean, find_metric("accuracy").format(mean)
            dots.append(Dot(label, place, text, values=values, kind="same" if dots else "first"))
        plot = dot_plot(dots, f"accuracy at level {level + 1}")
        panels.append(panel(f"<b>level {level + 1}</b> accuracy in %", plot))
    return "\n".join(panels)


def dot_plot(dots: Sequence[Dot], what: str) -> str:
    """Return rows of dots with whiskers over one axis."""
    longest = max(len(dot.label) for dot in dots)
    left = min(CHARACTER * longest, LABEL_SHARE * WIDTH) + 10
    fits = int((left - 10) / CHARACTER)
    low, high = span([value for dot in dots for value in dot.reach])
    right = WIDTH - VALUE
    height = TOP + ROW * len(dots) + BOTTOM
    foot = TOP + ROW * len(dots)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    described = "; ".join(f"{dot.label} {dot.text}" for dot in dots)
    lines = [
        f'<svg class="dots" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{safe(f"{what}: {described}")}">'
    ]
    marks = ticks(low, high, 5)
    for mark, text in zip(marks, tick_texts(marks), strict=True):
        lines.append(line(x(mark), TOP, x(mark), foot, "grid"))
        lines.append(f'<text x="{x(mark):.1f}" y="{foot + 15}" class="tick">{text}</text>')
    if dots[0].mean is not None:
        lines.append(line(x(dots[0].mean), TOP, x(dots[0].mean), foot, "reference"))
    for number, dot in enumerate(dots):
        y = TOP + ROW * (number + 0.5)
        name = dot.label if len(dot.label) <= fits else dot.label[: fits - 1] + "…"
        lines.append(f'<g class="{dot.kind}"><title>{safe(dot.label)}: {dot.text}</title>')
        lines.append(f'<text x="0" y="{y + 4:.1f}" class="name">{safe(name)}</text>')
        lines.append(f'<text x="{WIDTH}" y="{y + 4:.1f}" class="value">{dot.text}</text>')
        if dot.mean is not None:
            if dot.interval is not None:
                lines.append(line(x(dot.interval[0]), y, x(dot.interval[1]), y, "rows"))
            if dot.deviation is not None:
                ends = x(dot.mean - dot.deviation), x(dot.mean + dot.deviation)
                lines.append(line(ends[0], y, ends[1], y, "spread"))
            lines += [
                f'<circle cx="{x(v):.1f}" cy="{y}" r="1.8" class="seed"/>' for v in dot.values
            ]
            lines.append(f'<circle cx="{x(dot.mean):.1f}" cy="{y}" r="4.5" class="mean"/>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"])


def curriculum_plot(log: Sequence[Mapping[str, Any]]) -> str:
    """Return the fraction of each level's classes that were selected in every epoch."""
    epochs: list[int] = [record["epoch"] for record in log]
    levels = len(log[0]["selected_by_level"])
    left, right, top, foot = 34, WIDTH - 54, 8, 168
    first, last = epochs[0], max(epochs[-1], epochs[0] + 1)

    def x(epoch: float) -> float:
        return left + (epoch - first) / (last - first) * (right - left)

    def y(share: float) -> float:
        return foot - share * (foot - top)

    ends = [log[-1]["selected_by_level"][level] for level in range(levels)]
    levels_text = ", ".join(f"level {n} {100 * end:.0f} %" for n, end in enumerate(ends, start=1))
    lines = [
        f'<svg class="curriculum" viewBox="0 0 {WIDTH} {foot + 34}" role="img" '
        f'aria-label="selected in the last epoch: {levels_text}">'
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        lines.append(line(left, y(share), right, y(share), "grid"))
        lines.append(
            f'<text x="{left - 6}" y="{y(share) + 4:.1f}" class="value">{100 * share:.0f}</text>'
        )
    lines += [
        f'<text x="{x(mark):.1f}" y="{foot + 15}" class="tick">{mark:.0f}</text>'
        for mark in ticks(first, last, 5)
        if mark == int(mark)
    ]
    lines.append(f'<text x="{(left + right) / 2}" y="{foot + 30}" class="tick">epoch</text>')
    places = spread_out([y(end) for end in ends], 12, top, foot)
    every = math.ceil(levels / 13)  # no room for more names
    for level in range(levels):
        points = " ".join(
            f"{x(epoch):.1f},{y(record['selected_by_level'][level]):.1f}"
            for epoch, record in zip(epochs, log, strict=True)
        )
        part = round(100 * level / max(levels - 1, 1))
        color = f"color-mix(in oklab, var(--deep) {part}%, var(--top))"
        lines.append(
            f'<polyline points="{points}" style="stroke:{color}">'
            f"<title>level {level + 1}</title></polyline>"
        )
        if level % every == 0:
            lines.append(
                f'<text x="{right + 6}" y="{places[level] + 4:.1f}" class="name" '
                f'style="fill:{color}">level {level + 1}</text>'
            )
    return "\n".join([*lines, "</svg>"])


def spread_out(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places apart until neighbors are ``gap`` apart, as little as possible downward."""
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    order = sorted(range(len(places)), key=lambda one: places[one])
    found = list(places)
    for before, one in pairwise(order):
        found[one] = max(found[one], found[before] + gap)
    limit = high
    for one in reversed(order):
        found[one] = min(found[one], limit)
        limit = found[one] - gap
    return found


# ---------------------------------------- selected classes


LEAST = 8  # classes that are named


def least_selected(shares: NDArray[np.uint8], hierarchy: Hierarchy) -> str:
    """Return a table of the classes that were selected least; a sentence where all always were."""
    means = shares.mean(axis=0)
    missed = np.flatnonzero(means < 100)
    if not len(missed):
        return "<p>Every class was selected in every batch.</p>"
    chosen = missed[np.argsort(means[missed], kind="stable")[:LEAST]]
    rows = []
    for number in chosen.tolist():
        seen = np.flatnonzero(shares[:, number])
        span = between(int(seen[0]) + 1, int(seen[-1]) + 1) if len(seen) else "never"
        title = hierarchy.title(number)
        shown = "" if title is None else f' <span class="title">{safe(title)}</span>'
        rows.append(
            f'<tr><th scope="row">{safe(hierarchy.names[number])}{shown}</th>'
            f"<td>{int(hierarchy.levels[number])}</td><td>{means[number]:.1f}</td>"
            f"<td>{span}</td></tr>"
        )
    return (
        f"<div><p>{len(missed):,} of {shares.shape[1]:,} classes were left out at times; "
        f'the {len(chosen)} least selected:</p><div class="wide"><table class="least"><thead>'
        f"<tr><th>class</th><th>level</th><th>% of batches</th><th>epochs</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div></div>"
    )


def between(low: int, high: int) -> str:
    return f"{low} to {high}" if low < high else str(low)
