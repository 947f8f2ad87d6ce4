"""The figures of a noise study, its tables as Markdown and CSV, and what suffers least in English.

The unit is the draw: the seeds of a draw are averaged, and mean, interval (Student's t) and test
are over draws. At each rate the candidates are compared with the first one draw by draw (paired
t-test, corrected by Holm over the candidates). The harm is the change from the lowest rate to the
highest, again draw by draw, and is compared with the first candidate's harm in the same way. With a
single draw the unit is the seed, and nothing is said of other draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import plural
from hierlearn.lab.statistics import LEVEL, t_interval
from hierlearn.lab.summary import (
    ARROWS,
    against_first,
    as_json,
    capital,
    markdown_table,
    points,
    signed,
    write_texts,
)
from hierlearn.metrics.measure import find_metric, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hierlearn.lab.candidates import Candidate
    from hierlearn.metrics import Metric

    Values = Mapping[str, Mapping[str, Sequence[float]]]  # by candidate, metric and seed
    Draws = Sequence[Values]  # of one rate
    BySeed = Sequence[Sequence[float]]  # of one candidate, by draw and seed


FORMAT, VERSION = "hierlearn.noise", 3
DECIDED = ("terminal-accuracy", "lca-height")  # of the decided terminal class
SCORES = ("au-prc",)  # of the probabilities, where the taxonomy is clean
MAIN = (*DECIDED, *SCORES)
TITLES = {"labels": "Label noise", "hierarchy": "Hierarchy noise"}


def metric_of(name: str) -> Metric:
    """Return the metric of a figure; ``level-1`` and so on are level accuracies."""
    return find_metric("level-accuracy" if name.startswith("level-") else name)


def summarize_noise(
    by_kind: Mapping[str, Sequence[Draws]],
    rates: Sequence[float],
    candidates: Sequence[Candidate],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Return every figure of a noise study, ready for JSON.

    Args:
        by_kind: the values of every kind of noise, by rate and draw.
        rates: in ascending order.
        candidates: the losses and recipes.
        config: what it was trained on and how; ``corrupted``, the fraction that really was, by
            kind, rate and draw, and ``still_improving``, the candidates with a run that did at its
            last epoch, by kind and rate.
    """
    keys = [candidate.key for candidate in candidates]
    first = next(iter(by_kind.values()))[0]
    figures = {
        kind: {
            metric: [over_draws([by_seed(draws, key, metric) for key in keys]) for draws in column]
            for metric in column[0][0][keys[0]]  # what was measured at every rate
            if all(metric in values[keys[0]] for draws in column for values in draws)
        }
        for kind, column in by_kind.items()
    }
    harm = {
        kind: {
            metric: over_draws([changes(column, key, metric) for key in keys])
            for metric in figures[kind]
        }
        for kind, column in by_kind.items()
    }
    metrics = list(dict.fromkeys(metric for found in figures.values() for metric in found))
    return {
        "format": FORMAT,
        "version": VERSION,
        **config,
        "candidates": keys,
        "labels": [candidate.title for candidate in candidates],
        "draws": len(first),
        "seeds": len(next(iter(first[0][keys[0]].values()))),
        "unit": "draws" if len(first) > 1 else "seeds",
        "kinds": list(by_kind),
        "rates": list(rates),
        "metrics": metrics,
        "directions": {name: metric_of(name).direction for name in metrics},
        "level": LEVEL,
        "figures": figures,
        "harm": harm,
    }


def by_seed(draws: Draws, key: str, metric: str) -> list[list[float]]:
    """Return the values of a candidate, by draw and seed."""
    return [list(values[key][metric]) for values in draws]


def over_draws(values: Sequence[BySeed]) -> list[dict[str, Any]]:
    """Return mean, interval and test of each candidate, over draws.

    Args:
        values: by candidate, draw and seed.

    Returns:
        What ``against_first`` does of the units, which are the means of the draws or, of a single
        draw, its seeds; ``interval`` of the mean; ``seed_deviation``, the standard deviation over
        seeds within a draw; and ``values`` by draw and seed.
    """
    units = [[float(np.mean(draw)) for draw in one] if len(one) > 1 else one[0] for one in values]
    figures = against_first(units)
    for figure, unit, one in zip(figures, units, values, strict=True):
        interval = [plain(end) for end in t_interval(unit)]
        figure["interval"] = None if None in interval else interval
        within = [np.var(draw, ddof=1) for draw in one if len(draw) > 1]
        figure["seed_deviation"] = plain(float(np.sqrt(np.mean(within)))) if within else None
        figure["values"] = [[plain(value) for value in draw] for draw in one]
    return figures


def changes(column: Sequence[Draws], key: str, metric: str) -> list[list[float]]:
    """Return the change of a metric from the lowest rate to the highest, by draw and seed."""
    ends = zip(by_seed(column[0], key, metric), by_seed(column[-1], key, metric), strict=True)
    return [[after - before for before, after in zip(*draw, strict=True)] for draw in ends]


