"""Drawing a hierarchy: as a text tree for terminals, and as an SVG picture for pages.

Both fold what lies deeper than ``depth`` and beyond ``breadth`` children, and say how much they
folded. A class of a DAG is drawn below its first parent; the SVG adds its other edges dashed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.files import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import ArrayLike

    from hierlearn.hierarchy.hierarchy import Hierarchy

NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
ROW, COLUMN, MARGIN, LETTER = 20, 48, 16, 6.8  # pixels; LETTER is an average glyph at 12 px


@dataclass
class Node:
    """One line of a drawing: a class, the root, or a note of what was folded."""

    label: str
    note: str
    number: int = -1  # the class, -1 for the root and for notes
    level: int = 0
    children: list[Node] = field(default_factory=list)
    row: float = 0.0  # set when laid out


def outline(
    hierarchy: Hierarchy, depth: int | None, breadth: int | None, counts: ArrayLike | None
) -> Node:
    """Return the nodes to draw, folded."""
    for name, value in (("depth", depth), ("breadth", breadth)):
        if value is not None and value < 1:
            raise HierlearnError(f"{name} must be at least 1, not {value}")
    structure = hierarchy.structure
    offsets, above = structure.closure
    rows = np.repeat(np.arange(len(hierarchy)), np.diff(offsets))
    below = np.bincount(above, minlength=len(hierarchy)) - 1  # a closure holds the class itself
    numbers = below if counts is None else np.asarray(counts)
    if numbers.shape != (len(hierarchy),):
        raise HierlearnError(f"counts {numbers.shape} must be ({len(hierarchy)},)")
    firsts = structure.first_parents
    order = np.argsort(firsts, kind="stable")
    bounds = np.searchsorted(firsts[order], np.arange(-1, len(hierarchy) + 1))

    def grow(number: int, level: int) -> Node:
        kind = "tree" if hierarchy.is_tree else "DAG"
        if number < 0:
            note = f"{len(hierarchy):,} classes, {hierarchy.depth} levels, {kind}"
            node = Node(hierarchy.root, note)
        else:
            shown = numbers[number]
            note = "" if counts is None and not shown else f"{shown:,}"
            node = Node(hierarchy.bare_names[number], note, number, level)
        children = order[bounds[number + 1] : bounds[number + 2]].tolist()
        if not children:
            return node
        if depth is not None and level >= depth:
            node.note = f"{node.note} …".strip()
            return node
        kept = children if breadth is None else children[:breadth]
        node.children = [grow(child, level + 1) for child in kept]
        if len(kept) < len(children):
            rest = children[len(kept) :]
            # In a DAG two children share descendants, which count once.
            inside = len(np.unique(rows[np.isin(above, rest)]))
            more = f"{len(rest):,} more"
            node.children.append(
                Node("…", more if inside == len(rest) else f"{more} ({inside:,} classes)")
            )
        return node

    return grow(-1, 0)


def as_text(
    hierarchy: Hierarchy, *, depth: int | None, breadth: int | None, counts: ArrayLike | None
) -> str:
    """Draw with the line characters of a terminal."""
    lines: list[str] = []

    def write(node: Node, first: str, rest: str) -> None:
        lines.append(f"{first}{node.label}{'  ' + node.note if node.note else ''}")
        for number, child in enumerate(node.children):
            last = number == len(node.children) - 1
            write(child, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))

    write(outline(hierarchy, depth, breadth, counts), "", "")
    return "\n".join(lines)


def as_svg(
    hierarchy: Hierarchy,
    path: Path | str | None,
    *,
    depth: int | None,
    breadth: int | None,
    counts: ArrayLike | None,
) -> str:
    """Draw from left to right, a column a level, readable on a light and on a dark page."""
    root = outline(hierarchy, depth, breadth, counts)
    columns: list[float] = []  # the widest label of each column
    rows = 0

    def lay_out(node: Node, column: int) -> None:
        nonlocal rows
        if column == len(columns):
            columns.append(0.0)
        width = len(node.label) + (len(node.note) + 1 if node.note else 0)
        columns[column] = max(columns[column], width * LETTER)
        for child in node.children:
            lay_out(child, column + 1)
        if node.children:
            node.row = (node.children[0].row + node.children[-1].row) / 2
        else:
            node.row, rows = float(rows), rows + 1

    lay_out(root, 0)
    x = [MARGIN + sum(width + COLUMN for width in columns[:i]) for i in range(len(columns))]
    drawn: dict[int, tuple[float, float]] = {}
    lines: list[str] = []
    texts: list[str] = []

    def paint(node: Node, column: int) -> None:
        y = MARGIN + ROW * (node.row + 0.5)
        note = f' <tspan class="n">{xml_text(node.note)}</tspan>' if node.note else ""
        texts.append(
            f'<circle cx="{x[column]:.1f}" cy="{y:.1f}" r="3.5"/>'
            f'<text x="{x[column] + 8:.1f}" y="{y + 4:.1f}">{xml_text(node.label)}{note}</text>'
        )
        if node.number >= 0:
            drawn[node.number] = (x[column], y)
        width = (len(node.label) + (len(node.note) + 1 if node.note else 0)) * LETTER
        for child in node.children:
            begin = x[column] + 14 + width
            lines.append(curve(begin, y, x[column + 1] - 4, MARGIN + ROW * (child.row + 0.5)))
            paint(child, column + 1)

    paint(root, 0)
    for number, (left, y) in drawn.items():
        others = (parent for parent in hierarchy.parents(number)[1:] if parent in drawn)
        lines.extend(curve(*drawn[parent], left - 4, y, dashed=True) for parent in others)
    width = x[-1] + columns[-1] + 2 * MARGIN
    height = ROW * rows + 2 * MARGIN
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="hierarchy of {len(hierarchy)} classes">'
        "<style>text{font:12px system-ui,sans-serif;fill:#1f2933}.n{fill:#66788a}"
        "circle{fill:#2f6f9f}path{fill:none;stroke:#a9b8c6;stroke-width:1.2}"
        ".d{stroke-dasharray:4 3;stroke:#c98b4b}"
        "@media(prefers-color-scheme:dark){text{fill:#e4e9ee}.n{fill:#9aa9b7}"
        "path{stroke:#52616f}}</style>"
        f"{''.join(lines)}{''.join(texts)}</svg>"
    )
    if path is not None:
        with atomic_write(path) as file:
            file.write(svg + "\n")
    return svg


def xml_text(text: str) -> str:
    """Escape text for XML; characters that XML cannot hold become the replacement sign."""
    return escape(NOT_XML.sub("\ufffd", text))


def curve(x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False) -> str:
    """Return a smooth line between two points."""
    middle = (x1 + x2) / 2
    kind = ' class="d"' if dashed else ""
    return (
        f'<path{kind} d="M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} '
        f'{middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"/>'
    )
