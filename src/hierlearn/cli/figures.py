"""The table of the figures of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.terminal import Table, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.pipeline import Pipeline
    from hierlearn.terminal import Console

    Figures = Mapping[str, Any]


def print_metrics(
    console: Console, figures: Mapping[str, Figures], model: Pipeline, *, given: bool = False
) -> None:
    """Print one row per metric, one column per split; nothing where there is none.

    Args:
        console: where to.
        figures: the metrics of each split.
        model: the model, which knows its levels by name.
        given: whether the metrics were named, and each is printed, whatever it says.
    """
    from hierlearn.metrics.evaluation import figure_lines
    from hierlearn.pipeline.input_columns import level_names

    if not figures:
        return
    table = Table()
    table.add_column("metric")
    table.add_column("better")
    for name in figures:
        table.add_column(Text(name), justify="right")
    levels = level_names(model.config, model.hierarchy.depth)
    for label, better, texts in figure_lines([*figures.values()], levels, every=given):
        table.add_row(Text(label), better, *texts)
    console.print(table)
