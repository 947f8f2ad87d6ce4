"""Noise verdict: what suffers least from noise? In plain English, from the figures alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.lab.noise_figures import (
    TITLES,
    better,
    digits,
    main_metrics,
    metric_of,
    percent,
    repetitions,
    shown,
)
from hierlearn.lab.tables import signed
from hierlearn.lab.verdict import points

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        sentences = [really_corrupted(summary, kind)]
        sentences += [harm(summary, kind, metric) for metric in metrics]
        sentences += [at_highest(summary, kind, metric) for metric in metrics]
        parts.append(f"{TITLES[kind]}. " + " ".join(filter(None, sentences)))
    return "\n\n".join(parts)


def really_corrupted(summary: Mapping[str, Any], kind: str) -> str:
    """Say how much was corrupted, where that is less than was asked for."""
    fractions = [sum(draws) / len(draws) for draws in summary["corrupted"][kind]]
    if all(abs(a - b) < 0.02 for a, b in zip(fractions, summary["rates"], strict=True)):
        return ""
    done = ", ".join(f"{100 * fraction:.1f}" for fraction in fractions)
    asked = ", ".join(f"{100 * rate:g}" for rate in summary["rates"])
    return f"Really corrupted: {done} % where {asked} % were asked for; more was not possible."


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


def capital(text: str) -> str:
    """Return a text with a capital letter first, the rest as it is."""
    return text[0].upper() + text[1:]


def size(name: str, figure: Mapping[str, Any]) -> str:
    """Return a change as text, with its sign."""
    metric = metric_of(name)
    return signed(metric, figure["mean"], digits(name)) + points(metric)
