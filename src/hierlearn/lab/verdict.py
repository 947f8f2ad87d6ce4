"""Verdict: does the hierarchy help here? In plain English, from the figures of a summary alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.metrics.measure import find_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.metrics import Metric

PARAGRAPH = 3  # the most sentences that still read as one


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
