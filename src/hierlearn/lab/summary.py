"""The summary of a study: every figure with its spread, interval and test, ready for JSON.

For each metric and candidate: mean and standard deviation over seeds, the bootstrap interval over
test rows where the metric is a mean over rows, and the paired test against the first candidate,
corrected by Holm over the candidates. Best is the candidate with the best mean; it is marked
significant only if its corrected test says so.

The verdict says in plain English whether the hierarchy helps here. The tables are Markdown, LaTeX
(booktabs, the paper's layout) and CSV: a figure is bold only where it differs significantly, and
for the better, from the first row's; the best mean alone is not enough.
"""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.files.reading import guarded
from hierlearn.files.writing import atomic_write
from hierlearn.lab.statistics import LEVEL, bootstrap_interval, holm, paired_test, spread
from hierlearn.lab.study import StudyError
from hierlearn.metrics.measure import find_metric, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.lab.study import Study

    Rows = Mapping[str, NDArray[Any]]  # what a study stores of the test rows of a candidate
    from collections.abc import Mapping

    from hierlearn.metrics import Metric


PARAGRAPH = 3  # the most sentences that still read as one
ARROWS = {"up": "↑", "down": "↓", "none": ""}
TEX_ARROWS = {"up": r" $\uparrow$", "down": r" $\downarrow$", "none": ""}


def summarize(study: Study) -> dict[str, Any]:
    """Return the summary of the candidates of a study that are complete."""
    candidates = study.finished
    keys = [candidate.key for candidate in candidates]
    metrics = [name for name in study.config["metrics"] if not find_metric(name).by_level]
    rows = {candidate.key: study.rows(candidate) for candidate in candidates}
    own = {candidate.key: study.runs_of(candidate) for candidate in candidates}
    figures = {}
    for name in metrics:
        column = against_first([study.values(candidate, name) for candidate in candidates])
        for key, figure in zip(keys, column, strict=True):
            known = find_metric(name).per_row and figure["mean"] is not None
            figure["interval"] = list(bootstrap_interval(rows[key][name])) if known else None
            figure["best"] = False
        mark_best(name, column)
        figures[name] = column
    by_level = {
        key: np.array([run["test"]["accuracy"] for run in own[key]], dtype=np.float64)
        for key in keys
    }
    selected = {one.key: study.selected(one) for one in candidates}
    return {
        "candidates": keys,
        "labels": [candidate.title for candidate in candidates],
        "uses_hierarchy": {key: study.config["uses_hierarchy"][key] for key in keys},
        "missing": [one.key for one in study.candidates if one.key not in keys],
        "metrics": metrics,
        "directions": {name: find_metric(name).direction for name in metrics},
        "level": LEVEL,
        "seeds": len(study.seeds),
        "figures": figures,
        "by_level": {
            key: [plain(value) for value in table.mean(axis=0).tolist()]
            for key, table in by_level.items()
        },
        "severity": {key: severity(rows[key], study.hierarchy.depth) for key in keys},
        # The share of the classes that a curriculum selected, over batches and epochs.
        "selected": {
            key: float(shares.mean()) / 100
            for key, shares in selected.items()
            if shares is not None
        },
        "still_improving": {key: sum(run["still_improving"] for run in own[key]) for key in keys},
    }


