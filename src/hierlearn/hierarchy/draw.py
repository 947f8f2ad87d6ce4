"""Drawing a hierarchy: as a text tree for terminals, and as an SVG picture for pages.

Both fold what lies deeper than ``depth`` and beyond ``breadth`` children, and show how much they
folded. A title stands behind the name of its class. A class of a DAG is drawn below its first
parent; the SVG adds its other edges dashed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import HierlearnError, plural, printable
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy.names import WIDEST, shorten

if TYPE_CHECKING:
    from pathlib import Path

    from hierlearn.hierarchy.hierarchy import Hierarchy

# What no page can hold, and what would reverse the text that follows a name.
NOT_XML = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)
NARROW = 32  # characters of a title in a picture, where levels stand side by side
ROW, COLUMN, MARGIN, LETTER = 20, 48, 16, 6.8  # pixels; LETTER is an average glyph at 12 px


@dataclass
class Line:
    """One line of a drawing: the root, a class, or a note of what was folded."""

    label: str
    note: str
    level: int
    number: int = -1  # the class, -1 for the root and for notes
    parent: int = -1  # the line that this one hangs under
    is_last: bool = True  # among its siblings
    title: str = ""  # of the class, shortened
    row: float = 0.0  # set when a picture is laid out

    @property
    def width(self) -> float:
        """The pixels that the text takes."""
        parts = [part for part in (self.label, self.title, self.note) if part]
        return LETTER * (sum(map(len, parts)) + len(parts) - 1)


def outline(hierarchy: Hierarchy, depth: int | None, breadth: int | None) -> list[Line]:
    """Return the lines to draw, folded, each class after its parent."""
    for name, value in (("depth", depth), ("breadth", breadth)):
        if value is not None and value < 1:
            raise HierlearnError(f"{name} must be at least 1, not {value}")
    family = Family(hierarchy)
    numbers = family.descendants
    kind = "tree" if hierarchy.is_tree else "DAG"
    size = f"{plural(len(hierarchy), 'class', 'classes')}, {plural(hierarchy.depth, 'level')}"
    root = Line(hierarchy.root, f"{size}, {kind}", 0)
    lines: list[Line] = []
    waiting = [root]
    while waiting:  # a stack, for hierarchies deeper than Python's own
        line = waiting.pop()
        place = len(lines)
        lines.append(line)
        if line.number < 0 and line is not root:
            continue
        children = family.children(line.number)
        if children and depth is not None and line.level >= depth:
            line.note = f"{line.note} …".strip()
            continue
        shown = children if breadth is None else children[:breadth]
        below = []
        for child in shown:
            note = f"{numbers[child]:,}" if numbers[child] else ""
            made = Line(hierarchy.bare_names[child], note, line.level + 1, child, place)
            made.title = shorten(hierarchy.titles[child] or "", WIDEST)
            below.append(made)
        if len(shown) < len(children):
            note = family.folded_note(children[len(shown) :])
            below.append(Line("…", note, line.level + 1, parent=place))
        for child_line in below[:-1]:
            child_line.is_last = False
        waiting.extend(reversed(below))
    return lines


class Family:
    """Who is drawn below whom: a class of a DAG below its first parent.

    Attributes:
        descendants: (C,) the number of descendants of each class.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.is_tree = hierarchy.is_tree
        offsets, self.ancestors = hierarchy.structure.closure
        self.classes = np.repeat(np.arange(len(hierarchy)), np.diff(offsets))
        # A closure holds the class itself.
        self.descendants = np.bincount(self.ancestors, minlength=len(hierarchy)) - 1
        firsts = hierarchy.structure.first_parents
        self.order = np.argsort(firsts, kind="stable")
        self.bounds = np.searchsorted(firsts[self.order], np.arange(-1, len(hierarchy) + 1))

    def children(self, number: int) -> list[int]:
        """Return the classes drawn below a class, or below the root, whose number is -1."""
        found: list[int] = self.order[self.bounds[number + 1] : self.bounds[number + 2]].tolist()
        return found

    def folded_note(self, classes: list[int]) -> str:
        """Return how many siblings are not shown, and how many classes in all."""
        if self.is_tree:
            total = int(self.descendants[classes].sum()) + len(classes)
        else:  # two classes of a DAG share descendants, which count once
            total = len(np.unique(self.classes[np.isin(self.ancestors, classes)]))
        more = f"{len(classes):,} more"
        return more if total == len(classes) else f"{more} ({total:,} classes)"


