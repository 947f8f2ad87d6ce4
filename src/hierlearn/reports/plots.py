"""Plots: the plots of the page as inline SVG, made here; their colors are in the page's style.

A panel is as wide as a phone and is placed beside others where there is room, so that text has one
size everywhere. The bars of the mistakes are laid out in percent and fill whatever width there is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hierlearn.errors import plural
from hierlearn.reports.markup import safe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Return a line."""
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