def main_metrics(summary: Mapping[str, Any], kind: str) -> list[str]:
    """Return the metrics of the tables and the verdict on a kind of noise."""
    return [metric for metric in MAIN if metric in summary["figures"][kind]]


def repetitions(summary: Mapping[str, Any]) -> int:
    """Return how many draws, or seeds of a single draw, the tests are over."""
    return int(summary[summary["unit"]])


def shown(metric: str, value: float | None) -> str:
    """Return a figure as text; percentages with one digit."""
    return metric_of(metric).format(value, digits(metric))


def digits(metric: str) -> int | None:
    """Return the digits of a figure: one of percentages, else those of the metric."""
    return 1 if metric_of(metric).unit == "percent" else None


def better(summary: Mapping[str, Any], metric: str, figure: Mapping[str, Any]) -> bool | None:
    """Return whether a figure is better than the first one's, or worse; None within noise."""
    if not figure["significant"]:
        return None
    return bool((figure["difference"] > 0) == (summary["directions"][metric] == "up"))


def percent(rate: float) -> str:
    return f"{100 * rate:g} %"


def with_interval(metric: str, figure: Mapping[str, Any], mean: str) -> str:
    """Return a mean as text with half the width of its interval, where there is one."""
    if figure["interval"] is None:
        return mean
    low, high = figure["interval"]
    return f"{mean} ± {shown(metric, (high - low) / 2)}"


def as_markdown(summary: Mapping[str, Any]) -> str:
    """Return one section per kind: one table per main metric, and one of the levels."""
    lines: list[str] = []
    levels = [name for name in summary["metrics"] if name not in MAIN]
    ends = [0, len(summary["rates"]) - 1]
    for kind in summary["kinds"]:
        lines += [f"## {TITLES[kind]}", ""]
        for metric in main_metrics(summary, kind):
            lines += [*rate_table(summary, kind, metric), ""]
        lines += ["Accuracy of each level on the path to the decision:", ""]
        columns = [(metric, end) for metric in levels for end in ends]
        arrows = {name: ARROWS[direction] for name, direction in summary["directions"].items()}
        at = [percent(rate) for rate in summary["rates"]]
        heads = [f"{metric} {arrows[metric]} at {at[place]}" for metric, place in columns]
        lines += [*markdown_table(["", *heads], rows(summary, kind, columns)), ""]
    lines.append(explain_tables(summary))
    still = [
        f"{', '.join(keys)} ({TITLES[kind].lower()}, {percent(rate)})"
        for kind in summary["kinds"]
        for rate, keys in zip(summary["rates"], summary["still_improving"][kind], strict=True)
        if keys
    ]
    if still:
        lines.append(f"A run of these still improved at its last epoch: {'; '.join(still)}.")
    return "\n".join(lines) + "\n"


def explain_tables(summary: Mapping[str, Any]) -> str:
    """Say what the figures of the tables are over."""
    if repetitions(summary) < 2:
        return "One draw, one seed: no interval, no test."
    unit, level = summary["unit"], summary["level"]
    over = plural(summary[unit], unit[:-1])
    if unit == "draws":
        over += f" of {plural(summary['seeds'], 'seed')} each"
    else:
        over += " under one draw of the noise"
    return (
        f"Mean ± half the {percent(1 - level)} interval over {over}, on clean test rows. Bold: "
        f"better than {summary['labels'][0]} at that rate with p < {level} (paired t-test over "
        f"{unit}, Holm)."
    )


def rate_table(summary: Mapping[str, Any], kind: str, metric: str) -> list[str]:
    """Return the lines of a table of one metric: one row per candidate, one column per rate."""
    heads = [f"{metric} {ARROWS[summary['directions'][metric]]}", *map(percent, summary["rates"])]
    columns = [(metric, place) for place in range(len(summary["rates"]))]
    return markdown_table(heads, rows(summary, kind, columns))


def rows(
    summary: Mapping[str, Any], kind: str, columns: Sequence[tuple[str, int]]
) -> list[list[str]]:
    """Return the cells of every candidate; a column is a metric and the place of a rate."""
    found = [[label] for label in summary["labels"]]
    for metric, place in columns:
        for cells, figure in zip(found, summary["figures"][kind][metric][place], strict=True):
            mean = shown(metric, figure["mean"])
            mean = f"**{mean}**" if better(summary, metric, figure) else mean
            cells.append(with_interval(metric, figure, mean))
    return found


# ---------------------------------------- verdict


HARMED = "is harmed more or less than {} beyond"
NAMES = {
    "terminal-accuracy": "terminal accuracy",
    "lca-height": "the mean LCA height",
    "au-prc": "AU(PRC)",
}
SPREAD = {"draws": "draw-to-draw noise", "seeds": "seed noise"}
MOST = 4  # candidates without a difference that are named


