"""Draw docs/assets/memory.svg: how the labels of neighbors become the probabilities of a taxonomy.

The points are made up; weights and probabilities are those of a NeighborHead on them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import torch
from torch import nn

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, NeighborHead, Remembered

PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "memory.svg"
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
COLORS = {
    "animal/cat": "#7b3fa0",
    "animal/dog/lab": "#1a4f9c",
    "animal/dog/pug": "#00695c",
    "plant/rose": "#a84300",
}
ROWS = {
    "animal/dog/pug": [(3.1, 3.4), (2.2, 3.9), (3.9, 4.3), (2.6, 4.8)],
    "animal/dog/lab": [(4.6, 2.6), (5.4, 3.4), (5.0, 1.7)],
    "animal/cat": [(2.0, 1.2), (2.9, 0.7), (1.2, 1.8)],
    "plant/rose": [(7.0, 4.6), (7.6, 3.9), (6.9, 5.3)],
}
QUERY = (3.7, 3.1)
SCALE = 1.2
WIDTH, HEIGHT, LEFT, UNIT = 770, 330, 20, 46


def answer() -> tuple[Hierarchy, list[tuple[float, float]], list[str], list[float], list[float]]:
    """Return the hierarchy, points, labels, weights, and the probability of every class."""
    hierarchy = Hierarchy.from_paths(list(COLORS))
    points = [point for label in ROWS for point in ROWS[label]]
    labels = [label for label in ROWS for _ in ROWS[label]]
    head = NeighborHead(hierarchy, nn.Identity(), scale=SCALE)
    sets = LabelSets.from_labels(Labels(labels, hierarchy))
    head.memory.set(torch.tensor(points), Remembered(sets, [str(n) for n in range(len(points))]))
    query = torch.tensor([QUERY])
    weights, index = head.kneighbors(query)
    ordered = [0.0] * len(points)
    for weight, row in zip(weights[0].tolist(), index[0].tolist(), strict=True):
        ordered[row] = weight
    return hierarchy, points, labels, ordered, head(query).probabilities[0].tolist()


def place(point: tuple[float, float]) -> tuple[float, float]:
    """Return a point of the plane in pixels."""
    return LEFT + point[0] * UNIT, HEIGHT - 46 - point[1] * UNIT


def text(x: float, y: float, words: str, **more: str) -> str:
    """Return a line of text."""
    extra = "".join(f" {name.replace('_', '-')}='{value}'" for name, value in more.items())
    return f"<text x='{x:.0f}' y='{y:.0f}'{extra}>{escape(words)}</text>"


def draw() -> str:
    """Return the picture."""
    hierarchy, points, labels, weights, probabilities = answer()
    x, y = place(QUERY)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' {FONT}"
        " font-size='13' fill='#222' role='img'>",
        "<title>A row is compared with remembered rows; their weighted labels sum to the "
        "probability of every class</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#fff'/>",
        text(LEFT, 24, "remembered rows, as the encoder places them", font_weight="600"),
    ]
    for point, label, weight in zip(points, labels, weights, strict=True):
        a, b = place(point)
        if weight >= 0.01:
            parts.append(
                f"<line x1='{x:.0f}' y1='{y:.0f}' x2='{a:.0f}' y2='{b:.0f}'"
                f" stroke='{COLORS[label]}' stroke-width='{1 + 16 * weight:.1f}' opacity='0.45'/>"
            )
    for point, label, weight in zip(points, labels, weights, strict=True):
        a, b = place(point)
        parts.append(f"<circle cx='{a:.0f}' cy='{b:.0f}' r='7' fill='{COLORS[label]}'/>")
        if weight >= 0.01:
            side = -1 if a < x else 1
            anchor = "end" if side < 0 else "start"
            shown = f"{weight:.2f}"
            parts.append(text(a + 12 * side, b + 4, shown, fill=COLORS[label], text_anchor=anchor))
    parts += [
        f"<circle cx='{x:.0f}' cy='{y:.0f}' r='8' fill='#fff' stroke='#222' stroke-width='2.5'/>",
        text(x - 4, y + 26, "new row", text_anchor="middle"),
    ]
    left = 460
    parts.append(text(left, 24, "its answer: p = sum of weights × labels", font_weight="600"))
    order = sorted(range(len(hierarchy)), key=lambda number: hierarchy.names[number])
    for line, number in enumerate(order):
        name, p = hierarchy.names[number], probabilities[number]
        top = 52 + 38 * line
        indent = 16 * (int(hierarchy.levels[number]) - 1)
        color = COLORS.get(name, "#666")
        parts += [
            text(left + indent, top, hierarchy.bare_names[number]),
            f"<rect x='{left + 80}' y='{top - 11}' width='150' height='14' fill='#eee' rx='2'/>",
            f"<rect x='{left + 80}' y='{top - 11}' width='{150 * p:.1f}' height='14'"
            f" fill='{color}' rx='2'/>",
            text(left + 238, top, f"{p:.2f}"),
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(f"wrote {PICTURE}")
