r"""Every method on the sets of Clus: ranks, time and size, as JSON, a table and diagrams.

The trainings are those of two suites, which continue where they were interrupted: the figures on
whichever device, and the seconds with one seed on one core of a CPU, for some of the sets:

    hierlearn compare --suite clus --data-dir FOLDER --methods all --seeds 5 --out OUT
    OMP_NUM_THREADS=1 hierlearn compare --suite clus --data-dir SOME --methods all --seeds 1 \
        --device cpu --jobs 1 --out TIMES

Then ``python benchmarks/bench_methods.py OUT TIMES [--machine FILE]`` writes results/methods.json
and the critical-difference diagrams docs/assets/methods*.svg, and prints the table of
docs/methods.md. FILE is any JSON of results/ from the machine of OUT, if that was another one.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.lab.ranks import rank_values
from hierlearn.training.recipes import RECIPES
from machine import machine, write

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ASSETS = Path(__file__).parent.parent / "docs" / "assets"
COMMAND = "python benchmarks/bench_methods.py OUT TIMES"
BASELINE = "flat"


def among(ranking: Mapping[str, Any], kept: Collection[str]) -> dict[str, Any]:
    """Return a ranking of some of the methods of another."""
    places = [n for n, key in enumerate(ranking["candidates"]) if key in kept]
    named = {name: [ranking[name][n] for n in places] for name in ("candidates", "labels")}
    values = np.array(ranking["values"])[:, places]
    return rank_values(values, {**ranking, **named}, larger_is_better=True)


def ranks(ranking: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the mean ranks of a ranking by method."""
    return dict(zip(ranking["candidates"], ranking["mean_ranks"], strict=True)) if ranking else {}


def by_set(summary: Mapping[str, Any], key: str, name: str) -> dict[str, Any]:
    """Return a figure of a method on every set that it was trained on."""
    sets = summary["sets"]
    return {one["name"]: one["figures"][key][name] for one in sets if key in one["figures"]}


def row(summary: Mapping[str, Any], times: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the figures of a method: by set, and over the sets that it was trained on."""
    own, base = by_set(summary, key, "mean"), by_set(summary, BASELINE, "mean")
    gains = [value - base[name] for name, value in own.items()]
    return {
        "mean rank": ranks(summary["ranks"]).get(key),
        "mean rank, trees": ranks(summary["ranks_of_all"]).get(key),
        f"sets above {BASELINE}": sum(gain > 0 for gain in gains),
        "sets": len(gains),
        f"mean difference to {BASELINE}": statistics.mean(gains) if gains else None,
        "processor seconds": by_set(times, key, "cpu_seconds"),
        "parameters": by_set(summary, key, "parameters"),
        "stored": by_set(summary, key, "stored"),
        "au-prc": own,
        "deviation": by_set(summary, key, "deviation"),
        "seeds": by_set(summary, key, "seeds"),
    }


def as_markdown(rows: Mapping[str, Mapping[str, Any]], sets: list[str]) -> str:
    """Return two tables, the best mean rank first: what methods cost, and their figures by set."""
    timed = list(rows[BASELINE]["processor seconds"])
    seconds = [f"s, {written(name)}" for name in timed]
    heads = ["mean rank", f"above {BASELINE}", "by", *seconds, "parameters", "stored"]
    costs, figures = [], []

    def place(item: tuple[str, Mapping[str, Any]]) -> tuple[bool, float]:
        rank = item[1]["mean rank"]
        return rank is None, rank or item[1]["mean rank, trees"] or 0.0

    for key, one in sorted(rows.items(), key=place):
        sizes = [list(one[name].values()) for name in ("parameters", "stored")]
        cells = [
            number(one["mean rank"], ".1f"),
            "–" if key == BASELINE else f"{one[f'sets above {BASELINE}']} of {one['sets']}",
            number(one[f"mean difference to {BASELINE}"], "+.3f"),
            *(number(one["processor seconds"].get(name), ".1f") for name in timed),
            *(number(statistics.mean(size) / 1e6, ".2f") for size in sizes),
        ]
        costs.append([f"`{key}`", *cells])
        figures.append(
            [f"`{key}`", *(number(one["au-prc"].get(name), ".3f").lstrip("0") for name in sets)]
        )
    tables = [(heads, costs), ([written(name) for name in sets], figures)]
    return "\n\n".join(as_table(*table) for table in tables)


def as_table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table of Markdown; the first column has no heading."""
    lines = [["", *heads], ["---", *["---:"] * len(heads)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def written(name: str) -> str:
    """Return the name of a set as its authors write it."""
    special = {"diatoms": "Diatoms", "imclef07d": "ImCLEF07D"}
    return special.get(name, name.replace("_fun", "_FUN").replace("_go", "_GO"))


def number(value: float | None, form: str) -> str:
    """Return a number as text, a dash where there is none."""
    return "–" if value is None else format(value, form)


def main() -> None:
    """Read the suites, write the figures and the diagrams, print the table."""
    import matplotlib as mpl

    from hierlearn.lab.pages.figures import rank_diagram

    mpl.rcParams["svg.hashsalt"] = "hierlearn"  # the same file every time
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("times", type=Path)
    parser.add_argument("--machine", type=Path)
    given = parser.parse_args()
    summary, times = (
        json.loads((folder / "suite.json").read_text()) for folder in (given.out, given.times)
    )
    trained_on = json.loads(given.machine.read_text())["machine"] if given.machine else machine()
    rows = {key: row(summary, times, key) for key in summary["candidates"]}
    drawn = {
        "methods": summary["ranks"],
        "methods-recipes": among(summary["ranks"], RECIPES),
        "methods-trees": summary["ranks_of_all"],
    }
    figures = {
        "metric": summary["metric"],
        "trained on": trained_on,
        "methods": rows,
        "mean ranks among the recipes": ranks(drawn["methods-recipes"]),
        "left out": {one["name"]: one["left_out"] for one in summary["sets"]},
        "verdicts": {name: one["verdict"] for name, one in drawn.items() if one},
    }
    write("methods", figures, COMMAND)
    for name, one in drawn.items():
        if one:
            rank_diagram(one).savefig(ASSETS / f"{name}.svg", metadata={"Date": None})
    print(as_markdown(rows, [one["name"] for one in summary["sets"]]))


if __name__ == "__main__":
    main()
