"""Evaluation: figures by name that print as a table, accuracy first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.metrics.registry import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST = ("leaf-accuracy", "level-accuracy", "terminal-accuracy")
BETTER = {"up": "higher", "down": "lower", "none": ""}


class Evaluation(dict[str, Any]):
    """Figures by name, as ``measure`` returns them: a dict that prints as a table.

    Leaf accuracy and accuracy per level come first; the table says which direction is better.

    Args:
        figures: by name of METRICS: a number, a list with one per level, or None.
    """

    def __init__(self, figures: Mapping[str, Any]) -> None:
        order = [*(name for name in FIRST if name in figures), *figures]
        super().__init__({name: figures[name] for name in dict.fromkeys(order)})

    def lines(self) -> list[tuple[str, str, str]]:
        """Return name, value and better direction of every line of the table."""
        found = []
        for name, value in self.items():
            metric = METRICS[name]
            unit = " %" if metric.unit == "percent" else ""
            parts = {name: value}
            if isinstance(value, list):
                parts = {f"{name}, level {k}": one for k, one in enumerate(value, start=1)}
            for part, one in parts.items():
                text = "n/a" if one is None else f"{metric.format(one)}{unit}"
                found.append((part, text, BETTER[metric.direction]))
        return found

    def __str__(self) -> str:
        lines = [("metric", "value", "better"), *self.lines()]
        name, value = (max(len(line[column]) for line in lines) for column in (0, 1))
        return "\n".join(f"{a:<{name}}  {b:>{value}}  {c}".rstrip() for a, b, c in lines)

    __repr__ = __str__
