"""Does the hierarchy help here? The answer in plain words, made from the numbers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.studies.tables import PERCENT, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

FLAT = ("bce", "focal", "leaf-ce", "sample-curriculum")  # losses that know nothing of the hierarchy


MANY = 3  # sentences that still read as a paragraph


def does_it_help(summary: Mapping[str, Any]) -> str:
    """Return what each other entry gains or loses against the first: a paragraph, or a list."""
    sentences = each_loss(summary)
    if len(sentences) > MANY:
        return overall(summary) + "\n\n" + "\n".join(f"- {one}" for one in sentences)
    return " ".join([overall(summary), *sentences])


def each_loss(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence on every entry but the first; nothing where one seed cannot tell."""
    if summary["seeds"] < 2:
        return []
    return [sentence(summary, number) for number in range(1, len(summary["entries"]))]


def overall(summary: Mapping[str, Any]) -> str:
    """Return the verdict in a sentence."""
    entries, labels = summary["entries"], summary["labels"]
    if len(entries) < 2:
        return "Only one loss was trained: there is nothing to compare it with."
    verdicts = {one: verdict(summary, one) for one in range(1, len(entries))}
    gains = [one for one, found in verdicts.items() if found == "better"]
    mixed = [labels[one] for one, found in verdicts.items() if found == "mixed"]
    hierarchical = [one for one in gains if entries[one].partition(":")[0] not in FLAT]
    if summary["seeds"] < 2:
        return "With one seed no difference can be told from noise."
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


def verdict(summary: Mapping[str, Any], number: int) -> str:
    """Return whether an entry is better, worse, mixed or the same as the first."""
    signs = set()
    for metric in summary["metrics"]:
        figure, direction = summary["figures"][metric][number], summary["directions"][metric]
        if direction != "none" and figure["significant"]:
            signs.add((figure["difference"] > 0) == (direction == "up"))
    if signs == {True, False}:
        return "mixed"
    return "same" if not signs else "better" if signs == {True} else "worse"


def sentence(summary: Mapping[str, Any], number: int) -> str:
    """Return one sentence on an entry: what it gains, what it loses, what is noise."""
    gains: list[str] = []
    losses: list[str] = []
    for metric in summary["metrics"]:
        figure, direction = summary["figures"][metric][number], summary["directions"][metric]
        if direction == "none" or not figure["significant"]:
            continue
        change = figure["difference"]
        size = shown(metric, abs(change)) + (" points" if metric in PERCENT else "")
        word = f"{metric} by {size}"
        (gains if (change > 0) == (direction == "up") else losses).append(word)
    label = summary["labels"][number]
    if not gains and not losses:
        return f"{label} does not differ from {summary['labels'][0]} by more than seed noise."
    parts = [f"betters {', '.join(gains)}"] if gains else []
    parts += [f"worsens {', '.join(losses)}"] if losses else []
    return f"{label} {' and '.join(parts)}{levels(summary, number)}."


def levels(summary: Mapping[str, Any], number: int) -> str:
    """Say at which level an entry differs most from the first, where it differs by a point."""
    first = summary["by_level"][summary["entries"][0]]
    own = summary["by_level"][summary["entries"][number]]
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
