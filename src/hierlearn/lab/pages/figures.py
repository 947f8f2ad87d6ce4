"""Figures: the main plots of a study as files for papers, PNG and SVG, by matplotlib.

metrics     one panel per metric: one dot per candidate, with its intervals
severity    stacked bars: exact, wrong at 1, 2, ... levels
levels      one panel per level, with the same dots
curriculum  one panel per loss that selects: the selected fraction of each level over the epochs
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hierlearn.lab.pages.page import by_level, curricula, finished, read
from hierlearn.lab.pages.plots import Dot, in_percent, level_dots, metric_dots
from hierlearn.lab.pages.saving import need_matplotlib, save_figures
from hierlearn.lab.tables import ARROWS
from hierlearn.reports.plots import wrong_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"first": "#1b2330", "better": "#17754a", "worse": "#b23a1e", "same": "#6b7685"}
RIGHT, NEAR, FAR = "#8fc7d6", "#fbe0a0", "#de6a37"
PANEL = 3.4  # inches


def report_pngs(
    study_folder: Path | str, out: Path | str, *, summary: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write the main plots of a study as PNG and SVG.

    Args:
        study_folder: the folder of a study, complete or not.
        out: the folder to write into.
        summary: what ``summarize`` returned for the study, where it is known already.

    Returns:
        The files.
    """
    need_matplotlib()
    study, summary = read(study_folder, summary)
    candidates = finished(study, summary)
    figures = {"metrics": metrics(summary), "severity": severity(summary)}
    figures["levels"] = levels(summary, by_level(study, candidates))
    found = curricula(study, candidates)
    if found:
        figures["curriculum"] = curriculum(found)
    return save_figures(figures, out)


def panels(count: int, rows: float) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels side by side, three per row, each with room for some rows."""
    from matplotlib.figure import Figure

    across = min(count, 3)
    down = math.ceil(count / across)
    size = (PANEL * across, (0.24 * rows + 0.8) * down)
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for unused in places[count:]:
        unused.remove()
    return figure, places[:count]


def metrics(summary: Mapping[str, Any]) -> Figure:
    """Return the dot plots of all metrics."""
    figure, places = panels(len(summary["metrics"]), len(summary["candidates"]))
    for axes, metric in zip(places, summary["metrics"], strict=True):
        arrow = ARROWS[summary["directions"][metric]]
        title = f"{metric}{in_percent(metric)} {arrow}".strip()
        dots(axes, metric_dots(summary, metric), title)
    return figure


def levels(
    summary: Mapping[str, Any], seeds: Mapping[str, Sequence[Sequence[float | None]]]
) -> Figure:
    """Return the dot plots of all levels."""
    depth = len(summary["by_level"][summary["candidates"][0]])
    figure, places = panels(depth, len(summary["candidates"]))
    for level, axes in enumerate(places):
        dots(axes, level_dots(summary, seeds, level), f"level {level + 1}: accuracy in %")
    return figure


def dots(axes: Axes, rows: Sequence[Dot], title: str) -> None:
    """Draw rows of dots with whiskers."""
    for place, dot in enumerate(rows):
        if dot.mean is None:
            continue
        color = COLORS[dot.kind]
        if dot.interval is not None:
            axes.plot(dot.interval, [place, place], color=color, linewidth=1)
        if dot.deviation is not None:
            ends = [dot.mean - dot.deviation, dot.mean + dot.deviation]
            axes.plot(ends, [place, place], color=color, linewidth=4, alpha=0.35)
        axes.plot(dot.values, [place] * len(dot.values), ".", color=color, markersize=3, alpha=0.6)
        axes.plot([dot.mean], [place], "o", color=color, markersize=6)
    if rows[0].mean is not None:
        axes.axvline(rows[0].mean, color="#9aa5b4", linewidth=0.8, linestyle="--", zorder=0)
    name_rows(axes, [dot.label for dot in rows])
    axes.set_title(title, fontsize=9, loc="left", parse_math=False)


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Write the names at the left, first on top; they are not formulas, whatever they hold."""
    axes.set_yticks(range(len(labels)), labels, fontsize=8, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def severity(summary: Mapping[str, Any]) -> Figure:
    """Return the stacked bars of the mistakes."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    count = len(summary["candidates"])
    figure = Figure(figsize=(2 * PANEL, 0.3 * count + 1.1), layout="constrained")
    axes = figure.subplots()
    shares = [summary["severity"][key] for key in summary["candidates"]]
    highest = len(shares[0]) - 1
    ramp = LinearSegmentedColormap.from_list("mistakes", [NEAR, FAR])
    begin = [0.0] * count
    for height in range(highest + 1):
        part = [100 * one[height] for one in shares]
        color = RIGHT if height == 0 else ramp((height - 1) / max(highest - 1, 1))
        text = wrong_text(height)
        axes.barh(range(count), part, left=begin, color=color, label=text, edgecolor="white")
        begin = [before + more for before, more in zip(begin, part, strict=True)]
    name_rows(axes, summary["labels"])
    axes.set_xlim(0, 100)
    axes.set_xlabel("test rows in %", fontsize=8)
    figure.legend(loc="outside upper left", ncols=min(highest + 1, 4), fontsize=8, frameon=False)
    return figure


def curriculum(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Return the selected fraction of each level, one panel per candidate."""
    from matplotlib import colormaps

    figure, places = panels(len(found), 6)
    for axes, (label, log) in zip(places, found.items(), strict=True):
        epochs = [record["epoch"] for record in log]
        depth = len(log[0]["selected_by_level"])
        for level in range(depth):
            percentages = [100 * record["selected_by_level"][level] for record in log]
            color = colormaps["viridis"](0.85 * level / max(depth - 1, 1))
            axes.plot(epochs, percentages, color=color, label=f"level {level + 1}", marker=".")
        axes.set_ylim(0, 103)
        axes.set_xlabel("epoch", fontsize=8)
        axes.set_ylabel("selected classes in %", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(label, fontsize=9, loc="left", parse_math=False)
        axes.legend(fontsize=7, frameon=False)
    return figure
