"""Every method on the sets of Clus: ranks, time and size, as JSON, a table and a diagram.

The trainings are those of a suite, which takes hours and continues where it was interrupted:

    hierlearn compare --suite clus --data-dir FOLDER --methods all --device cpu --out OUT

Then ``python benchmarks/bench_methods.py OUT`` writes results/methods.json and the
critical-difference diagrams docs/assets/methods.svg and methods-trees.svg, and prints the table of
docs/methods.md.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import write

if TYPE_CHECKING:
    from collections.abc import Mapping

ASSETS = Path(__file__).parent.parent / "docs" / "assets"
COMMAND = "hierlearn compare --suite clus --data-dir FOLDER --methods all --device cpu --out OUT"
BASELINE = "flat"


def ranks(summary: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return the mean ranks of a ranking by method."""
    found = summary.get(name)
    return dict(zip(found["candidates"], found["mean_ranks"], strict=True)) if found else {}


def row(summary: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the figures of a method: by set, and over the sets that it was trained on."""
    sets = {one["name"]: one["figures"] for one in summary["sets"] if key in one["figures"]}
    gains = [own[key]["mean"] - own[BASELINE]["mean"] for own in sets.values()]
    slower = [own[key]["cpu_seconds"] / own[BASELINE]["cpu_seconds"] for own in sets.values()]
    return {
        "mean rank": ranks(summary, "ranks").get(key),
        "mean rank, trees": ranks(summary, "ranks_of_all").get(key),
        f"mean difference to {BASELINE}": statistics.mean(gains) if gains else None,
        f"processor seconds, ratio to {BASELINE}": statistics.median(slower) if slower else None,
        "parameters": {name: own[key]["parameters"] for name, own in sets.items()},
        "stored": {name: own[key]["stored"] for name, own in sets.items()},
        "processor seconds": {name: own[key]["cpu_seconds"] for name, own in sets.items()},
        "au-prc": {name: own[key]["mean"] for name, own in sets.items()},
        "deviation": {name: own[key]["deviation"] for name, own in sets.items()},
        "seeds": {name: own[key]["seeds"] for name, own in sets.items()},
    }


def as_markdown(rows: Mapping[str, Mapping[str, Any]], sets: list[str]) -> str:
    """Return the table, the best mean rank first."""
    heads = ["mean rank", "trees", f"to {BASELINE}", "seconds", "parameters", *sets]
    lines = ["| | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]

    def place(item: tuple[str, Mapping[str, Any]]) -> tuple[bool, float]:
        rank = item[1]["mean rank"]
        return rank is None, rank or item[1]["mean rank, trees"] or 0.0

    for key, one in sorted(rows.items(), key=place):
        sizes = list(one["parameters"].values())
        cells = [
            number(one["mean rank"], ".1f"),
            number(one["mean rank, trees"], ".1f"),
            number(one[f"mean difference to {BASELINE}"], "+.3f"),
            number(one[f"processor seconds, ratio to {BASELINE}"], ".1f"),
            number(statistics.mean(sizes) / 1e6 if sizes else None, ".2f"),
            *(number(one["au-prc"].get(name), ".3f") for name in sets),
        ]
        lines.append(f"| `{key}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def number(value: float | None, form: str) -> str:
    """Return a number as text, a dash where there is none."""
    return "–" if value is None else format(value, form)


def main() -> None:
    """Read a suite, write the figures and the diagrams, print the table."""
    from hierlearn.reports.critical_difference import draw

    summary = json.loads((Path(sys.argv[1]) / "suite.json").read_text())
    rows = {key: row(summary, key) for key in summary["candidates"]}
    sets = [one["name"] for one in summary["sets"]]
    figures = {
        "metric": summary["metric"],
        "methods": rows,
        "left out": {one["name"]: one["left_out"] for one in summary["sets"]},
        "verdict": (summary["ranks"] or {}).get("verdict"),
        "verdict, trees": (summary["ranks_of_all"] or {}).get("verdict"),
    }
    write("methods", figures, COMMAND)
    for name, file in (("ranks", "methods.svg"), ("ranks_of_all", "methods-trees.svg")):
        if summary[name]:
            draw(summary[name]).savefig(ASSETS / file, metadata={"Date": None})
    print(as_markdown(rows, sets))


if __name__ == "__main__":
    main()
