"""The tables that commands end with."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import plural, quoted
from hierlearn.terminal import Console, ProgressLines, Table, Text, print_plain, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hierlearn.hierarchy import Hierarchy


def number(value: float) -> str:
    """Write a count, or a median of counts, in full."""
    return f"{value:,.1f}".removesuffix(".0")


def print_levels(console: Console, hierarchy: Hierarchy) -> None:
    """Print one row per level."""
    kind = "tree" if hierarchy.is_tree else "DAG"
    classes = plural(len(hierarchy), "class", "classes")
    table = Table(title=f"{classes}, {kind}")
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


def print_description(console: Console, description: dict[str, Any]) -> None:
    """Print what ``describe`` found."""
    from hierlearn.datasets.describe import NearDuplicate, listed

    hierarchy, labels, inputs = (
        description["hierarchy"],
        description["labels"],
        description["inputs"],
    )
    ends = labels["terminal_per_row"]
    splits = ", ".join(f"{name} {count:,}" for name, count in description["splits"].items())
    if inputs["kind"] == "texts":
        described = f"texts of {inputs['words_per_row']:.1f} words"
    elif inputs["kind"] == "images":
        described = "images"
    elif inputs["kind"] == "sparse":
        described = f"{inputs['features']:,} sparse numbers, {inputs['density']:.2%} not zero"
    elif inputs["kind"] == "table":
        described = f"{inputs['columns']}; {inputs['missing_fraction']:.1%} missing"
    else:
        numbers = plural(inputs["features"], "number")
        described = f"{numbers}, {inputs['missing_fraction']:.1%} missing"
    rows = {
        **{
            name: description[name]
            for name in ("source", "license", "attribution")
            if description.get(name)
        },
        "rows": f"{description['rows']:,}" + (f" ({splits})" if splits else ""),
        "inputs": described,
        "classes": f"{hierarchy['classes']:,} in {plural(hierarchy['levels'], 'level')} "
        f"({hierarchy['kind']}, {plural(hierarchy['leaves'], 'leaf', 'leaves')})",
        "terminal labels per row": f"{ends['min']} to {ends['max']}, mean {ends['mean']:.2f}",
        "rows without a label": f"{labels['rows_without_label']:,}",
        "rows ending above a leaf": f"{labels['rows_ending_above_a_leaf']:,}",
    }
    if labels["classes_with_one_row"]:
        rows["classes with one row"] = counted(labels["classes_with_one_row"])
    if labels["near_duplicates"]:
        found = [NearDuplicate(**one) for one in labels["near_duplicates"]]
        rows["labels that may be misspelled"] = f"{len(found):,}: {listed(found, most=10)}"
    if "classes_without_training_row" in labels:
        rows["classes without a training row"] = f"{labels['classes_without_training_row']:,}"
    table = Table(title=description["name"], show_header=False)
    for name, value in rows.items():
        table.add_row(name, Text(value))
    console.print(table)
    spread = Table(title="rows per class")
    for column in ("level", "classes", "fewest", "median", "most", "empty"):
        spread.add_column(column, justify="right")
    for level in description["rows_per_class"]:
        spread.add_row(*(number(value) for value in level.values()))
    console.print(spread)


def counted(names: list[str], most: int = 3) -> str:
    """Write how many names there are, and the first of them."""
    return f"{len(names):,}: {quoted(names, most)}"


def writes() -> bool:
    """Whether this process prints and writes: the first of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show progress; yield a callback for the number of rows done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = ProgressLines(what, total)
        yield lambda done: lines.update(completed=done)
        return
    with progress(console, "count") as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def save_text(path: Path, text: str) -> None:
    """Write a file that appears when it is complete."""
    from hierlearn.files.writing import atomic_write

    with atomic_write(path) as file:
        file.write(text + "\n")


def write_json(path: Path, content: Any) -> None:
    """Write a file of JSON that people may read."""
    save_text(path, json.dumps(content, indent=2, ensure_ascii=False))