def as_text(hierarchy: Hierarchy, depth: int | None, breadth: int | None) -> str:
    """Draw with the line characters of a terminal."""
    lines = outline(hierarchy, depth, breadth)
    drawn: list[str] = []
    rails: list[str] = []  # what stands before the children of each line
    for line in lines:
        before = rails[line.parent] if line.level else ""
        branch = "" if not line.level else "└── " if line.is_last else "├── "
        rail = "" if not line.level else "    " if line.is_last else "│   "
        rails.append(before + rail)
        parts = (printable(part) for part in (line.label, line.title, line.note) if part)
        shown = "  ".join(parts)
        drawn.append(f"{before}{branch}{shown}")
    return "\n".join(drawn)


def as_svg(
    hierarchy: Hierarchy, path: Path | str | None, depth: int | None, breadth: int | None
) -> str:
    """Draw from left to right, one column per level, readable on a light and on a dark page."""
    lines = outline(hierarchy, depth, breadth)
    for line in lines:
        line.title = shorten(line.title, NARROW)
    rows = lay_out(lines)
    columns = [0.0] * (max(line.level for line in lines) + 1)  # the widest text of each
    for line in lines:
        columns[line.level] = max(columns[line.level], line.width)
    x = [MARGIN + sum(width + COLUMN for width in columns[:i]) for i in range(len(columns))]
    places: dict[int, tuple[float, float]] = {}  # of the classes drawn
    edges: list[str] = []
    texts: list[str] = []
    for line in lines:
        left, y = x[line.level], MARGIN + ROW * (line.row + 0.5)
        title = f' <tspan class="t">{xml_text(line.title)}</tspan>' if line.title else ""
        note = f' <tspan class="n">{xml_text(line.note)}</tspan>' if line.note else ""
        texts.append(
            f'<circle cx="{left:.1f}" cy="{y:.1f}" r="3.5"/>'
            f'<text x="{left + 8:.1f}" y="{y + 4:.1f}">{xml_text(line.label)}{title}{note}</text>'
        )
        if line.number >= 0:
            places[line.number] = (left, y)
        if line.level:
            above = lines[line.parent]
            begin = x[above.level] + 14 + above.width
            edges.append(curve(begin, MARGIN + ROW * (above.row + 0.5), left - 4, y))
    for number, (left, y) in places.items():
        others = (parent for parent in hierarchy.parents(number)[1:] if parent in places)
        edges.extend(curve(*places[parent], left - 4, y, dashed=True) for parent in others)
    width = x[-1] + columns[-1] + 2 * MARGIN
    height = ROW * rows + 2 * MARGIN
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="hierarchy of {len(hierarchy)} classes">'
        "<style>text{font:12px system-ui,sans-serif;fill:#1f2933}.n{fill:#66788a}.t{fill:#3e4c59}"
        "circle{fill:#2f6f9f}path{fill:none;stroke:#a9b8c6;stroke-width:1.2}"
        ".d{stroke-dasharray:4 3;stroke:#c98b4b}"
        "@media(prefers-color-scheme:dark){text{fill:#e4e9ee}.n{fill:#9aa9b7}.t{fill:#c3ccd5}"
        "path{stroke:#52616f}}</style>"
        f"{''.join(edges)}{''.join(texts)}</svg>"
    )
    if path is not None:
        with atomic_write(path) as file:
            file.write(svg + "\n")
    return svg


def lay_out(lines: list[Line]) -> int:
    """Give every line its row, a parent in the middle of its children; return the rows used."""
    rows = 0
    spans: dict[int, tuple[float, float]] = {}  # first and last row of each line's children
    has_children = {line.parent for line in lines if line.level}
    for place, line in enumerate(lines):
        if place not in has_children:
            line.row, rows = float(rows), rows + 1
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if place in spans:
            line.row = sum(spans[place]) / 2
        if line.level:
            _, last = spans.get(line.parent, (line.row, line.row))
            spans[line.parent] = (line.row, last)
    return rows


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
