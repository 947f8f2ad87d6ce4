"""Draw docs/assets/results.svg: hierlearn beside what its users would pick instead.

Every figure comes from benchmarks/results; light or dark, as the reader's browser asks for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "assets" / "results.svg"
WIDTH, TOP, ROW = 830, 84, 27
STYLE = """
text { font: 13px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-weight: 600 } .quiet { fill: #656d76 } .number { font-variant-numeric: tabular-nums }
.ours { fill: #1f6feb } .win { fill: #1f6feb; font-weight: 600 } .other { fill: #afb8c1 }
.axis { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #8d96a0 } .axis { stroke: #30363d }
  .ours { fill: #58a6ff } .win { fill: #58a6ff } .other { fill: #6e7681 }
}
"""
CLUS = {
    "diatoms": "Diatoms",
    "imclef07d": "ImCLEF07D",
    "cellcycle_fun": "cellcycle FUN",
    "eisen_fun": "eisen FUN",
    "seq_fun": "seq FUN",
    "cellcycle_go": "cellcycle GO",
    "eisen_go": "eisen GO",
    "seq_go": "seq GO",
}
LEVELS = {
    "icd10cm": ["chapters", "blocks", "categories"],
    "naics": ["sectors", "subsectors", "groups"],
}
NAMES = {"icd10cm": "ICD-10-CM", "naics": "NAICS"}
Row = tuple[str, float, float]


def results(name: str) -> dict[str, Any]:
    """Return the figures of a file in benchmarks/results."""
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return figures


def in_print() -> list[Row]:
    """Return name, best AU(PRC) in print and ours, of every set."""
    figures = results("best")["best"]
    rows = []
    for name, shown in CLUS.items():
        one = figures[name]
        rows.append((shown, one["best_in_print"], one.get("unscaled", one)["au_prc"]))
    return rows


def texts() -> list[Row]:
    """Return name, accuracy of hiclass and ours, of every level of every set of texts."""
    figures = results("hiclass")
    rows = []
    for name, levels in LEVELS.items():
        pairs = zip(
            figures[name]["hiclass"]["accuracy_by_level"],
            figures[name]["hierlearn"]["accuracy_by_level"],
            strict=True,
        )
        for level, (other, ours) in zip(levels, pairs, strict=True):
            rows.append((f"{NAMES[name]} {level}", other, ours))
    return rows


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{text}</text>'


def bars(left: float, label: float, wide: float, rows: list[Row], percent: bool) -> list[str]:
    """Return two bars per row, the other one above, with both figures at the end."""
    parts = []
    scale = wide / max(max(row[1:]) for row in rows)
    for number, (name, other, ours) in enumerate(rows):
        y = TOP + number * ROW
        begin = left + label
        parts.append(words(begin - 8, y + 15, name, "", "end"))
        for place, value, kind in ((y + 3, other, "other"), (y + 11, ours, "ours")):
            parts.append(
                f'<rect x="{begin:.1f}" y="{place}" width="{value * scale:.1f}" height="7" '
                f'rx="1.5" class="{kind}"/>'
            )
        before, after = (
            (f"{100 * v:.1f}" if percent else f"{v:.3f}".lstrip("0")) for v in (other, ours)
        )
        end = begin + max(other, ours) * scale + 7
        parts.append(
            f'<text x="{end:.1f}" y="{y + 15}" class="number"><tspan class="quiet">{before}</tspan>'
            f' <tspan class="win">{after}</tspan></text>'
        )
    return parts


def legend(x: float, y: float, other: str, ours: str) -> list[str]:
    """Return which bar is which."""
    shift = 17 + 7.2 * len(other) + 16
    return [
        f'<rect x="{x}" y="{y - 8}" width="11" height="7" rx="1.5" class="other"/>',
        words(x + 17, y, other, "quiet"),
        f'<rect x="{x + shift}" y="{y - 8}" width="11" height="7" rx="1.5" class="ours"/>',
        words(x + shift + 17, y, ours, "quiet"),
    ]


def draw() -> str:
    """Return the picture."""
    left, right = in_print(), texts()
    height = TOP + ROW * max(len(left), len(right)) + 12
    parts = [
        words(0, 18, "Images and genes: eight public sets", "title"),
        words(0, 38, "area under the precision-recall curve, test rows", "quiet"),
        *legend(0, 62, "best in print", "hierlearn --effort best"),
        *bars(0, 106, 190, left, percent=False),
        words(440, 18, "Texts: every level of two taxonomies", "title"),
        words(440, 38, "% of test rows that are right, no option set", "quiet"),
        *legend(440, 62, "hiclass + LinearSVC", "hierlearn"),
        *bars(440, 152, 140, right, percent=True),
    ]
    description = "; ".join(
        f"{name} {other:.3f}, hierlearn {ours:.3f}" for name, other, ours in left + right
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'width="{WIDTH}" height="{height}"><title>{description}</title><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
