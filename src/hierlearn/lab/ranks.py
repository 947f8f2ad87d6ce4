"""Ranks over several datasets: Friedman's test and Nemenyi's critical difference (Demsar, 2006).

On each dataset the losses are ranked by their mean over seeds, 1 for the best, ties sharing their
ranks. Friedman's test asks whether all rank alike; only where it says no are pairs compared, by
mean ranks that differ by more than the critical difference. Both count datasets, not seeds: they
tell about other datasets, and with few of them they rarely find anything.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError, quoted
from hierlearn.lab.statistics import LEVEL, rank_methods, spread
from hierlearn.lab.study import Study
from hierlearn.lab.summary import ARROWS, as_json, markdown_table, write_texts
from hierlearn.metrics.measure import find_metric, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.lab.candidates import Candidate

FORMAT, VERSION = "hierlearn.ranks", 2
FEW = 5  # datasets; below, the tests have little power
FEW_PAIRS = 20  # that differ; of more, only those of the best are told


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
    check_different(studies)
    candidates, left_out = in_common(studies)
    values = np.array(
        [[mean_of(study, candidate, metric) for candidate in candidates] for study in studies]
    )
    names = [str(study.config["dataset"]["name"]) for study in studies]
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "metric": metric,
        "direction": find_metric(metric).direction,
        "level": LEVEL,
        "datasets": [  # where two share a name, or have none, the study's folder
            name if name and names.count(name) == 1 else str(study.folder)
            for name, study in zip(names, studies, strict=True)
        ],
        "seeds": [len(study.seeds) for study in studies],
        "candidates": [candidate.key for candidate in candidates],
        "labels": [candidate.title for candidate in candidates],
        "left_out": left_out,
    }
    return rank_values(values, facts, larger_is_better=larger_is_better)


def rank_values(
    values: NDArray[np.float64], facts: Mapping[str, Any], *, larger_is_better: bool
) -> dict[str, Any]:
    """Add ranks, tests and verdict to what is told about a ranking.

    Args:
        values: (datasets, candidates) what is ranked.
        facts: metric, datasets, candidates, labels and what else the summary holds.
        larger_is_better: the direction of the metric.
    """
    found = rank_methods(values, larger_is_better=larger_is_better)
    summary = {
        **facts,
        "values": values.tolist(),  # one row per dataset
        "mean_ranks": found.average.tolist(),
        "friedman_p": plain(found.p),
        "critical_difference": found.critical_difference,
    }
    summary["differing"] = differing(summary)
    summary["groups"] = groups(summary)
    summary["verdict"] = rank_verdict(summary)
    return summary


def check_metric(metric: str) -> bool:
    """Return whether larger is better; raise for a metric that ranks nothing."""
    found = find_metric(metric)
    if found.by_level or found.direction == "none":
        raise HierlearnError(
            f"metric {metric!r} is not a single number of which more or less is better; rank by "
            f"au-prc or terminal-accuracy"
        )
    return found.direction == "up"


def check_different(studies: Sequence[Study]) -> None:
    """Raise for two studies of one dataset: they would count it twice."""
    seen: dict[tuple[Any, ...], Study] = {}
    for study in studies:
        dataset, metadata = study.config["dataset"], study.config.get("metadata", {})
        # A corrupted dataset is still the same dataset.
        source = (metadata.get("noise") or {}).get("source", dataset.get("source"))
        key = (dataset["name"], source, dataset["rows"])
        if key in seen:
            raise HierlearnError(
                f"{seen[key].folder} and {study.folder} are studies of the same dataset "
                f"({dataset['name'] or 'without a name'}, {dataset['rows']:,} rows); name each "
                f"dataset once"
            )
        seen[key] = study


def in_common(studies: Sequence[Study]) -> tuple[list[Candidate], list[str]]:
    """Return the candidates that are complete in every study, and the keys of the others."""
    done = [study.finished for study in studies]
    keys = [{candidate.key for candidate in candidates} for candidates in done]
    shared = [candidate for candidate in done[0] if all(candidate.key in one for one in keys)]
    everything = dict.fromkeys(candidate.key for study in studies for candidate in study.candidates)
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
    return shared, [key for key in everything if key not in [one.key for one in shared]]


def mean_of(study: Study, candidate: Candidate, metric: str) -> float:
    """Return the mean over seeds; raise for a figure that is not there."""
    runs = study.runs_of(candidate)
    if any(metric not in run["test"] for run in runs):
        known = ", ".join(name for name in runs[0]["test"] if not find_metric(name).by_level)
        raise HierlearnError(f"{study.folder} has no {metric}; it has {known}")
    mean = spread(study.values(candidate, metric)).mean
    if math.isnan(mean):
        raise HierlearnError(
            f"{metric} of {candidate.key!r} is not defined in {study.folder}; rank by another "
            f"metric"
        )
    return mean


def is_any_different(summary: Mapping[str, Any]) -> bool:
    """Return whether Friedman's test lets pairs be compared; two losses have no such test."""
    p = summary["friedman_p"]
    return p is None or p < summary["level"]