def noise_verdict(summary: Mapping[str, Any]) -> str:
    """Return one paragraph per kind of noise."""
    parts = []
    if repetitions(summary) < 2:
        parts.append("With one draw and one seed no difference can be told from noise.")
    elif summary["unit"] == "seeds":
        parts.append("One draw of the noise: differences are told from seed noise alone.")
    for kind in summary["kinds"]:
        metrics = main_metrics(summary, kind)
        sentences = []
        fractions = [sum(draws) / len(draws) for draws in summary["corrupted"][kind]]
        if any(abs(a - b) >= 0.02 for a, b in zip(fractions, summary["rates"], strict=True)):
            done, asked = (
                ", ".join(f"{100 * one:{form}}" for one in shares)
                for shares, form in ((fractions, ".1f"), (summary["rates"], "g"))
            )
            sentences.append(
                f"Really corrupted: {done} % where {asked} % were asked for; more was not possible."
            )
        sentences += [harm(summary, kind, metric) for metric in metrics]
        sentences += [at_highest(summary, kind, metric) for metric in metrics]
        parts.append(f"{TITLES[kind]}. " + " ".join(filter(None, sentences)))
    return "\n\n".join(parts)


def harm(summary: Mapping[str, Any], kind: str, metric: str) -> str:
    """Say which candidate loses least and most from the lowest rate to the highest."""
    labels, column = summary["labels"], summary["harm"][kind][metric]
    worse = 1 if summary["directions"][metric] == "down" else -1
    order = sorted(range(len(labels)), key=lambda one: worse * column[one]["mean"])
    least, most = order[0], order[-1]
    ends = f"from {percent(summary['rates'][0])} to {percent(summary['rates'][-1])}"
    if len(labels) == 1:
        return f"{capital(ends)} {labels[0]} changes {NAMES[metric]} by {size(metric, column[0])}."
    text = (
        f"{capital(ends)} {labels[least]} loses least of {NAMES[metric]} "
        f"({size(metric, column[least])}), {labels[most]} most ({size(metric, column[most])})"
        if worse < 0
        else f"{capital(NAMES[metric])} grows least with {labels[least]} "
        f"({size(metric, column[least])}), most with {labels[most]} ({size(metric, column[most])})"
    )
    text += "" if 0 in (least, most) else f"; {labels[0]}: {size(metric, column[0])}"
    return text + "." + compared(summary, metric, column, "harmed less", "harmed more", HARMED)


def at_highest(summary: Mapping[str, Any], kind: str, metric: str) -> str:
    """Say which candidates differ from the first at the highest rate."""
    labels, column = summary["labels"], summary["figures"][kind][metric][-1]
    if len(labels) == 1:
        return ""
    up = summary["directions"][metric] == "up"
    best = (max if up else min)(range(len(labels)), key=lambda one: column[one]["mean"])
    text = (
        f"At {percent(summary['rates'][-1])} the best {NAMES[metric].removeprefix('the ')} is "
        f"that of {labels[best]} ({shown(metric, column[best]['mean'])}"
        f"{' %' if metric_of(metric).unit == 'percent' else ''})."
    )
    return text + compared(summary, metric, column)


def compared(
    summary: Mapping[str, Any],
    metric: str,
    column: list[dict[str, Any]],
    good: str = "better",
    bad: str = "worse",
    same: str = "differs from {} by more than",
) -> str:
    """Say which candidates are better or worse than the first, and which do not differ."""
    if repetitions(summary) < 2:
        return ""
    labels, spread = summary["labels"], SPREAD[summary["unit"]]
    groups: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for label, figure in zip(labels[1:], column[1:], strict=True):
        groups[better(summary, metric, figure)].append(label)
    firsts = (f"{good} than {labels[0]} beyond {spread}", bad, "no difference")
    parts = [
        f"{word}: {listed(groups[key], MOST if key is None else len(labels))}"
        for word, key in zip(firsts, (True, False, None), strict=True)
        if groups[key]
    ]
    if not groups[True] and groups[False]:
        parts[0] = f"{bad} than {labels[0]} beyond {spread}: {', '.join(groups[False])}"
    elif not groups[True]:
        parts = [f"no other candidate {same.format(labels[0])} {spread}"]
    return f" {capital('; '.join(parts))}."


def listed(names: list[str], most: int) -> str:
    """Return names with commas, or how many the rest are."""
    return ", ".join(names) if len(names) <= most else f"the other {len(names)}"


def size(name: str, figure: Mapping[str, Any]) -> str:
    """Return a change as text, with its sign."""
    metric = metric_of(name)
    return signed(metric, figure["mean"], digits(name)) + points(metric)


def publish_noise(summary: dict[str, Any], folder: Path) -> list[Path]:
    """Write noise.json and noise.md; put the verdict into the summary."""
    summary["verdict"] = noise_verdict(summary)
    texts = {
        "noise.json": as_json(summary),
        "noise.md": f"{as_markdown(summary)}\n{summary['verdict']}\n",
    }
    return write_texts(folder, texts)
