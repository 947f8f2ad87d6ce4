"""Figures for papers as PNG and SVG files, by matplotlib: of ranks and of noise studies.

critical-difference (Demsar, 2006): an axis of mean ranks, the best to the right; every loss by
name, a line from its mean rank to it; thick bars join losses that do not differ significantly;
above, the critical difference.

curves of a noise study: one row of panels per kind of noise. A line is the mean over draws,
its bars the 95 % interval of that mean; both are over seeds where there is a single draw.
Candidates stand a little beside one another, so that no bar hides another; they differ by color
(Okabe and Ito, 2008, safe for color blindness), marker, and from the ninth on by dashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.files.writing import atomic_write
from hierlearn.lab.noise_figures import MAIN, TITLES, metric_of
from hierlearn.lab.summary import ARROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


AXIS = 4.0  # inches between rank 1 and the last
RANK_ROW, BAR = 0.24, 0.13  # inches per name, per bar
ABOVE = 0.75  # inches for the ruler and the numbers
TEXT_SIZE = 9  # of the text, in points
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
    return save_figures({"critical-difference": rank_diagram(summary)}, out)


def rank_diagram(summary: Mapping[str, Any]) -> Figure:
    """Return the diagram: drawn in inches, as wide as its names need."""
    from matplotlib.figure import Figure

    ranks = summary["mean_ranks"]
    count = len(ranks)
    order = sorted(range(count), key=lambda one: ranks[one])
    right, left = order[: (count + 1) // 2], order[: (count + 1) // 2 - 1 : -1]
    labels = [f"{summary['labels'][one]}  {ranks[one]:.2f}" for one in range(count)]
    sides = [max((text_width(labels[one]) for one in side), default=0.0) for side in (left, right)]
    sides = [side + 0.3 for side in sides]
    bars = len(summary["groups"])
    below = 0.15 + BAR * bars + 0.15 + RANK_ROW * len(right)
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

    # The axis of ranks, the best to the right; of many ranks, only some are numbered.
    axes.plot([0, AXIS], [0, 0], color="black", linewidth=1)
    apart = next(one for one in (1, 5, 10, 50, count) if count <= TICKS * one)
    for rank in dict.fromkeys([1, *range(apart, count + 1, apart)]):
        x = place(rank)
        axes.plot([x, x], [0, 0.07], color="black", linewidth=1)
        axes.text(x, 0.11, str(rank), ha="center", va="bottom", fontsize=TEXT_SIZE - 1)
    whole = summary["critical_difference"] <= count - 1
    axes.plot([0, ruler], [0.5, 0.5], color="black", linewidth=1.2)
    for end in (0.0, ruler) if whole else (0.0,):
        axes.plot([end, end], [0.45, 0.55], color="black", linewidth=1.2)
    text = f"critical difference {summary['critical_difference']:.2f}"
    text += "" if whole else ", longer than the axis"
    axes.text(0, 0.58, text, fontsize=TEXT_SIZE - 1, va="bottom")
    rank_of = dict(zip(summary["candidates"], ranks, strict=True))
    for number, group in enumerate(summary["groups"]):
        y = -0.15 - BAR * number
        ends = [place(rank_of[group[0]]) + 0.05, place(rank_of[group[-1]]) - 0.05]
        axes.plot(ends, [y, y], color="black", linewidth=3.2, solid_capstyle="round")
    first = -0.15 - BAR * bars - 0.1
    rank_names(axes, [(place(ranks[one]), labels[one]) for one in right], first, AXIS + 0.2, 1)
    rank_names(axes, [(place(ranks[one]), labels[one]) for one in left], first, -0.2, -1)
    return figure


def rank_names(
    axes: Axes, items: Sequence[tuple[float, str]], first: float, edge: float, side: int
) -> None:
    """Write names on one side, the outermost on top, each with a line to its mean rank."""
    for row, (x, label) in enumerate(items):
        y = first - RANK_ROW * row
        axes.plot([x, x, edge], [0, y, y], color=LINE, linewidth=0.8)
        axes.text(
            edge + 0.06 * side,
            y,
            label,
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=TEXT_SIZE,
            parse_math=False,
        )


def text_width(text: str) -> float:
    """Return how wide a text will be, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    safe = text.replace("$", "S")  # a dollar is not a formula here
    box = TextPath((0, 0), safe, size=TEXT_SIZE, prop=FontProperties()).get_extents()
    return float(box.width) / 72


# ---------------------------------------- noise curves


