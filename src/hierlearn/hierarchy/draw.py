"""Drawing a hierarchy as a text tree for terminals.

What lies deeper than ``depth`` and beyond ``breadth`` children is folded, with a note of how much
that is. A title stands behind the name of its class. A class of a DAG is drawn below its first
parent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import HierlearnError, plural, printable
from hierlearn.hierarchy.names import WIDEST, shorten

if TYPE_CHECKING:
    from hierlearn.hierarchy.hierarchy import Hierarchy


def as_text(hierarchy: Hierarchy, depth: int | None, breadth: int | None) -> str:
    """Draw with the line characters of a terminal."""
    for name, value in (("depth", depth), ("breadth", breadth)):
        if value is not None and value < 1:
            raise HierlearnError(f"{name} must be at least 1, not {value}")
    offsets, ancestors = hierarchy.structure.closure
    classes = np.repeat(np.arange(len(hierarchy)), np.diff(offsets))
    below = np.bincount(ancestors, minlength=len(hierarchy)) - 1  # a closure holds the class itself
    firsts = hierarchy.structure.first_parents
    order = np.argsort(firsts, kind="stable")
    bounds = np.searchsorted(firsts[order], np.arange(-1, len(hierarchy) + 1))
    size = f"{plural(len(hierarchy), 'class', 'classes')}, {plural(hierarchy.depth, 'level')}"
    kind = "tree" if hierarchy.is_tree else "DAG"
    drawn = [f"{printable(hierarchy.root)}  {size}, {kind}"]

    def children(number: int, rail: str, level: int) -> list[tuple[int, str, str, int]]:
        """Return what is drawn below a class, last one first: class, text, rail, level."""
        own = order[bounds[number + 1] : bounds[number + 2]]
        shown = own if breadth is None else own[:breadth]
        lines = []
        for child in shown.tolist():
            count = f"{below[child]:,}" if below[child] else ""
            note = f"{count} …".strip() if count and level == depth else count
            title = shorten(hierarchy.titles[child] or "", WIDEST)
            lines.append((child, (hierarchy.bare_names[child], title, note)))
        if len(shown) < len(own):
            hidden = own[len(shown) :]  # two classes of a DAG share descendants, which count once
            total = len(np.unique(classes[np.isin(ancestors, hidden)]))
            more = f"{len(hidden):,} more"
            lines.append(
                (-1, ("…", more if total == len(hidden) else f"{more} ({total:,} classes)", ""))
            )
        found = []
        for place, (child, parts) in enumerate(lines, start=1):
            branch, below_it = ("└── ", "    ") if place == len(lines) else ("├── ", "│   ")
            text = "  ".join(printable(part) for part in parts if part)
            found.append((child, rail + branch + text, rail + below_it, level))
        return found[::-1]

    waiting = children(-1, "", 1)  # a stack, for hierarchies deeper than Python's own
    while waiting:
        number, line, rail, level = waiting.pop()
        drawn.append(line)
        if number >= 0 and level != depth:
            waiting += children(number, rail, level + 1)
    return "\n".join(drawn)
