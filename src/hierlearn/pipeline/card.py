"""The model card: what a model is, what it was trained on, and its metrics, on one page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hierlearn.errors import plural
from hierlearn.metrics.evaluation import figure_lines
from hierlearn.pipeline.input_columns import level_names
from hierlearn.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.hierarchy import Hierarchy

PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
YAML_CONSTANTS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")


def model_card(hierarchy: Hierarchy, config: Mapping[str, Any]) -> str:
    """Return the card as Markdown, from the configuration."""
    data: Mapping[str, Any] = config.get("data", {})
    recipe: Mapping[str, Any] = config.get("recipe", {})
    lines = [
        "---",
        f"license: {yaml_text(config.get('license') or 'unknown')}",
        "library_name: hierlearn",
        "---",
        "",
        f"# {plain(config.get('name') or 'A hierlearn model')}",
        "",
        f"Assigns rows to {plural(len(hierarchy), 'class', 'classes')} in "
        f"{plural(hierarchy.depth, 'level')} ({'a tree' if hierarchy.is_tree else 'a DAG'}, "
        f"{plural(len(hierarchy.leaves), 'leaf', 'leaves')}).",
        "",
        "```python",
        "from hierlearn import HierarchicalClassifier",
        "",
        'HierarchicalClassifier.load("this folder").predict(rows)',
        "```",
        "",
        "## Trained on",
        "",
        *(f"- {plain(key).replace('_', ' ')}: {show(value)}" for key, value in data.items()),
        "",
        "## How",
        "",
        *(f"- {plain(key).replace('_', ' ')}: {show(value)}" for key, value in recipe.items()),
        f"- link {config['link']}, decoder {config['decoder']['name']}",
        f"- network {config['network']['name']} with {show(config['network']['options'])}",
    ]
    if config.get("history"):
        lines += ["", "## Changed since", ""]
        lines += [f"- {show(change)}" for change in config["history"]]
    for key, when in (("metrics", ""), ("metrics_before", ", measured before the changes")):
        for split, figures in config.get(key, {}).items():
            lines += [
                "",
                f"## On the {plain(split)} rows{when}",
                "",
                "| metric | value |",
                "|---|---|",
            ]
            levels = level_names(config, hierarchy.depth)
            lines += [
                f"| {plain(name)} | {plain(texts[0])} |"
                for name, _, texts in figure_lines([figures], levels)
            ]
    versions = ", ".join(f"{k} {v}" for k, v in config.get("versions", {}).items())
    lines += ["", f"Hierarchy {hierarchy.fingerprint[:16]}. {versions}".rstrip(), ""]
    return "\n".join(lines)


def show(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{plain(key)} {show(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(show, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else plain(value)


def plain(value: object) -> str:
    """Return text from outside in one line, as Markdown that is no HTML."""
    return printable(value).replace("<", "&lt;")


def yaml_text(value: object) -> str:
    """Return text from outside as one YAML value, in quotes unless it is a simple word."""
    text = str(value)
    if PLAIN_WORD.fullmatch(text) and text.lower() not in YAML_CONSTANTS:
        return text
    return printable(json.dumps(text, ensure_ascii=False))  # which is YAML as well
