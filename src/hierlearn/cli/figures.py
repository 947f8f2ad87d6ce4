"""The table of the metrics of a model: accuracy first, at every level, then the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.terminal import Table, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hierlearn.pipeline import Pipeline
    from hierlearn.terminal import Console

    Figures = Mapping[str, Any]

FIRST = ("leaf-accuracy", "level-accuracy", "terminal-accuracy")  # what a reader asks for
BETTER = {"up": "higher", "down": "lower", "none": ""}


def print_metrics(
    console: Console, figures: Mapping[str, Figures], model: Pipeline, *, given: bool = False
) -> None:
    """Print one row per metric, one column per split; nothing where there is none.

    Args:
        console: where to.
        figures: the metrics of each split.
        model: the model, which knows its levels by name.
        given: whether the metrics were named, and keep their order; otherwise accuracy leads.
    """
    from hierlearn.metrics.registry import METRICS

    if not figures:
        return
    table = Table()
    table.add_column("metric")
    table.add_column("better")
    for name in figures:
        table.add_column(Text(name), justify="right")
    names = list(dict.fromkeys(metric for split in figures.values() for metric in split))
    for name in names if given else in_order(names):
        values = [split.get(name) for split in figures.values()]
        better = BETTER[METRICS[name].direction] if name in METRICS else ""
        for label, row in by_level(name, values, level_names(model)):
            table.add_row(Text(label), better, *map(figure, row))
    console.print(table)


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of metrics, accuracy first."""
    names = list(names)
    return [
        *(name for name in FIRST if name in names),
        *(name for name in names if name not in FIRST),
    ]


def by_level(
    name: str, values: list[Any], levels: list[str]
) -> list[tuple[str, list[float | None]]]:
    """Return the rows of a metric: its name and values, one row per level where it has levels."""
    depth = max((len(value) for value in values if isinstance(value, list)), default=None)
    if depth is None:
        return [(name, values)]
    return [
        (f"{name} {level}", [None if value is None else value[place] for value in values])
        for place, level in enumerate(levels[:depth])
    ]


def level_names(model: Pipeline) -> list[str]:
    """Return the levels from the top as they are shown: numbers, and names where they have any."""
    numbers = range(1, model.hierarchy.depth + 1)
    named = named_levels(model)
    if not named:
        return [str(level) for level in numbers]
    return [f"{level} ({name})" for level, name in zip(numbers, named, strict=True)]


def named_levels(model: Pipeline) -> list[str]:
    """Return the columns of --levels in training, if there was one per level; otherwise none."""
    from hierlearn.cli.sources import split_names

    named = model.config.get("columns", {}).get("levels") or []
    named = split_names(named) if isinstance(named, str) else list(named)
    return named if len(named) == model.hierarchy.depth else []


def level_columns(model: Pipeline) -> list[str]:
    """Return how the column of every level is called in a file of answers."""
    from hierlearn.pipeline.predict import answer_names

    named = named_levels(model)
    if named and not {*named} & {"id", *answer_names(model)}:
        return named
    return [f"level_{level}" for level in range(1, model.hierarchy.depth + 1)]


def figure(value: float | None) -> str:
    """Write a metric; nothing where it is not defined."""
    return "" if value is None else f"{value:.4f}"
