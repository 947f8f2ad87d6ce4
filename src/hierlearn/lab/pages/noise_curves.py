"""Noise curves: the metrics of each candidate under more and more noise, by matplotlib.

curves   accuracy and distance of the terminal decision, and AU(PRC) where the taxonomy is clean;
         one row of panels per kind of noise
levels   the accuracy of each level on the path to that decision

A line is the mean over draws, its bars the 95 % interval of that mean; both are over seeds where
there is a single draw. Candidates stand a little beside one another, so that no bar hides another;
they differ by color (Okabe and Ito, 2008, safe for color blindness), marker, and from the ninth on
by dashes. Files are PNG and SVG.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hierlearn.lab.noise_figures import MAIN, TITLES, metric_of
from hierlearn.lab.pages.saving import need_matplotlib, save_figures
from hierlearn.lab.tables import ARROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (
    *("#000000", "#e69f00", "#56b4e9", "#009e73"),
    *("#0072b2", "#d55e00", "#cc79a7", "#8a7d00"),  # the last is darker than theirs, on white
)
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":")
NAMES = {
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
    levels = [name for name in summary["metrics"] if name not in MAIN]
    main = [name for name in MAIN if name in summary["metrics"]]
    figures = {"curves": draw(summary, main), "levels": draw(summary, levels)}
    return save_figures(figures, out)


def draw(summary: Mapping[str, Any], metrics: Sequence[str]) -> Figure:
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
                panel(axes, summary, kind, metric)
            else:
                axes.set_axis_off()
    handles, labels = places[0][0].get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside right upper", fontsize=8, frameon=False, handlelength=3
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def panel(axes: Axes, summary: Mapping[str, Any], kind: str, metric: str) -> None:
    """Draw one line per candidate with its bars."""
    scale = metric_of(metric).scale
    rates = [100 * rate for rate in summary["rates"]]
    gap = min(after - before for before, after in pairwise(rates))
    step = min(BESIDE * (rates[-1] - rates[0]), SHARE * gap / len(summary["labels"]))
    for number, label in enumerate(summary["labels"]):
        column = [figures[number] for figures in summary["figures"][kind][metric]]
        means = [as_number(figure["mean"]) * scale for figure in column]
        ends = [figure["interval"] or (figure["mean"], figure["mean"]) for figure in column]
        color = COLORS[number % len(COLORS)]
        low, high = ([as_number(one) * scale for one in side] for side in zip(*ends, strict=True))
        beside = [rate + step * (number - (len(summary["labels"]) - 1) / 2) for rate in rates]
        axes.vlines(beside, low, high, color=color, linewidth=0.9, alpha=0.8)
        axes.plot(
            beside,
            means,
            color=color,
            label=label,
            linewidth=1.3,
            linestyle=DASHES[number // len(COLORS) % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            markerfacecolor="white" if number >= len(COLORS) else color,
        )
    arrow = ARROWS[summary["directions"][metric]]
    name = NAMES.get(metric, f"{metric.replace('-', ' ')}: accuracy in %")
    axes.set_title(f"{TITLES[kind]}: {name} {arrow}", fontsize=8, loc="left")
    axes.set_xticks(rates)
    axes.set_xlabel("noise in %", fontsize=8)
    axes.grid(axis="y", color="#e3e7ec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, labelbottom=True)
    axes.spines[["top", "right"]].set_visible(False)


def as_number(value: float | None) -> float:
    """Return a figure as a number that matplotlib leaves out where there is none."""
    return float("nan") if value is None else value