PALETTE = (
    *("#000000", "#e69f00", "#56b4e9", "#009e73"),
    *("#0072b2", "#d55e00", "#cc79a7", "#8a7d00"),  # the last is darker than theirs, on white
)
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":")
AXIS_NAMES = {
    "terminal-accuracy": "terminal accuracy in %",
    "lca-height": "LCA height of the decision",
    "au-prc": "AU(PRC)",
}
BESIDE = 0.01  # from one candidate to the next, of the range of rates
SHARE = 0.5  # of the smallest gap between rates, for all candidates at most
WIDTH, HEIGHT = 3.4, 2.5  # of a panel, in inches


def noise_curves(summary: Mapping[str, Any], out: Path | str) -> list[Path]:
    """Write the curves of a noise study.

    Args:
        summary: what ``noise_study`` found.
        out: the folder to write into.

    Returns:
        The files.
    """
    need_matplotlib()
    main = [name for name in MAIN if name in summary["metrics"]]
    return save_figures({"curves": noise_figure(summary, main)}, out)


def noise_figure(summary: Mapping[str, Any], metrics: Sequence[str]) -> Figure:
    """Return a figure: one row per kind of noise, one column per metric, one legend for all."""
    from matplotlib.figure import Figure

    kinds = summary["kinds"]
    # The legend stands beside the panels, so that it hides no line.
    size = (WIDTH * len(metrics) + 1.6, HEIGHT * max(len(kinds), len(summary["labels"]) / 11))
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(len(kinds), len(metrics), squeeze=False, sharex=True, sharey="col")
    for row, kind in zip(places, kinds, strict=True):
        for axes, metric in zip(row, metrics, strict=True):
            if metric in summary["figures"][kind]:
                noise_panel(axes, summary, kind, metric)
            else:
                axes.set_axis_off()
    handles, labels = places[0][0].get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside right upper", fontsize=8, frameon=False, handlelength=3
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def noise_panel(axes: Axes, summary: Mapping[str, Any], kind: str, metric: str) -> None:
    """Draw one line per candidate with its bars."""
    scale = metric_of(metric).scale
    rates, labels = 100 * np.array(summary["rates"]), summary["labels"]
    step = min(BESIDE * (rates[-1] - rates[0]), SHARE * np.diff(rates).min() / len(labels))
    for number, label in enumerate(labels):
        column = [figures[number] for figures in summary["figures"][kind][metric]]
        means = scale * np.array([figure["mean"] for figure in column], dtype=float)  # None is NaN
        ends = [figure["interval"] or [figure["mean"]] * 2 for figure in column]
        color = PALETTE[number % len(PALETTE)]
        axes.errorbar(
            rates + step * (number - (len(labels) - 1) / 2),
            means,
            yerr=np.abs(scale * np.array(ends, dtype=float).T - means),
            color=color,
            label=label,
            linewidth=1.3,
            elinewidth=0.9,
            linestyle=DASHES[number // len(PALETTE) % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            markerfacecolor="white" if number >= len(PALETTE) else color,
        )
    arrow = ARROWS[summary["directions"][metric]]
    axes.set_title(f"{TITLES[kind]}: {AXIS_NAMES[metric]} {arrow}", fontsize=8, loc="left")
    axes.set_xticks(rates)
    axes.set_xlabel("noise in %", fontsize=8)
    axes.grid(axis="y", color="#e3e7ec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, labelbottom=True)
    axes.spines[["top", "right"]].set_visible(False)


# ---------------------------------------- files


DPI = 200


def need_matplotlib() -> None:
    """Raise where matplotlib is missing, and say what to install."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise HierlearnError(
            "matplotlib is not installed; install it with: pip install matplotlib"
        ) from None
    del mpl


def save_figures(figures: Mapping[str, Figure], out: Path | str) -> list[Path]:
    """Write every figure as ``<name>.png`` and ``<name>.svg`` into a folder."""
    import matplotlib as mpl

    written = []
    # No date, and ids that do not depend on chance.
    with mpl.rc_context({"svg.hashsalt": "hierlearn"}):
        for name, figure in figures.items():
            for ending in ("png", "svg"):
                path = Path(out) / f"{name}.{ending}"
                with atomic_write(path, "wb") as file:
                    unstamped = {"Date": None} if ending == "svg" else {"Software": None}
                    figure.savefig(file, format=ending, dpi=DPI, metadata=unstamped)
                written.append(path)
    return written
