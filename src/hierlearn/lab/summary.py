"""The summary of a study: every figure with its spread, interval and test, ready for JSON.

For each metric and candidate: mean and standard deviation over seeds, the bootstrap interval over
test rows where the metric is a mean over rows, and the paired test against the first candidate,
corrected by Holm over the candidates. Best is the candidate with the best mean; it is marked
significant only if its corrected test says so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.lab.statistics import LEVEL, bootstrap_interval, holm, paired_test, spread
from hierlearn.metrics.measure import find_metric, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.lab.candidates import Candidate
    from hierlearn.lab.study import Study

    Rows = Mapping[str, NDArray[Any]]  # what a study stores of the test rows of a candidate


def summarize(study: Study) -> dict[str, Any]:
    """Return the summary of the candidates of a study that are complete."""
    candidates, runs = study.finished, study.runs()
    keys = [candidate.key for candidate in candidates]
    metrics = [name for name in study.config["metrics"] if not find_metric(name).by_level]
    rows = {candidate.key: study.rows(candidate) for candidate in candidates}
    depth = study.hierarchy.depth
    return {
        "candidates": keys,
        "labels": [candidate.title for candidate in candidates],
        "uses_hierarchy": {key: study.config["uses_hierarchy"][key] for key in keys},
        "missing": [one.key for one in study.candidates if one.key not in keys],
        "metrics": metrics,
        "directions": {name: find_metric(name).direction for name in metrics},
        "level": LEVEL,
        "seeds": len(study.seeds),
        "figures": {name: column(study, candidates, name, runs, rows) for name in metrics},
        "by_level": {one.key: by_level(study.runs_of(one, runs)) for one in candidates},
        "severity": {key: severity(rows[key], depth) for key in keys},
        "selected": selected(study, candidates),
        "still_improving": {
            one.key: sum(run["still_improving"] for run in study.runs_of(one, runs))
            for one in candidates
        },
    }


def column(
    study: Study,
    candidates: Sequence[Candidate],
    metric: str,
    runs: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Rows],
) -> list[dict[str, Any]]:
    """Return the figures of a metric, one per candidate."""
    figures = against_first([study.values(candidate, metric, runs) for candidate in candidates])
    per_row = find_metric(metric).per_row
    for candidate, figure in zip(candidates, figures, strict=True):
        known = per_row and figure["mean"] is not None
        figure["interval"] = (
            list(bootstrap_interval(rows[candidate.key][metric])) if known else None
        )
        figure["best"] = False
    mark_best(metric, figures)
    return figures


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


def by_level(runs: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return the mean accuracy of each level of the runs of a candidate."""
    table = np.array([run["test"]["accuracy"] for run in runs], dtype=np.float64)
    return [plain(value) for value in table.mean(axis=0).tolist()]


def selected(study: Study, candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return the share of the classes that a curriculum selected, over batches and epochs."""
    found = {one.key: study.selected(one) for one in candidates}
    return {key: float(one.mean()) / 100 for key, one in found.items() if one is not None}


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
