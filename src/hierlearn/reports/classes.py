"""Classes: the figures of every class of a model, and its most frequent confusions.

    precision = right / decided,    recall = right / rows,    F1 = 2 right / (decided + rows)

A row counts for a class if its label is the class or lies below it, and so does a decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.reports.markup import safe, table

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.reports.outcome import Outcome

SHOWN = 12  # pairs before the fold
MOST = 60  # pairs with those in the fold


def class_counts(outcome: Outcome) -> dict[str, list[int]]:
    """Return rows, decisions and right decisions of every class, (C,) each, and its level."""
    answers, targets = outcome.answers.known(outcome.answers.sets), outcome.targets
    return {
        "level": outcome.space.hierarchy.levels.tolist(),
        "rows": targets.sum(dim=0).tolist(),
        "decided": answers.sum(dim=0).tolist(),
        "right": (answers & targets).sum(dim=0).tolist(),
    }


def confusions(outcome: Outcome, most: int = MOST) -> list[dict[str, int]]:
    """Return the most frequent pairs of a true and a decided class.

    true, decided   class numbers
    rows            how often the pair occurs
    of              rows of the true class that end there
    lca             the lowest common ancestor, -1 for the root
    height          of that ancestor: how far the decision is off
    """
    hierarchy, decisions = outcome.space.hierarchy, outcome.decisions
    truth, decided = decisions.nearest[0], decisions.decided[0]
    wrong = decisions.mistakes[0]
    pairs, often = np.unique(truth[wrong] * len(hierarchy) + decided[wrong], return_counts=True)
    order = np.argsort(-often, kind="stable")[:most]
    left, right = pairs[order] // len(hierarchy), pairs[order] % len(hierarchy)
    ends = np.bincount(truth[truth >= 0], minlength=len(hierarchy))
    columns = {
        "true": left,
        "decided": right,
        "rows": often[order],
        "of": ends[left],
        "lca": hierarchy.lcas(left, right),
        "height": hierarchy.lca_heights(left, right),
    }
    return [
        dict(zip(columns, map(int, one), strict=True))
        for one in zip(*columns.values(), strict=True)
    ]


def confusion_tables(found: list[dict[str, Any]], hierarchy: Hierarchy) -> str:
    """Return the pairs as a table, the rarer ones folded."""
    heads = ["true", "predicted", "rows", "of the true class", "meet at", "height"]
    rows = [
        [
            class_cell(hierarchy, one["true"]),
            class_cell(hierarchy, one["decided"]),
            f'<td class="number">{one["rows"]:,}</td>',
            f'<td class="number">{100 * one["rows"] / one["of"]:.0f} %</td>',
            class_cell(hierarchy, one["lca"]),
            f'<td class="number">{one["height"]} of {hierarchy.root_height}</td>',
        ]
        for one in found
    ]
    shown = table(heads, rows[:SHOWN], kind="confusions")
    if len(rows) <= SHOWN:
        return shown
    rest = table(heads, rows[SHOWN:], kind="confusions")
    return shown + f"<details><summary>The next {len(rows) - SHOWN}</summary>{rest}</details>"


def class_cell(hierarchy: Hierarchy, number: int) -> str:
    """Return a class with its title; -1 is the root."""
    if number < 0:
        return '<span class="title">the root: nothing in common</span>'
    title = hierarchy.title(number)
    shown = "" if title is None else f' <span class="title">{safe(title)}</span>'
    name = safe(hierarchy.names[number])
    if hierarchy.named_by == "path":  # a long path breaks between classes, not inside a name
        name = f"{safe(hierarchy.sep)}<wbr>".join(
            map(safe, hierarchy.names[number].split(hierarchy.sep))
        )
    return f"{name}{shown}"
