"""The critical-difference diagram (Demsar, 2006), as PNG and SVG, by matplotlib.

An axis of mean ranks, the best to the right; every loss by name, a line from its mean rank to it;
thick bars join losses that do not differ significantly; above, the critical difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.lab.pages.saving import need_matplotlib, save_figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXIS = 4.0  # inches between rank 1 and the last
ROW, BAR = 0.24, 0.13  # inches per name, per bar
ABOVE = 0.75  # inches for the ruler and the numbers
SIZE = 9  # of the text, in points
TICKS = 20  # numbers along the axis, at most
MARGIN = 0.12
LINE = "#4a5565"


def critical_difference(summary: Mapping[str, Any], out: Path | str) -> list[Path]:
    """Write the diagram of what ``rank_studies`` found.

    Args:
        summary: what it found.
        out: the folder to write into.
    """
    need_matplotlib()
    return save_figures({"critical-difference": draw(summary)}, out)


def draw(summary: Mapping[str, Any]) -> Figure:
    """Return the diagram: drawn in inches, as wide as its names need."""
    from matplotlib.figure import Figure

    ranks = summary["mean_ranks"]
    count = len(ranks)
    order = sorted(range(count), key=lambda one: ranks[one])
    right, left = order[: (count + 1) // 2], order[: (count + 1) // 2 - 1 : -1]
    labels = [f"{summary['labels'][one]}  {ranks[one]:.2f}" for one in range(count)]
    sides = [max((width(labels[one]) for one in side), default=0.0) for side in (left, right)]
    sides = [side + 0.3 for side in sides]
    bars = len(summary["groups"])
    below = 0.15 + BAR * bars + 0.15 + ROW * len(right)
    # With few datasets the critical difference may exceed the axis; the ruler then ends with it.
    ruler = min(summary["critical_difference"], count - 1) * AXIS / (count - 1)
    size = (sides[0] + AXIS + sides[1] + 2 * MARGIN, ABOVE + below + MARGIN)
    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-sides[0] - MARGIN, AXIS + sides[1] + MARGIN)
    axes.set_ylim(-below - MARGIN, ABOVE)
    axes.axis("off")

    def place(rank: float) -> float:
        return (count - rank) * AXIS / (count - 1)

    scale(axes, count, place(1) - place(2))
    whole = summary["critical_difference"] <= count - 1
    axes.plot([0, ruler], [0.5, 0.5], color="black", linewidth=1.2)
    for end in (0.0, ruler) if whole else (0.0,):
        axes.plot([end, end], [0.45, 0.55], color="black", linewidth=1.2)
    text = f"critical difference {summary['critical_difference']:.2f}"
    text += "" if whole else ", longer than the axis"
    axes.text(0, 0.58, text, fontsize=SIZE - 1, va="bottom")
    rank_of = dict(zip(summary["candidates"], ranks, strict=True))
    for number, group in enumerate(summary["groups"]):
        y = -0.15 - BAR * number
        ends = [place(rank_of[group[0]]) + 0.05, place(rank_of[group[-1]]) - 0.05]
        axes.plot(ends, [y, y], color="black", linewidth=3.2, solid_capstyle="round")
    first = -0.15 - BAR * bars - 0.1
    names(axes, [(place(ranks[one]), labels[one]) for one in right], first, AXIS + 0.2, 1)
    names(axes, [(place(ranks[one]), labels[one]) for one in left], first, -0.2, -1)
    return figure


def scale(axes: Axes, count: int, step: float) -> None:
    """Draw the axis of ranks, the best to the right; of many ranks, only some are numbered."""
    axes.plot([0, AXIS], [0, 0], color="black", linewidth=1)
    apart = next(one for one in (1, 5, 10, 50, count) if count <= TICKS * one)
    for rank in dict.fromkeys([1, *range(apart, count + 1, apart)]):
        x = (count - rank) * step
        axes.plot([x, x], [0, 0.07], color="black", linewidth=1)
        axes.text(x, 0.11, str(rank), ha="center", va="bottom", fontsize=SIZE - 1)


def names(
    axes: Axes, items: Sequence[tuple[float, str]], first: float, edge: float, side: int
) -> None:
    """Write names on one side, the outermost on top, each with a line to its mean rank."""
    for row, (x, label) in enumerate(items):
        y = first - ROW * row
        axes.plot([x, x, edge], [0, y, y], color=LINE, linewidth=0.8)
        axes.text(
            edge + 0.06 * side,
            y,
            label,
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=SIZE,
            parse_math=False,
        )


def width(text: str) -> float:
    """Return how wide a text will be, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    safe = text.replace("$", "S")  # a dollar is not a formula here
    box = TextPath((0, 0), safe, size=SIZE, prop=FontProperties()).get_extents()
    return float(box.width) / 72
