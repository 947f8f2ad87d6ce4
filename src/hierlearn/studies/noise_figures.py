"""The figures of a noise study, and its tables as Markdown and CSV.

At each rate the losses are compared with the first one seed by seed (paired t-test, corrected by
Holm over the losses). The harm is the change from the lowest rate to the highest, again seed by
seed, and is compared with the first loss's harm in the same way.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from hierlearn.studies.statistics import LEVEL, holm, paired_test, spread
from hierlearn.studies.summary import plain
from hierlearn.studies.tables import ARROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.studies.candidates import Candidate

    Values = Mapping[str, Mapping[str, Sequence[float]]]  # by entry, by metric, a value a seed

FORMAT = "hierlearn.noise"
MAIN = ("terminal-accuracy", "lca-height")
TITLES = {"labels": "Label noise", "hierarchy": "Hierarchy noise"}


def summarize_noise(
    by_kind: Mapping[str, Sequence[Values]],
    rates: Sequence[float],
    entries: Sequence[Candidate],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return every figure of a noise study, ready for JSON.

    Args:
        by_kind: the values of every kind of noise, rate after rate.
        rates: in ascending order.
        entries: the losses.
        facts: what it was trained on and how; ``spoiled``, the share that really was, and
            ``still_improving``, the losses with a run that did at its last epoch, by kind and rate.
    """
    keys = [entry.key for entry in entries]
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
            metric: against_first(
                [
                    [
                        after - before
                        for before, after in zip(
                            column[0][key][metric], column[-1][key][metric], strict=True
                        )
                    ]
                    for key in keys
                ]
            )
            for metric in metrics
        }
        for kind, column in by_kind.items()
    }
    return {
        "format": FORMAT,
        "version": 1,
        **facts,
        "entries": keys,
        "labels": [entry.label or entry.key for entry in entries],
        "seeds": len(first[keys[0]][metrics[0]]),
        "kinds": list(by_kind),
        "rates": list(rates),
        "metrics": metrics,
        "directions": {name: "down" if name == "lca-height" else "up" for name in metrics},
        "level": LEVEL,
        "figures": figures,
        "harm": harm,
    }


def against_first(values: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Return mean and deviation of each loss, and its test against the first.

    Args:
        values: a value a seed, by loss.
    """
    column: list[dict[str, Any]] = []
    for one in values:
        found = spread(one)
        column.append(
            {
                "mean": plain(found.mean),
                "deviation": None if found.deviation is None else plain(found.deviation),
                "values": [plain(value) for value in one],
                "difference": None,
                "p": None,
                "significant": False,
            }
        )
    for figure, p in zip(
        column[1:], holm([paired_test(one, values[0]) for one in values[1:]]), strict=True
    ):
        if figure["mean"] is not None and column[0]["mean"] is not None:
            figure["difference"] = figure["mean"] - column[0]["mean"]
        figure["p"] = plain(p)
        figure["significant"] = not math.isnan(p) and p < LEVEL
    return column


def is_percent(metric: str) -> bool:
    """Whether people read a metric in per cent."""
    return metric not in ("lca-height",)


def shown(metric: str, value: float | None, sign: str = "") -> str:
    """Write a figure; shares in per cent."""
    if value is None:
        return "n/a"
    return f"{100 * value:{sign}.1f}" if is_percent(metric) else f"{value:{sign}.3f}"


def better(summary: Mapping[str, Any], metric: str, figure: Mapping[str, Any]) -> bool | None:
    """Whether a figure is better than the first loss's, or worse; None within seed noise."""
    if not figure["significant"]:
        return None
    return bool((figure["difference"] > 0) == (summary["directions"][metric] == "up"))


def percent(rate: float) -> str:
    """Write a rate."""
    return f"{100 * rate:g} %"


def as_markdown(summary: Mapping[str, Any]) -> str:
    """Return a section a kind: a table of accuracy and distance, one of the levels."""
    lines: list[str] = []
    levels = [name for name in summary["metrics"] if name not in MAIN]
    ends = [0, len(summary["rates"]) - 1]
    for kind in summary["kinds"]:
        lines += [f"## {TITLES[kind]}", ""]
        lines += table(summary, kind, MAIN, range(len(summary["rates"])))
        lines += ["", "Accuracy of each level on the way to the decision:", ""]
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
    """Return the lines of a table: a row a loss, a column a metric and rate."""
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
    """Return a line a figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("mean", "deviation", "difference", "p", "significant")
    writer.writerow(["kind", "rate", "spoiled", "entry", "metric", *columns, "seeds"])
    for kind in summary["kinds"]:
        for place, rate in enumerate(summary["rates"]):
            for metric in summary["metrics"]:
                column = summary["figures"][kind][metric][place]
                for key, figure in zip(summary["entries"], column, strict=True):
                    known = [figure[name] for name in columns]
                    share = summary["spoiled"][kind][place]
                    writer.writerow([kind, rate, share, key, metric, *known, summary["seeds"]])
    return text.getvalue()
