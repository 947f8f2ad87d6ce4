"""The summary of a study: every figure with its spread, interval and test, ready for JSON.

For each metric and entry: mean and standard deviation over seeds, the bootstrap interval over test
rows where the metric is a mean over rows, and the paired test against the first entry, corrected by
Holm over the entries. Best is the entry with the best mean; it is marked significant only if its
corrected test says so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from hierlearn.decoding.edges import most_specific
from hierlearn.metrics import METRICS, hier_dist
from hierlearn.studies.statistics import LEVEL, bootstrap_interval, holm, paired_test, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.studies.candidates import Candidate
    from hierlearn.studies.study import Study

    Judge = Callable[["RowJudge", dict[str, NDArray[Any]]], NDArray[np.float64]]


class RowJudge:
    """What each row's decision is worth, by metric; (seeds, N) values of an entry's decisions."""

    def __init__(self, hierarchy: Hierarchy, targets: Tensor) -> None:
        self.hierarchy = hierarchy
        self.targets = targets
        self.ends = most_specific(targets, hierarchy)
        self.labeled = targets.any(dim=1).numpy()

    def __call__(self, metric: str, rows: dict[str, NDArray[Any]]) -> NDArray[np.float64] | None:
        """Return (seeds, N) values, NaN where a row does not count; None if not by rows."""
        if metric not in JUDGES:
            return None
        return np.where(self.labeled, JUDGES[metric](self, rows), np.nan)

    def is_hit(self, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Whether each decision is a positive class."""
        return among(self.targets, classes)

    def is_end(self, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Whether each decision is a terminal label of its row."""
        return among(self.ends, classes)

    def distance(
        self, classes: NDArray[Any], correct_cost: Literal["height", "zero"]
    ) -> NDArray[np.float64]:
        """Return the LCA height of each decision to the row's nearest label."""
        scores = torch.zeros(self.targets.shape)
        found = []
        for one in classes:
            scores.zero_()
            scores[torch.arange(len(one)), torch.from_numpy(one.astype(np.int64))] = 1
            options: Any = {"correct_cost": correct_cost, "reduction": "none"}
            found.append(hier_dist(scores, self.targets, self.hierarchy, **options).numpy())
        return np.stack(found)


def among(wanted: Tensor, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return (seeds, N) whether each class is wanted in its row, given (N, C) which are."""
    index = torch.from_numpy(classes.astype(np.int64))
    return wanted.gather(1, index.T).T.numpy().astype(np.float64)


JUDGES: dict[str, Judge] = {
    "hit@1": lambda judge, rows: judge.is_hit(rows["argmax"]),
    "mrr": lambda _, rows: 1 / np.maximum(rows["rank"], 1),
    "hier-dist": lambda judge, rows: judge.distance(rows["argmax"], "height"),
    "lca-height": lambda judge, rows: judge.distance(rows["terminal"], "zero"),
    "terminal-accuracy": lambda judge, rows: judge.is_end(rows["terminal"]),
    "mean-level": lambda judge, rows: judge.hierarchy.levels[rows["argmax"]].astype(np.float64),
}


def summarize(study: Study) -> dict[str, Any]:
    """Return the summary of the entries of a study that are complete."""
    entries = [entry for entry in study.entries if study.is_done(entry)]
    metrics = [name for name in study.facts["metrics"] if not METRICS[name].by_level]
    judge = RowJudge(study.hierarchy, study.targets())
    rows = {entry.key: study.rows(entry) for entry in entries}
    runs = study.runs()
    figures = {
        metric: [
            figure(study.values(entry, metric, runs), metric, judge, rows[entry.key])
            for entry in entries
        ]
        for metric in metrics
    }
    for metric, column in figures.items():
        compare_with_first([study.values(entry, metric, runs) for entry in entries], column)
        mark_best(metric, column)
    return {
        "entries": [entry.key for entry in entries],
        "labels": [entry.label or entry.key for entry in entries],
        "missing": [entry.key for entry in study.entries if entry not in entries],
        "metrics": metrics,
        "directions": {name: METRICS[name].direction for name in metrics},
        "level": LEVEL,
        "seeds": len(study.seeds),
        "figures": figures,
        "by_level": by_level(runs, entries),
        "severity": {entry.key: severity(judge, rows[entry.key]) for entry in entries},
        "still_improving": {
            entry.key: sum(run["still_improving"] for run in runs if run["entry"] == entry.key)
            for entry in entries
        },
    }


def figure(
    values: list[float], metric: str, judge: RowJudge, rows: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Return mean, deviation and interval of one entry, given its values seed after seed."""
    found = spread(values)
    by_row = judge(metric, rows)
    interval = None if by_row is None else list(bootstrap_interval(by_row.mean(axis=0)))
    return {
        "mean": plain(found.mean),
        "deviation": None if found.deviation is None else plain(found.deviation),
        "interval": interval,
        "values": [plain(value) for value in values],
        "p": None,
        "significant": False,
        "best": False,
    }


def compare_with_first(values: list[list[float]], column: list[dict[str, Any]]) -> None:
    """Put the corrected p of the paired test against the first entry into a column."""
    if len(values) < 2:
        return
    tests = [paired_test(one, values[0]) for one in values[1:]]
    for one, p in zip(column[1:], holm(tests), strict=True):
        one["p"] = plain(p)
        known = one["mean"] is not None and column[0]["mean"] is not None
        one["difference"] = plain(one["mean"] - column[0]["mean"]) if known else None
        one["significant"] = not math.isnan(p) and p < LEVEL


def mark_best(metric: str, column: list[dict[str, Any]]) -> None:
    """Mark the best mean of a column where there is a direction."""
    direction = METRICS[metric].direction
    known = [one for one in column if one["mean"] is not None]
    if direction == "none" or not known:
        return
    sign = 1 if direction == "up" else -1
    max(known, key=lambda one: sign * one["mean"])["best"] = True


def by_level(runs: list[dict[str, Any]], entries: list[Candidate]) -> dict[str, list[float | None]]:
    """Return the mean accuracy of each level, by entry."""
    found = {}
    for entry in entries:
        own = [run["test"]["level-accuracy"] for run in runs if run["entry"] == entry.key]
        table = np.array([[np.nan if v is None else v for v in one] for one in own])
        found[entry.key] = [plain(value) for value in table.mean(axis=0)]
    return found


def severity(judge: RowJudge, rows: dict[str, NDArray[Any]]) -> list[float]:
    """Return the share of labeled rows that are right, and wrong by LCA height 1, 2, ..."""
    heights = judge.distance(rows["terminal"], "zero")[:, judge.labeled]
    counts = np.bincount(
        heights.astype(np.int64).ravel(), minlength=judge.hierarchy.root_height + 1
    )
    return [float(value) for value in counts / max(heights.size, 1)]


def plain(value: float) -> float | None:
    """Return a figure, or None for NaN, which JSON does not know."""
    return None if math.isnan(value) else float(value)
