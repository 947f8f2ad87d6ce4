"""The table of a study as Markdown, LaTeX (booktabs, the paper's layout) and CSV.

A figure is bold only where it differs significantly, and for the better, from the first row's: the
best mean alone is not enough.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from hierlearn.metrics.measure import find_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.metrics import Metric

ARROWS = {"up": "↑", "down": "↓", "none": ""}
TEX_ARROWS = {"up": r" $\uparrow$", "down": r" $\downarrow$", "none": ""}


def cell(metric: str, figure: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the mean and the standard deviation as texts."""
    write, deviation = find_metric(metric).format, figure["deviation"]
    return write(figure["mean"]), None if deviation is None else write(deviation)


def signed(metric: Metric, change: float, digits: int | None = None) -> str:
    """Return a change of a metric as text, with its sign; the digits are those of ``format``."""
    return ("-" if change < 0 else "+") + metric.format(abs(change), digits)


def is_bold(summary: Mapping[str, Any], metric: str, number: int) -> bool:
    """Whether a figure is significantly better than the first row's."""
    figure = summary["figures"][metric][number]
    direction = summary["directions"][metric]
    if not figure["significant"] or direction == "none":
        return False
    better: bool = figure["difference"] > 0 if direction == "up" else figure["difference"] < 0
    return better


def as_markdown(summary: Mapping[str, Any]) -> str:
    """Return the table as Markdown."""
    metrics = summary["metrics"]
    heads = [f"{name} {ARROWS[summary['directions'][name]]}".strip() for name in metrics]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(metrics) + 1) + "|"]
    for number, label in enumerate(summary["labels"]):
        cells = []
        for metric in metrics:
            mean, deviation = cell(metric, summary["figures"][metric][number])
            mean = f"**{mean}**" if is_bold(summary, metric, number) else mean
            cells.append(mean if deviation is None else f"{mean} ± {deviation}")
        mark = " *" if summary["still_improving"][summary["candidates"][number]] else ""
        lines.append(f"| {label}{mark} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *notes(summary)]) + "\n"


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Return what a reader of the table must know, in sentences."""
    found = ["One seed: no spread, no test."]
    if summary["seeds"] > 1:
        found = [f"Mean ± standard deviation over {summary['seeds']} seeds."]
        if len(summary["candidates"]) > 1:
            found[0] += (
                f" Bold: better than {summary['labels'][0]} with p < {summary['level']} "
                f"(paired t-test over seeds, Holm)."
            )
    if any(summary["still_improving"].values()):
        found.append("\\* some of its runs still improved at the last epoch.")
    if summary["missing"]:
        found.append(f"Not finished: {', '.join(summary['missing'])}.")
    return found


def as_latex(summary: Mapping[str, Any]) -> str:
    """Return the table as LaTeX with booktabs rules."""
    metrics = summary["metrics"]
    heads = [f"{tex(name)}{TEX_ARROWS[summary['directions'][name]]}" for name in metrics]
    lines = [
        r"\begin{tabular}{l" + "c" * len(metrics) + "}",
        r"\toprule",
        " & ".join(["Loss", *heads]) + r" \\",
        r"\midrule",
    ]
    for number, label in enumerate(summary["labels"]):
        cells = []
        for metric in metrics:
            mean, deviation = cell(metric, summary["figures"][metric][number])
            mean = rf"\textbf{{{mean}}}" if is_bold(summary, metric, number) else mean
            cells.append(mean if deviation is None else rf"{mean} {{\scriptsize$\pm${deviation}}}")
        mark = "$^*$" if summary["still_improving"][summary["candidates"][number]] else ""
        lines.append(" & ".join([tex(label) + mark, *cells]) + r" \\")
    comments = [f"% {note}" for note in notes(summary)]
    return "\n".join([*comments, *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def tex(text: str) -> str:
    """Return text with the special characters of LaTeX escaped."""
    for char in "\\&%$#_{}":
        text = text.replace(char, {"\\": r"\textbackslash "}.get(char, f"\\{char}"))
    return text


def as_csv(summary: Mapping[str, Any]) -> str:
    """Return one line per figure: candidate, metric, mean, deviation, interval, p."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("mean", "deviation", "low", "high", "p", "significant", "seeds")
    writer.writerow(["candidate", "metric", *columns])
    for metric in summary["metrics"]:
        for key, figure in zip(summary["candidates"], summary["figures"][metric], strict=True):
            low, high = figure["interval"] or (None, None)
            known = [key, metric, figure["mean"], figure["deviation"], low, high, figure["p"]]
            writer.writerow([*known, figure["significant"], summary["seeds"]])
    return text.getvalue()
