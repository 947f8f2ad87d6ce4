"""Evaluation: figures by name, and how they are written wherever they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.metrics.registry import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Figures = Mapping[str, Any]

BETTER = {"up": "higher", "down": "lower", "none": ""}
STOPPING = ("answered", "complete")  # nothing to say where all rows are


class Evaluation(dict[str, Any]):
    """Figures by name, as ``measure`` returns them: a dict that prints as a table.

    Args:
        figures: by name of METRICS: a number, a list with one per level, or None.
    """

    def __str__(self) -> str:
        found = [(label, texts[0], better) for label, better, texts in figure_lines([self])]
        lines = [("metric", "value", "better"), *found]
        name, value = (max(len(line[column]) for line in lines) for column in (0, 1))
        return "\n".join(f"{a:<{name}}  {b:>{value}}  {c}".rstrip() for a, b, c in lines)

    __repr__ = __str__


def shown(name: str, value: float | None) -> str:
    """Return a figure as it is written everywhere: "67.44 %", "1.880"; "n/a" without one."""
    metric = METRICS.get(name)
    if metric is None or value is None or value != value:
        return "n/a" if value is None or value != value else f"{value:.4g}"
    return f"{metric.format(value)}{' %' if metric.unit == 'percent' else ''}"


def figure_lines(
    columns: Sequence[Figures], levels: Sequence[str] = (), *, every: bool = False
) -> list[tuple[str, str, list[str]]]:
    """Return the lines of a table: name, better direction and one figure per column.

    Args:
        columns: figures by name.
        levels: what to call each level; by default by number.
        every: also write what says nothing, since every row is answered and completely so.
    """
    found = []
    for name in dict.fromkeys(name for one in columns for name in one):
        values = [one.get(name) for one in columns]
        if not every and name in STOPPING and all(value == 1 for value in values):
            continue
        better = BETTER[METRICS[name].direction] if name in METRICS else ""
        depth = max((len(value) for value in values if isinstance(value, list)), default=0)
        if not depth:
            found.append((name, better, [shown(name, value) for value in values]))
        for place in range(depth):
            level = levels[place] if levels else str(place + 1)
            here = [None if value is None else value[place] for value in values]
            text = [shown(name, value) for value in here]
            found.append((f"{name}, level {level}", better, text))
    return found
