"""Ranks over several datasets: Friedman's test and Nemenyi's critical difference (Demsar, 2006).

On each dataset the losses are ranked by their mean over seeds, 1 for the best, ties sharing their
ranks. Friedman's test asks whether all rank alike; only where it says no are pairs told apart, by
mean ranks that differ by more than the critical difference. Both count datasets, not seeds: they
speak of other datasets, and with few of them they rarely say anything.
"""

from __future__ import annotations

import json
import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError, quoted, unknown_name
from hierlearn.files import atomic_write
from hierlearn.metrics import METRICS
from hierlearn.studies.statistics import LEVEL, rank_methods, spread
from hierlearn.studies.study import Study
from hierlearn.studies.summary import plain
from hierlearn.studies.tables import ARROWS, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hierlearn.studies.candidates import Candidate

FORMAT = "hierlearn.ranks"
FEW = 5  # datasets; below, the tests have little power


def rank_studies(folders: Sequence[Path | str], metric: str = "au-prc") -> dict[str, Any]:
    """Rank the losses that several studies have in common, ready for JSON.

    Args:
        folders: of two or more studies, each of another dataset.
        metric: a name of METRICS with a direction, which every study has.
    """
    if len(folders) < 2:
        raise HierlearnError(f"ranks need at least two studies, not {len(folders)}")
    larger_is_better = check_metric(metric)
    studies = [Study.open(folder) for folder in folders]
    refuse_repeats(studies)
    entries, left_out = in_common(studies)
    values = np.array([[mean_of(study, entry, metric) for entry in entries] for study in studies])
    found = rank_methods(values, larger_is_better=larger_is_better)
    summary: dict[str, Any] = {
        "format": FORMAT,
        "version": 1,
        "metric": metric,
        "direction": METRICS[metric].direction,
        "level": LEVEL,
        "datasets": dataset_names(studies),
        "seeds": [len(study.seeds) for study in studies],
        "entries": [entry.key for entry in entries],
        "labels": [entry.label or entry.key for entry in entries],
        "left_out": left_out,
        "values": values.tolist(),  # a row a dataset
        "mean_ranks": found.average.tolist(),
        "friedman_p": plain(found.p),
        "critical_difference": found.critical_difference,
    }
    summary["differing"] = differing(summary)
    summary["groups"] = groups(summary)
    summary["words"] = who_differs(summary)
    return summary


def check_metric(metric: str) -> bool:
    """Return whether larger is better, or refuse a metric that ranks nothing."""
    if metric not in METRICS:
        raise HierlearnError(unknown_name("metric", metric, METRICS))
    if METRICS[metric].by_level or METRICS[metric].direction == "none":
        raise HierlearnError(
            f"metric {metric!r} is no single number of which more or less is better; rank by "
            f"au-prc or terminal-accuracy"
        )
    return METRICS[metric].direction == "up"


def refuse_repeats(studies: Sequence[Study]) -> None:
    """Refuse two studies of one dataset: they would count it twice."""
    seen: dict[tuple[Any, ...], Study] = {}
    for study in studies:
        dataset, about = study.facts["dataset"], study.facts.get("about", {})
        # A spoiled dataset is the clean one still.
        source = (about.get("noise") or {}).get("source", dataset.get("source"))
        key = (dataset["name"], source, dataset["rows"])
        if key in seen:
            raise HierlearnError(
                f"{seen[key].folder} and {study.folder} are studies of the same dataset "
                f"({dataset['name'] or 'without a name'}, {dataset['rows']:,} rows); name each "
                f"dataset once"
            )
        seen[key] = study


def in_common(studies: Sequence[Study]) -> tuple[list[Candidate], list[str]]:
    """Return the entries that are complete in every study, and the keys of the others."""
    done = [[entry for entry in study.entries if study.is_done(entry)] for study in studies]
    keys = [{entry.key for entry in entries} for entries in done]
    shared = [entry for entry in done[0] if all(entry.key in one for one in keys)]
    everything = dict.fromkeys(entry.key for study in studies for entry in study.entries)
    if not shared:
        each = "; ".join(
            f"{study.folder} has {quoted(sorted(one)) or 'none'}"
            for study, one in zip(studies, keys, strict=True)
        )
        raise HierlearnError(f"the studies have no finished loss in common: {each}")
    if len(shared) == 1:
        raise HierlearnError(
            f"only {shared[0].key!r} is finished in every study; ranks need at least two losses"
        )
    return shared, [key for key in everything if key not in [entry.key for entry in shared]]


def mean_of(study: Study, entry: Candidate, metric: str) -> float:
    """Return the mean over seeds, or refuse a figure that is not there."""
    runs = [run for run in study.runs() if run["entry"] == entry.key]
    if any(metric not in run["test"] for run in runs):
        known = ", ".join(name for name in runs[0]["test"] if not METRICS[name].by_level)
        raise HierlearnError(f"{study.folder} has no {metric}; it has {known}")
    mean = spread(study.values(entry, metric)).mean
    if math.isnan(mean):
        raise HierlearnError(
            f"{metric} of {entry.key!r} is not defined in {study.folder}; rank by another metric"
        )
    return mean