def against_first(values: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Return mean and deviation of each candidate, and its test against the first.

    Args:
        values: one value per seed, by candidate.
    """
    figures: list[dict[str, Any]] = []
    for one in values:
        found = spread(one)
        figures.append(
            {
                "mean": plain(found.mean),
                "deviation": None if found.deviation is None else plain(found.deviation),
                "values": [plain(value) for value in one],
                "difference": None,
                "p": None,
                "significant": False,
            }
        )
    tests = holm([paired_test(one, values[0]) for one in values[1:]])
    for figure, p in zip(figures[1:], tests, strict=True):
        if figure["mean"] is not None and figures[0]["mean"] is not None:
            figure["difference"] = figure["mean"] - figures[0]["mean"]
        figure["p"] = plain(p)
        figure["significant"] = not math.isnan(p) and p < LEVEL
    return figures


def mark_best(metric: str, figures: Sequence[dict[str, Any]]) -> None:
    """Mark the best mean of a column where there is a direction."""
    direction = find_metric(metric).direction
    known = [one for one in figures if one["mean"] is not None]
    if direction == "none" or not known:
        return
    sign = 1 if direction == "up" else -1
    max(known, key=lambda one: sign * one["mean"])["best"] = True


def severity(rows: Rows, depth: int) -> list[float]:
    """Return the fraction of rows that are exact, and wrong at 1, 2, ... levels.

    Args:
        rows: of which ``exact`` and ``severity`` are read.
        depth: the largest number of levels.
    """
    counted = ~np.isnan(rows["exact"])
    levels = np.nan_to_num(rows["severity"][counted]).astype(np.int64)
    counts = np.bincount(levels, minlength=depth + 1)
    return [float(value) for value in counts / max(levels.size, 1)]


# ---------------------------------------- verdict


def study_verdict(summary: Mapping[str, Any]) -> str:
    """Return what each other candidate gains or loses against the first: a paragraph, or a list."""
    sentences = each_loss(summary)
    if len(sentences) > PARAGRAPH:
        return overall(summary) + "\n\n" + "\n".join(f"- {one}" for one in sentences)
    return " ".join([overall(summary), *sentences])


def each_loss(summary: Mapping[str, Any]) -> list[str]:
    """Return one sentence per candidate but the first; none where there is one seed only."""
    if summary["seeds"] < 2:
        return []
    return [sentence(summary, number) for number in range(1, len(summary["candidates"]))]


def overall(summary: Mapping[str, Any]) -> str:
    """Return the verdict in one sentence."""
    candidates, labels = summary["candidates"], summary["labels"]
    if len(candidates) < 2:
        return "Only one loss was trained: there is nothing to compare it with."
    effects = {one: effect(summary, one) for one in range(1, len(candidates))}
    gains = [one for one, found in effects.items() if found == "better"]
    mixed = [labels[one] for one, found in effects.items() if found == "mixed"]
    hierarchical = [one for one in gains if summary["uses_hierarchy"][candidates[one]]]
    if summary["seeds"] < 2:
        return "With one seed no difference can be told from seed noise."
    if hierarchical:
        names = ", ".join(labels[one] for one in hierarchical)
        beat = "beat" if len(hierarchical) > 1 else "beats"
        return f"The hierarchy helps here: {names} {beat} {labels[0]} beyond seed noise."
    if gains:
        names = ", ".join(labels[one] for one in gains)
        does = "do" if len(gains) > 1 else "does"
        return f"No hierarchical loss beats {labels[0]} beyond seed noise, but {names} {does}."
    if mixed:
        return (
            f"No loss beats {labels[0]} in every respect; {', '.join(mixed)} "
            f"{'gain' if len(mixed) > 1 else 'gains'} on some figures and "
            f"{'lose' if len(mixed) > 1 else 'loses'} on others."
        )
    return f"No loss beats {labels[0]} here beyond seed noise."


def effect(summary: Mapping[str, Any], number: int) -> str:
    """Return whether a candidate is better, worse, mixed or the same as the first."""
    better = set()
    for metric in summary["metrics"]:
        figure, direction = summary["figures"][metric][number], summary["directions"][metric]
        if direction != "none" and figure["significant"]:
            better.add((figure["difference"] > 0) == (direction == "up"))
    if better == {True, False}:
        return "mixed"
    return "same" if not better else "better" if better == {True} else "worse"


def sentence(summary: Mapping[str, Any], number: int) -> str:
    """Return one sentence on a candidate: what it gains, what it loses, what is noise."""
    gains: list[str] = []
    losses: list[str] = []
    for metric in summary["metrics"]:
        figure, direction = summary["figures"][metric][number], summary["directions"][metric]
        if direction == "none" or not figure["significant"]:
            continue
        change = figure["difference"]
        size = find_metric(metric).format(abs(change)) + points(find_metric(metric))
        part = f"{metric} by {size}"
        (gains if (change > 0) == (direction == "up") else losses).append(part)
    label = summary["labels"][number]
    if not gains and not losses:
        return f"{label} does not differ from {summary['labels'][0]} by more than seed noise."
    parts = [f"improves {', '.join(gains)}"] if gains else []
    parts += [f"degrades {', '.join(losses)}"] if losses else []
    return f"{label} {' and '.join(parts)}{levels(summary, number)}."


def points(metric: Metric) -> str:
    """Return the unit of a change: percentage points, or nothing."""
    return " points" if metric.unit == "percent" else ""


def capital(text: str) -> str:
    """Return a text with a capital letter first, the rest as it is."""
    return text[0].upper() + text[1:]


def levels(summary: Mapping[str, Any], number: int) -> str:
    """Say at which level a candidate differs most from the first, where it differs by a point."""
    first = summary["by_level"][summary["candidates"][0]]
    own = summary["by_level"][summary["candidates"][number]]
    changes = [
        (own_value - first_value, level)
        for level, (own_value, first_value) in enumerate(zip(own, first, strict=True), start=1)
        if own_value is not None and first_value is not None
    ]
    if not changes:
        return ""
    change, level = max(changes, key=lambda one: abs(one[0]))
    if abs(change) < 0.01:
        return ""
    return f"; its accuracy changes most at level {level} ({100 * change:+.1f} points)"


# ---------------------------------------- tables


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


def markdown_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], rule: str = "---:"
) -> list[str]:
    """Return the lines of a Markdown table whose first column names the rows."""
    lines = [f"| {' | '.join(cells).lstrip()} |" for cells in (heads, *rows)]
    return [lines[0], "|---" + f"|{rule}" * (len(heads) - 1) + "|", *lines[1:]]


def as_markdown(summary: Mapping[str, Any]) -> str:
    metrics = summary["metrics"]
    heads = [f"{name} {ARROWS[summary['directions'][name]]}".strip() for name in metrics]
    rows = []
    for number, label in enumerate(summary["labels"]):
        mark = " *" if summary["still_improving"][summary["candidates"][number]] else ""
        rows.append([f"{label}{mark}"])
        for metric in metrics:
            mean, deviation = cell(metric, summary["figures"][metric][number])
            mean = f"**{mean}**" if is_bold(summary, metric, number) else mean
            rows[-1].append(mean if deviation is None else f"{mean} ± {deviation}")
    return "\n".join([*markdown_table(["", *heads], rows, "---"), "", *notes(summary)]) + "\n"


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
    columns = ("mean", "deviation", "low", "high", "p", "significant", "seeds")
    lines = []
    for metric in summary["metrics"]:
        for key, figure in zip(summary["candidates"], summary["figures"][metric], strict=True):
            low, high = figure["interval"] or (None, None)
            known = [key, metric, figure["mean"], figure["deviation"], low, high, figure["p"]]
            lines.append([*known, figure["significant"], summary["seeds"]])
    return csv_text(["candidate", "metric", *columns], lines)


def csv_text(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()


# ---------------------------------------- files


def publish(study: Study) -> tuple[dict[str, Any], list[Path]]:
    """Write summary.json, table.csv, table.md and table.tex; return the summary and the paths."""
    with guarded(study.folder, "is a damaged study", StudyError, "run hierlearn compare again"):
        summary = summarize(study)
    summary["verdict"] = study_verdict(summary)
    texts = {
        "summary.json": as_json(summary),
        "table.csv": as_csv(summary),
        "table.md": f"{as_markdown(summary)}\n{summary['verdict']}\n",
        "table.tex": as_latex(summary),
    }
    return summary, write_texts(study.folder, texts)


def as_json(summary: Mapping[str, Any]) -> str:
    return json.dumps(summary, indent=2, ensure_ascii=False) + "\n"


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write texts by file name into a folder; return the paths."""
    for name, text in texts.items():
        with atomic_write(folder / name) as file:
            file.write(text)
    return [folder / name for name in texts]