def differing(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the pairs of candidates that differ significantly, the better one first."""
    ranks = summary["mean_ranks"]
    order = sorted(range(len(ranks)), key=lambda one: ranks[one])
    return [
        [summary["candidates"][a], summary["candidates"][b]]
        for a, b in combinations(order, 2)
        if is_any_different(summary) and ranks[b] - ranks[a] > summary["critical_difference"]
    ]


def groups(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the largest sets of candidates of which no two differ, best first."""
    ranks, apart = summary["mean_ranks"], {frozenset(pair) for pair in summary["differing"]}
    order = sorted(range(len(ranks)), key=lambda one: ranks[one])
    keys = [summary["candidates"][one] for one in order]
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


def rank_verdict(summary: Mapping[str, Any]) -> str:
    """Say in plain English which losses differ, and how much that is worth."""
    label = dict(zip(summary["candidates"], summary["labels"], strict=True))
    count, p = len(summary["datasets"]), summary["friedman_p"]
    best = min(zip(summary["mean_ranks"], summary["labels"], strict=True))
    parts = [
        f"By {summary['metric']} on {count} datasets {best[1]} has the best mean rank "
        f"({best[0]:.2f} of {len(label)})."
    ]
    if p is None:
        parts.append("Friedman's test needs three losses; for two there is only Nemenyi's.")
    elif is_any_different(summary):
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
    if len(summary["differing"]) > FEW_PAIRS:
        order = [one for one in label.values() if one in pairs.get(best[1], [])]
        rest = [one for one in label.values() if one not in (best[1], *order)]
        parts.append(
            f"{len(summary['differing'])} pairs of mean ranks differ by more than {critical}; "
            f"{best[1]} is before {', '.join(order) or 'none'}."
        )
        parts.append(f"Not significantly behind it: {', '.join(rest)}." if rest else "")
    elif pairs:
        text = "; ".join(f"{better} before {', '.join(worse)}" for better, worse in pairs.items())
        parts.append(f"Mean ranks differ by more than {critical}: {text}.")
        named = [[label[key] for key in group] for group in summary["groups"]]
        joined = [" and ".join([", ".join(names[:-1]), names[-1]]) for names in named]
        parts.append(f"Not significantly different: {'; '.join(joined)}." if joined else "")
    elif is_any_different(summary):
        parts.append(f"No two mean ranks differ by more than {critical}.")
    if count < FEW:
        parts.append(
            f"With {count} datasets these tests have little power: what they do not find may well "
            f"be there."
        )
    return " ".join(filter(None, parts))


def written_p(p: float) -> str:
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def as_markdown(summary: Mapping[str, Any]) -> str:
    """Return the table, best first: mean rank, and the figure on each dataset."""
    metric = summary["metric"]
    heads = ["mean rank ↓"] + [
        f"{name}: {metric} {ARROWS[summary['direction']]}" for name in summary["datasets"]
    ]
    lines = markdown_table(["", *heads], rows(summary))
    return "\n".join([*lines, "", summary["verdict"], *notes(summary)]) + "\n"


def rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the cells of the table, best first."""
    order = np.argsort(summary["mean_ranks"], kind="stable").tolist()
    return [
        [
            summary["labels"][one],
            f"{summary['mean_ranks'][one]:.2f}",
            *(find_metric(summary["metric"]).format(values[one]) for values in summary["values"]),
        ]
        for one in order
    ]


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Return what was left out, as a sentence."""
    if not summary["left_out"]:
        return []
    return [f"Left out, not being finished in every study: {', '.join(summary['left_out'])}."]


def publish_ranks(summary: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ranks.json and ranks.md."""
    texts = {"ranks.json": as_json(summary), "ranks.md": as_markdown(summary)}
    return write_texts(folder, texts)
