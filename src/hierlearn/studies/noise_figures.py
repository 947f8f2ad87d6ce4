"""The figures of a noise study, and its tables as Markdown and CSV.

At each rate the losses are compared with the first one seed by seed (paired t-test, corrected by
Holm over the losses). The harm is the change from the lowest rate to the highest, again seed by
seed, and is compared with the first loss's harm in the same way.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from hierlearn.metrics.registry import find_metric
from hierlearn.studies.statistics import LEVEL
from hierlearn.studies.summary import against_first
from hierlearn.studies.tables import ARROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.metrics import Metric
    from hierlearn.studies.candidates import Candidate

    Values = Mapping[str, Mapping[str, Sequence[float]]]  # by candidate, metric and seed

FORMAT, VERSION = "hierlearn.noise", 2
MAIN = ("terminal-accuracy", "lca-height")
TITLES = {"labels": "Label noise", "hierarchy": "Hierarchy noise"}


def metric_of(name: str) -> Metric:
    """Return the metric of a figure; ``level-1`` and so on are level accuracies."""
    return find_metric("level-accuracy" if name.startswith("level-") else name)


def summarize_noise(
    by_kind: Mapping[str, Sequence[Values]],
    rates: Sequence[float],
    candidates: Sequence[Candidate],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Return every figure of a noise study, ready for JSON.

    Args:
        by_kind: the values of every kind of noise, one per rate.
        rates: in ascending order.
        candidates: the losses.
        config: what it was trained on and how; ``corrupted``, the fraction that really was, and
            ``still_improving``, the losses with a run that did at its last epoch, by kind and rate.
    """
    keys = [candidate.key for candidate in candidates]
    first = next(iter(by_kind.values()))[0]
    metrics = list(first[keys[0]])
    figures = {
        kind: {
            metric: [against_first([values[key][metric] for key in keys]) for values in column]
            for metric in metrics
        }
        for kind, column in by_kind.items()
    }
    harm = {
        kind: {
            metric: against_first([changes(column, key, metric) for key in keys])
            for metric in metrics
        }
        for kind, column in by_kind.items()
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        **config,
        "candidates": keys,
        "labels": [candidate.title for candidate in candidates],
        "seeds": len(first[keys[0]][metrics[0]]),
        "kinds": list(by_kind),
        "rates": list(rates),
        "metrics": metrics,
        "directions": {name: metric_of(name).direction for name in metrics},
        "level": LEVEL,
        "figures": figures,
        "harm": harm,
    }


def changes(column: Sequence[Values], key: str, metric: str) -> list[float]:
    """Return the change of a metric from the lowest rate to the highest, one per seed."""
    ends = zip(column[0][key][metric], column[-1][key][metric], strict=True)
    return [after - before for before, after in ends]


def shown(metric: str, value: float | None) -> str:
    """Return a figure as text; percentages with one digit."""
    return metric_of(metric).format(value, digits(metric))


def digits(metric: str) -> int | None:
    """Return the digits of a figure: one of percentages, else those of the metric."""
    return 1 if metric_of(metric).unit == "percent" else None


def better(summary: Mapping[str, Any], metric: str, figure: Mapping[str, Any]) -> bool | None:
    """Return whether a figure is better than the first loss's, or worse; None within seed noise."""
    if not figure["significant"]:
        return None
    return bool((figure["difference"] > 0) == (summary["directions"][metric] == "up"))


def percent(rate: float) -> str:
    """Return a rate as text."""
    return f"{100 * rate:g} %"


def as_markdown(summary: Mapping[str, Any]) -> str:
    """Return one section per kind: a table of accuracy and distance, one of the levels."""
    lines: list[str] = []
    levels = [name for name in summary["metrics"] if name not in MAIN]
    ends = [0, len(summary["rates"]) - 1]
    for kind in summary["kinds"]:
        lines += [f"## {TITLES[kind]}", ""]
        lines += table(summary, kind, MAIN, range(len(summary["rates"])))
        lines += ["", "Accuracy of each level on the path to the decision:", ""]
        lines += [*table(summary, kind, levels, ends), ""]
    lines.append(
        f"Mean ± standard deviation over {summary['seeds']} seeds, on clean test rows. Bold: "
        f"better than {summary['labels'][0]} at that rate with p < {summary['level']} (paired "
        f"t-test over seeds, Holm)."
        if summary["seeds"] > 1
        else "One seed: no spread, no test."
    )
    still = [
        f"{', '.join(keys)} ({TITLES[kind].lower()}, {percent(rate)})"
        for kind in summary["kinds"]
        for rate, keys in zip(summary["rates"], summary["still_improving"][kind], strict=True)
        if keys
    ]
    if still:
        lines.append(f"A run of these still improved at its last epoch: {'; '.join(still)}.")
    return "\n".join(lines) + "\n"


def table(
    summary: Mapping[str, Any], kind: str, metrics: Sequence[str], places: Sequence[int]
) -> list[str]:
    """Return the lines of a table: one row per loss, one column per metric and rate."""
    columns = [(metric, place) for metric in metrics for place in places]
    heads = [
        f"{metric} {ARROWS[summary['directions'][metric]]} at {percent(summary['rates'][place])}"
        for metric, place in columns
    ]
    lines = ["| | " + " | ".join(heads) + " |", "|---" + "|---:" * len(columns) + "|"]
    for number, label in enumerate(summary["labels"]):
        cells = []
        for metric, place in columns:
            figure = summary["figures"][kind][metric][place][number]
            mean = shown(metric, figure["mean"])
            mean = f"**{mean}**" if better(summary, metric, figure) else mean
            known = figure["deviation"] is not None
            cells.append(f"{mean} ± {shown(metric, figure['deviation'])}" if known else mean)
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def as_csv(summary: Mapping[str, Any]) -> str:
    """Return one line per figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("mean", "deviation", "difference", "p", "significant")
    writer.writerow(["kind", "rate", "corrupted", "candidate", "metric", *columns, "seeds"])
    for kind in summary["kinds"]:
        for place, rate in enumerate(summary["rates"]):
            for metric in summary["metrics"]:
                column = summary["figures"][kind][metric][place]
                for key, figure in zip(summary["candidates"], column, strict=True):
                    known = [figure[name] for name in columns]
                    corrupted = summary["corrupted"][kind][place]
                    writer.writerow([kind, rate, corrupted, key, metric, *known, summary["seeds"]])
    return text.getvalue()
