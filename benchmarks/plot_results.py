"""Draw docs/assets/results.svg: hierlearn beside what its users would pick instead.

Every figure comes from benchmarks/results; light or dark, as the reader's browser asks for.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "assets" / "results.svg"
PUBLISHED = ROOT / "src" / "hierlearn" / "lab" / "published" / "clus.csv"
WIDTH, TOP, ROW = 900, 84, 34
STYLE = """
text { font: 13px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-weight: 600 } .quiet { fill: #656d76 } .number { font-variant-numeric: tabular-nums }
.ours { fill: #1f6feb } .best { font-weight: 600 }
.other { fill: #afb8c1 } .fair { fill: #8250df }
.axis { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #8d96a0 } .axis { stroke: #30363d }
  .ours { fill: #58a6ff } .other { fill: #6e7681 } .fair { fill: #a371f7 }
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
Row = tuple[str, list[float]]  # ours is the last of the figures


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
        ours = figures[name].get("unscaled", figures[name])["au_prc"]
        rows.append((shown, [figures[name]["best_in_print"], ours]))
    return rows


def printed_methods() -> str:
    """Return the methods that have the best figures in print."""
    with PUBLISHED.open(encoding="utf-8") as file:
        published = [row for row in csv.DictReader(file) if row["dataset"] in CLUS]
    published.sort(key=lambda row: float(row["value"]))
    return ", ".join(sorted(set({row["dataset"]: row["method"] for row in published}.values())))


def texts() -> list[Row]:
    """Return name, accuracy of hiclass on either input and ours, of every level of every set."""
    figures = results("hiclass")
    rows = []
    for name, levels in LEVELS.items():
        methods = ("hiclass", "hiclass_ngrams", "hierlearn")
        accuracy = [figures[name][method]["accuracy_by_level"] for method in methods]
        for level, values in zip(levels, zip(*accuracy, strict=True), strict=True):
            rows.append((f"{NAMES[name]} {level}", list(values)))
    return rows


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{text}</text>'


def bars(left: float, label: float, wide: float, rows: list[Row], percent: bool) -> list[str]:
    """Return a bar per figure, ours last, with all figures at the end; the best one is bold."""
    parts = []
    scale = wide / max(max(values) for _, values in rows)
    for number, (name, values) in enumerate(rows):
        y = TOP + number * ROW
        begin = left + label
        parts.append(words(begin - 8, y + 17, name, "", "end"))
        kinds = ["other", "ours"] if len(values) == 2 else ["other", "fair", "ours"]
        for place, (value, kind) in enumerate(zip(values, kinds, strict=True)):
            parts.append(
                f'<rect x="{begin:.1f}" y="{y + 2 + 8 * place}" width="{value * scale:.1f}" '
                f'height="7" rx="1.5" class="{kind}"/>'
            )
        shown = [f"{100 * v:.1f}" if percent else f"{v:.3f}".lstrip("0") for v in values]
        spans = " ".join(
            f'<tspan class="{"best" if value == max(values) else "quiet"}">{text}</tspan>'
            for value, text in zip(values, shown, strict=True)
        )
        end = begin + max(values) * scale + 7
        parts.append(f'<text x="{end:.1f}" y="{y + 17}" class="number">{spans}</text>')
    return parts


def legend(x: float, y: float, **names: str) -> list[str]:
    """Return which bar is which."""
    parts = []
    for kind, name in names.items():
        parts.append(f'<rect x="{x}" y="{y - 8}" width="11" height="7" rx="1.5" class="{kind}"/>')
        parts.append(words(x + 17, y, name, "quiet"))
        x += 17 + 6.8 * len(name) + 14
    return parts


def draw() -> str:
    """Return the picture."""
    left, right = in_print(), texts()
    height = TOP + ROW * max(len(left), len(right)) + 12
    parts = [
        words(0, 18, "Images and genes: eight public sets", "title"),
        words(0, 38, "area under the precision-recall curve, test rows", "quiet"),
        *legend(0, 62, other=f"best in print ({printed_methods()})", ours="--effort best"),
        *bars(0, 106, 190, left, percent=False),
        words(430, 18, "Texts: every level of two taxonomies", "title"),
        words(430, 38, "% of test rows that are right, no option set", "quiet"),
        *legend(430, 62, other="hiclass, words", fair="hiclass, same n-grams", ours="hierlearn"),
        *bars(430, 152, 190, right, percent=True),
    ]
    description = "; ".join(
        f"{name} {', '.join(f'{value:.3f}' for value in others)}, hierlearn {ours:.3f}"
        for name, (*others, ours) in left + right
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'width="{WIDTH}" height="{height}"><title>{description}</title><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
