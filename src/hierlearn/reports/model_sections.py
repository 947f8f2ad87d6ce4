"""Model sections: the parts of a model's page that are text and tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import plural
from hierlearn.metrics.answers import wrong_levels
from hierlearn.metrics.evaluation import STOPPING, shown
from hierlearn.pipeline.input_columns import level_names
from hierlearn.reports.markup import as_text, network_text, pairs_table, safe
from hierlearn.reports.plots import severity_bars, severity_legend
from hierlearn.reports.risk import risk_plot, risk_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.pipeline import Pipeline
    from hierlearn.reports.outcome import Outcome
    from hierlearn.reports.risk import RiskCurve

Z = 1.959964  # of a 95 % interval


def headline(pipeline: Pipeline, found: Outcome, split: str) -> str:
    """Return the line below the title: which rows, which classes, what the model is."""
    hierarchy, data = found.space.hierarchy, found.dataset.name
    which = "" if split == "all" else f", split {split}"
    parts = [
        plural(len(found), "row") + (f" of {data}{which}" if data else which),
        f"{plural(len(hierarchy), 'class', 'classes')} in {plural(hierarchy.depth, 'level')}",
    ]
    recipe = pipeline.config.get("recipe", {}).get("name")
    if recipe:
        parts.append(f"recipe {recipe}")
    if found.unlabeled:
        parts.append(f"{plural(found.unlabeled, 'row')} without a label")
    return " · ".join(safe(part) for part in parts)


def warning(text: str | None) -> str:
    """Return a warning as a box; nothing where there is none."""
    return "" if text is None else f'<p class="warning" role="note">{safe(text)}</p>'


def results(pipeline: Pipeline, found: Outcome) -> str:
    """Return the figures that the page begins with."""
    return (
        f'<div class="hero">{first_figure(found)}{level_table(pipeline, found)}{facts(found)}</div>'
        + severity(found)
    )


def first_figure(found: Outcome) -> str:
    """Return the fraction of exact answers, with its interval."""
    value = found.metrics["exact"]
    if value is None:
        return ""
    low, high = wilson(value, int(found.answers.counted.sum()))
    what = "exact answers: the right set" if found.several else "exact answers"
    return (
        f'<div class="big"><b>{shown("exact", value)}</b><span>{what}</span>'
        f"<span>95 % interval {100 * low:.1f} to {100 * high:.1f}</span></div>"
    )


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a fraction of independent rows (Wilson, 1927)."""
    spread = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    middle, scale = share + Z**2 / (2 * count), 1 + Z**2 / count
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def level_table(pipeline: Pipeline, found: Outcome) -> str:
    """Return the accuracy of every level with a bar."""
    hierarchy = found.space.hierarchy
    names = level_names(pipeline.config, hierarchy.depth)
    counts = found.answers.labeled_levels.sum(dim=0).tolist()
    lines = []
    for name, value, columns, rows in zip(
        names, found.metrics["accuracy"], hierarchy.level_slices, counts, strict=True
    ):
        if value is None:
            continue
        size = columns.stop - columns.start
        lines.append(
            f'<tr><th scope="row">level {safe(name)}</th><td class="size">'
            f"{plural(size, 'class', 'classes')}</td><td>{plural(rows, 'row')}</td>"
            f'<td class="bar"><i style="width:{100 * value:.1f}%"></i></td>'
            f'<td class="number">{shown("accuracy", value)}</td></tr>'
        )
    return (
        '<table class="levels"><caption>Accuracy by level</caption>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


FACTS = {  # the figures beside exact answers and accuracy
    "severity": "Levels wrong per mistake",
    "f1": "Hierarchical F1",
    "calibration": "Calibration error of the answers",
    "answered": "Rows with an answer",
    "complete": "Rows with a complete answer",
    "au-prc": "Area under precision and recall",
}


def facts(found: Outcome) -> str:
    """Return the other figures, each with what it is."""
    items = "".join(
        f"<div><dt>{safe(text)}</dt><dd>{shown(name, found.metrics[name])}</dd></div>"
        for name, text in FACTS.items()
        if found.metrics[name] is not None
        and not (name in STOPPING and found.metrics["complete"] == 1)
    )
    return f'<dl class="facts">{items}</dl>'


def severity(found: Outcome) -> str:
    """Return how bad the mistakes are, as one bar."""
    depth = found.space.hierarchy.depth
    levels = wrong_levels(found.answers)[found.answers.counted].numpy()
    counts = np.bincount(levels, minlength=depth + 1)
    bar = {
        "candidates": ["model"],
        "labels": ["rows, in %"],
        "severity": {"model": (counts / max(counts.sum(), 1)).tolist()},
    }
    return severity_bars(bar) + severity_legend(depth)


def classes_note(found: Outcome) -> str:
    """Return what the figures of the classes are about."""
    absent = int((found.targets.sum(dim=0) == 0).sum())
    note = f"The prediction is what the decoder {found.answered_by} answers."
    if absent:
        has = "class has" if absent == 1 else "classes have"
        note += f" {absent:,} {has} no row here, and so no recall."
    return safe(note)


def level_options(found: Outcome) -> str:
    """Return the choices of a level for a select element."""
    depth = found.space.hierarchy.depth
    return "".join(f'<option value="{one}">level {one}</option>' for one in range(1, depth + 1))


def risk(leave: RiskCurve, stop: RiskCurve) -> str:
    """Return the curves beside the table."""
    return (
        f'<div class="beside"><figure>{risk_plot(leave, stop)}</figure>'
        f"{risk_table(leave, stop)}</div>"
    )


def settings(pipeline: Pipeline) -> str:
    """Return what the model is, and on what and how it was trained."""
    config: Mapping[str, Any] = pipeline.config
    recipe, data = config.get("recipe", {}), config.get("data", {})
    spec = pipeline.network_spec
    loss = ", ".join(filter(None, [recipe.get("loss"), as_text(recipe.get("loss_options") or {})]))
    pairs: dict[str, object] = {
        "recipe": recipe.get("name"),
        "chosen because": recipe.get("because"),
        "loss": loss,
        "network": None
        if spec is None
        else network_text({"name": spec.name, "options": spec.to_dict()["options"]}),
        "decoder": pipeline.decoder,
        "trained on": data.get("name"),
        "source": data.get("source"),
        "training rows": numbers(data.get("training_rows")),
        "validation rows": numbers(data.get("validation_rows")),
        "changed since": as_text(config["history"]) if config.get("history") else None,
        "fingerprint of the hierarchy": pipeline.hierarchy.fingerprint[:16],
        "versions": as_text(config.get("versions", {})),
    }
    return pairs_table(pairs)


def numbers(value: Any) -> str | None:
    """Return a count in full; None where it is unknown."""
    return f"{value:,}" if isinstance(value, int) else None
