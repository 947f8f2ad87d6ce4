"""The tables that commands end with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from hierlearn.hierarchy import Hierarchy


PLAIN_LINES = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-", "…": "..."})


def number(value: float) -> str:
    """Write a count, or a median of counts, in full."""
    return f"{value:,.1f}".removesuffix(".0")


def print_plain(console: Console, text: str) -> None:
    """Print text as it is: names of classes and files are no markup."""
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        text = text.translate(PLAIN_LINES)
    console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_levels(console: Console, hierarchy: Hierarchy) -> None:
    """Print a row a level."""
    kind = "tree" if hierarchy.is_tree else "DAG"
    table = Table(title=f"{len(hierarchy):,} classes, {kind}", title_justify="left")
    for column in ("level", "classes", "leaves", "children: median", "most"):
        table.add_column(column, justify="right")
    fan_out = np.diff(hierarchy.structure.children[0])
    for level, columns in enumerate(hierarchy.level_slices, start=1):
        below = fan_out[columns]
        inner = below[below > 0]
        table.add_row(
            str(level),
            f"{len(below):,}",
            f"{len(below) - len(inner):,}",
            number(float(np.median(inner))) if len(inner) else "",
            f"{inner.max():,}" if len(inner) else "",
        )
    console.print(table)
    print_plain(console, f"fingerprint {hierarchy.fingerprint[:16]}")


def print_facts(console: Console, facts: dict[str, Any]) -> None:
    """Print what ``describe`` found."""
    hierarchy, labels, inputs = facts["hierarchy"], facts["labels"], facts["inputs"]
    ends = labels["terminal_per_row"]
    splits = ", ".join(f"{name} {count:,}" for name, count in facts["splits"].items())
    if inputs["kind"] == "text":
        told = f"texts of {inputs['words_per_row']:.1f} words"
    else:
        told = f"{inputs['features']:,} numbers, {inputs['missing_share']:.1%} missing"
    rows = {
        "source": facts["source"],
        "rows": f"{facts['rows']:,}" + (f" ({splits})" if splits else ""),
        "inputs": told,
        "classes": f"{hierarchy['classes']:,} in {hierarchy['levels']} levels "
        f"({hierarchy['kind']}, {hierarchy['leaves']:,} leaves)",
        "terminal labels a row": f"{ends['min']} to {ends['max']}, mean {ends['mean']:.2f}",
        "rows without a label": f"{labels['rows_without_label']:,}",
        "rows ending above a leaf": f"{labels['rows_ending_above_a_leaf']:,}",
    }
    if "classes_without_training_row" in labels:
        rows["classes without a training row"] = f"{labels['classes_without_training_row']:,}"
    table = Table(title=facts["name"], title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, Text(value))
    console.print(table)
    spread = Table(title="rows per class", title_justify="left")
    for column in ("level", "classes", "fewest", "median", "most", "empty"):
        spread.add_column(column, justify="right")
    for level in facts["rows_per_class"]:
        spread.add_row(*(number(value) for value in level.values()))
    console.print(spread)
