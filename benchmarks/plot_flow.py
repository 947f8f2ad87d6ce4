"""Draw docs/assets/flow.svg: the stages in the order that tests/test_flow.py enforces."""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

REPO = Path(__file__).parents[1]
PICTURE = REPO / "docs" / "assets" / "flow.svg"

# Of each stage: its group, what it takes, what it gives.
WORDS = {
    "hierarchy": ("data", "a taxonomy", "Hierarchy, LabelSpace"),
    "datasets": ("data", "a table, or a name", "Dataset"),
    "features": ("data", "raw inputs", "rows of numbers"),
    "links": ("network", "logits", "HeadOutput"),
    "losses": ("network", "HeadOutput, targets", "a loss"),
    "memory": ("network", "embeddings", "neighbors, HeadOutput"),
    "networks": ("network", "rows", "HeadOutput"),
    "decoding": ("decision", "probabilities", "a class, a path, a set"),
    "metrics": ("decision", "probabilities, targets", "figures"),
    "training": ("training", "Dataset, Plan", "a trained network"),
    "pipeline": ("training", "rows", "Pipeline: predict, save, load"),
    "estimator": ("use", "X, y", "HierarchicalClassifier"),
    "integrations": ("use", "other training loops", "losses, callbacks"),
    "reports": ("use", "Pipeline, labeled rows", "one HTML page"),
    "cli": ("use", "a command", "hierlearn ..."),
    "service": ("annex", "HTTP requests, jobs", "a server; Ray and Dask; MLflow"),
    "lab": ("annex", "Dataset, candidates", "studies, baselines, corpora"),
}
COLORS = {
    "data": "#00695c",
    "network": "#1a4f9c",
    "decision": "#7b3fa0",
    "training": "#a84300",
    "use": "#8a6100",
    "annex": "#5a5a5a",
}
WIDTH, LEFT, RIGHT, TOP = 420, 16, 48, 16
CARD, GAP = 52, 8
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
CODE = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"


def stages() -> dict[str, int]:
    """Return the stages and their numbers, as the test of the flow has them."""
    tree = ast.parse((REPO / "tests" / "test_flow.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STAGES":
            found: dict[str, int] = ast.literal_eval(node.value)
            return {name: number for name, number in found.items() if not name.startswith("_")}
    raise LookupError("tests/test_flow.py has no STAGES")


def card(name: str, number: int, top: int) -> list[str]:
    group, takes, gives = WORDS[name]
    color, width = COLORS[group], WIDTH - LEFT - RIGHT
    return [
        f"<rect x='{LEFT}' y='{top}' width='{width}' height='{CARD}' rx='7' fill='#fff'"
        f" stroke='{color}' stroke-width='1.4'/>",
        f"<circle cx='{LEFT + 25}' cy='{top + CARD // 2}' r='14' fill='{color}'/>",
        f"<text x='{LEFT + 25}' y='{top + CARD // 2 + 5}' font-size='14' font-weight='600'"
        f" fill='#fff' text-anchor='middle'>{number}</text>",
        f"<text x='{LEFT + 50}' y='{top + 21}' font-size='16' font-weight='600' {CODE}"
        f" fill='{color}' class='stage'>{escape(name)}</text>",
        f"<text x='{LEFT + 50}' y='{top + 41}' font-size='14' fill='#222'>{escape(takes)}"
        f" <tspan fill='{color}'>&#8594;</tspan> {escape(gives)}</text>",
    ]


def draw() -> str:
    """Return the picture."""
    found = stages()
    base = [name for name, number in found.items() if number == 0]
    lines, top = [], TOP
    lines += [
        f"<rect x='{LEFT}' y='{top}' width='{WIDTH - LEFT - RIGHT}' height='{CARD}' rx='7'"
        f" fill='#f3f3f3' stroke='#777' stroke-dasharray='4 3'/>",
        f"<text x='{LEFT + 14}' y='{top + 21}' font-size='9' {CODE} fill='#444'>"
        + " ".join(f"<tspan class='stage'>{escape(name)}</tspan>" for name in base)
        + "</text>",
        f"<text x='{LEFT + 14}' y='{top + 41}' font-size='14' fill='#444'>"
        "import no stage; every stage may import them</text>",
    ]
    above = None
    for name, number in found.items():
        if number == 0:
            continue
        group = WORDS[name][0]
        top += CARD + (GAP if group == above else 2 * GAP)
        above = group
        lines += card(name, number, top)
    bottom, middle = top + CARD, WIDTH - RIGHT // 2
    lines += [
        f"<path d='M{middle} {bottom} V{TOP + 8}' stroke='#555' stroke-width='1.6' fill='none'/>",
        f"<path d='M{middle - 6} {TOP + 12} L{middle} {TOP} L{middle + 6} {TOP + 12} Z'"
        " fill='#555'/>",
        f"<g transform='translate({middle - 7} {(TOP + bottom) // 2}) rotate(-90)'>"
        "<text font-size='14' fill='#333' text-anchor='middle'>"
        "a stage imports only from those above it</text></g>",
    ]
    height = bottom + TOP
    label = "The stages of hierlearn in order: " + ", ".join(found)
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}'"
            f" width='{WIDTH}' height='{height}' role='img' aria-label='{label}' {FONT}>",
            f"<rect x='0.5' y='0.5' width='{WIDTH - 1}' height='{height - 1}' rx='10' fill='#fff'"
            " stroke='#ddd'/>",
            *lines,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
