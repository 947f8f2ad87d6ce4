"""Model sections: the parts of a model's page that are text and tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import plural
from hierlearn.reports.markup import safe
from hierlearn.reports.plots import severity_bars, severity_legend
from hierlearn.reports.risk import risk_plot, risk_table
from hierlearn.reports.sections import as_text, network_text, pairs_table

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
        parts.append(f"{plural(found.unlabeled, 'row')} without a label left out")
    return " · ".join(safe(part) for part in parts)


def warning(text: str | None) -> str:
    """Return a warning as a box; nothing where there is none."""
    return "" if text is None else f'<p class="warning" role="note">{safe(text)}</p>'


def results(pipeline: Pipeline, found: Outcome) -> str:
    """Return the figures that the page begins with."""
    return (
        f'<div class="hero">{first_figure(found)}{level_table(found)}{facts(pipeline, found)}</div>'
        + severity(found)
    )


def first_figure(found: Outcome) -> str:
    """Return the accuracy of the best leaf, with its interval; else of the best terminal class."""
    figures = found.metrics
    names = ("leaf-accuracy", "terminal-accuracy")
    name = next((one for one in names if figures.get(one) is not None), None)
    if name is None:
        return ""
    value, rows = figures[name], counted(found, name)
    low, high = wilson(value, rows)
    what = {
        ("leaf-accuracy", False): "leaf accuracy",
        ("leaf-accuracy", True): "leaf accuracy: the best leaf is among the row's labels",
    }.get((name, found.several), name.replace("-", " "))
    return (
        f'<div class="big"><b>{first_percent(value)} %</b><span>{what}</span>'
        f"<span>95 % interval {100 * low:.1f} to {100 * high:.1f}</span></div>"
    )


def first_percent(share: float) -> str:
    """Return a fraction in percent; 100 and 0 only where it is all, or nothing."""
    text = f"{100 * share:.1f}"
    if text in ("100.0", "0.0") and 0 < share < 1:
        return f"{min(max(100 * share, 0.01), 99.99):.2f}"
    return text


def counted(found: Outcome, name: str) -> int:
    """Return how many rows count in an accuracy."""
    if name == "leaf-accuracy":
        return int(found.targets[:, found.space.hierarchy.leaves.tolist()].any(dim=1).sum())
    return found.truth.labeled


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a fraction of independent rows (Wilson, 1927)."""
    spread = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    middle, scale = share + Z**2 / (2 * count), 1 + Z**2 / count
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def level_table(found: Outcome) -> str:
    """Return the accuracy of every level with a bar."""
    hierarchy = found.space.hierarchy
    lines = []
    for number, (value, columns) in enumerate(
        zip(found.metrics["level-accuracy"], hierarchy.level_slices, strict=True), start=1
    ):
        if value is None:
            continue
        size, rows = columns.stop - columns.start, found.targets[:, columns].any(dim=1).sum()
        lines.append(
            f'<tr><th scope="row">level {number}</th><td class="size">'
            f"{plural(size, 'class', 'classes')}</td><td>{plural(int(rows), 'row')}</td>"
            f'<td class="bar"><i style="width:{100 * value:.1f}%"></i></td>'
            f'<td class="number">{100 * value:.1f} %</td></tr>'
        )
    return (
        '<table class="levels"><caption>Accuracy by level</caption>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def facts(pipeline: Pipeline, found: Outcome) -> str:
    """Return a few more figures, each with what it is."""
    figures, shown = found.metrics, {}
    leaf, terminal = (figures.get(name) for name in ("leaf-accuracy", "terminal-accuracy"))
    if leaf is not None and terminal is not None and leaf != terminal:
        shown["Accuracy where labels may end at inner classes"] = f"{100 * terminal:.1f} %"
    shown["Hierarchical F1"] = f"{figures['hier-f1']:.3f}"
    if figures.get("au-prc") is not None:
        shown["Area under precision and recall"] = f"{figures['au-prc']:.3f}"
    if figures.get("exact-match") is not None:
        shown["Rows with exactly the right set"] = f"{100 * figures['exact-match']:.1f} %"
    wrong = found.decisions.heights[0][found.decisions.heights[0] > 0]
    if len(wrong) and not found.several:
        highest = found.space.hierarchy.root_height
        shown["Mean height of a mistake"] = f"{wrong.mean():.2f} of {highest}"
    if figures.get("answer-accuracy") is not None and pipeline.decoder != "leaf":
        shown[f"Right answers of the decoder {pipeline.decoder}"] = (
            f"{100 * figures['answer-accuracy']:.1f} %, mean level {figures['answer-level']:.2f}"
        )
    items = "".join(
        f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in shown.items()
    )
    return f'<dl class="facts">{items}</dl>'


def severity(found: Outcome) -> str:
    """Return how bad the mistakes are, as one bar; nothing where rows have several labels."""
    if found.several:
        return ""
    highest = found.space.hierarchy.root_height
    counts = np.bincount(found.decisions.heights[0], minlength=highest + 1)
    bar = {
        "candidates": ["model"],
        "labels": ["rows, in %"],
        "severity": {"model": (counts / counts.sum()).tolist()},
    }
    note = ""
    if found.space.has_inner_terminals:
        note = (
            '<p class="legend">Here a prediction that lies above the label is right as well; the '
            "accuracies above ask for the label itself.</p>"
        )
    return severity_bars(bar) + severity_legend(highest) + note


def classes_note(found: Outcome) -> str:
    """Return what the figures of the classes are about."""
    absent = int((found.targets.sum(dim=0) == 0).sum())
    note = f"The prediction is {found.answered_by}."
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