def dataset_names(studies: Sequence[Study]) -> list[str]:
    """Return a name a dataset; where two share one, or have none, that of the study's folder."""
    names = [str(study.facts["dataset"]["name"]) for study in studies]
    clear = [bool(name) and names.count(name) == 1 for name in names]
    return [
        name if ok else str(study.folder)
        for name, ok, study in zip(names, clear, studies, strict=True)
    ]


def is_told_apart(summary: Mapping[str, Any]) -> bool:
    """Whether Friedman's test lets pairs be compared; of two losses there is no such test."""
    p = summary["friedman_p"]
    return p is None or p < summary["level"]


def differing(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the pairs of entries that differ significantly, the better one first."""
    ranks = summary["mean_ranks"]
    order = sorted(range(len(ranks)), key=lambda one: ranks[one])
    return [
        [summary["entries"][a], summary["entries"][b]]
        for a, b in combinations(order, 2)
        if is_told_apart(summary) and ranks[b] - ranks[a] > summary["critical_difference"]
    ]


def groups(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the largest sets of entries of which no two differ, best first."""
    ranks, apart = summary["mean_ranks"], {frozenset(pair) for pair in summary["differing"]}
    order = sorted(range(len(ranks)), key=lambda one: ranks[one])
    keys = [summary["entries"][one] for one in order]
    found: list[list[str]] = []
    reached = 0
    for begin in range(len(keys)):
        end = begin + 1
        while end < len(keys) and frozenset((keys[begin], keys[end])) not in apart:
            end += 1
        if end - begin > 1 and end > reached:  # else it is part of the one before
            found.append(keys[begin:end])
            reached = end
    return found


def who_differs(summary: Mapping[str, Any]) -> str:
    """Say in plain words which losses differ, and how much that is worth."""
    label = dict(zip(summary["entries"], summary["labels"], strict=True))
    count, p = len(summary["datasets"]), summary["friedman_p"]
    best = min(zip(summary["mean_ranks"], summary["labels"], strict=True))
    parts = [
        f"By {summary['metric']} on {count} datasets {best[1]} has the best mean rank "
        f"({best[0]:.2f} of {len(label)})."
    ]
    if p is None:
        parts.append("Friedman's test needs three losses; of two, Nemenyi's alone is made.")
    elif is_told_apart(summary):
        parts.append(f"Friedman's test finds that not all rank alike (p {written_p(p)}).")
    else:
        parts.append(
            f"Friedman's test does not find that any rank differently (p {written_p(p)}), so no "
            f"pair is claimed to differ."
        )
    critical = f"the critical difference {summary['critical_difference']:.2f}"
    pairs: dict[str, list[str]] = {}
    for better, worse in summary["differing"]:
        pairs.setdefault(label[better], []).append(label[worse])
    if pairs:
        told = "; ".join(f"{better} before {', '.join(worse)}" for better, worse in pairs.items())
        parts.append(f"Mean ranks differ by more than {critical}: {told}.")
        joined = [" and ".join([", ".join(names[:-1]), names[-1]]) for names in named(summary)]
        parts.append(f"Not told apart: {'; '.join(joined)}." if joined else "")
    elif is_told_apart(summary):
        parts.append(f"No two mean ranks differ by more than {critical}.")
    if count < FEW:
        parts.append(
            f"With {count} datasets these tests have little power: what they do not find may well "
            f"be there."
        )
    return " ".join(filter(None, parts))


def named(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the groups by label."""
    label = dict(zip(summary["entries"], summary["labels"], strict=True))
    return [[label[key] for key in group] for group in summary["groups"]]


def written_p(p: float) -> str:
    """Write a p-value."""
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def as_markdown(summary: Mapping[str, Any]) -> str:
    """Return the table, best first: mean rank, and the figure on each dataset."""
    metric = summary["metric"]
    heads = ["mean rank ↓"] + [
        f"{name}: {metric} {ARROWS[summary['direction']]}" for name in summary["datasets"]
    ]
    lines = ["| | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows(summary)]
    return "\n".join([*lines, "", summary["words"], *notes(summary)]) + "\n"


def rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the cells of the table, best first."""
    order = np.argsort(summary["mean_ranks"], kind="stable").tolist()
    return [
        [
            summary["labels"][one],
            f"{summary['mean_ranks'][one]:.2f}",
            *(shown(summary["metric"], values[one]) for values in summary["values"]),
        ]
        for one in order
    ]


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Return what was left out, as a sentence."""
    if not summary["left_out"]:
        return []
    return [
        f"Left out, for want of a finished run in every study: {', '.join(summary['left_out'])}."
    ]


def publish_ranks(summary: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ranks.json and ranks.md."""
    texts = {
        "ranks.json": json.dumps(summary, indent=2, ensure_ascii=False) + "\n",
        "ranks.md": as_markdown(summary),
    }
    for name, text in texts.items():
        with atomic_write(folder / name) as file:
            file.write(text)
    return [folder / name for name in texts]
