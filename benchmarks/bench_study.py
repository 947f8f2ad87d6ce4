"""The figures of docs/study.md: what the studies found, without those of single seeds.

    python benchmarks/bench_study.py PAPER USERS

reads the studies of both datasets in each of the two folders, writes results/study.json and prints
the tables of the page. The folders are those of the commands on that page.

    python benchmarks/bench_study.py PAPER USERS --add

reads studies of some rows, of which the first is that of the whole study, and puts the others into
results/study.json: in the place of a row of that name, else where the page has it. They are tested
against the first row of their own run, and corrected by Bonferroni over all rows of the page.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from hierlearn.lab import paper
from hierlearn.lab.statistics import LEVEL, paired_test
from hierlearn.lab.study import Study
from hierlearn.lab.summary import as_markdown, mark_best, summarize
from machine import RESULTS, machine

KEPT = ("candidates", "labels", "missing", "metrics", "directions", "level", "seeds")


def compact(folder: Path, rows: int | None = None) -> dict[str, Any]:
    """Return the figures of a study, rounded, without single seeds.

    Args:
        folder: of the study.
        rows: of the page, if its tests are to be corrected for as many.
    """
    study = Study.open(folder)
    summary = summarize(study)
    if rows is not None:
        for column in summary["figures"].values():
            for figure in column[1:]:
                p = paired_test(figure["values"], column[0]["values"])
                figure["p"] = None if math.isnan(p) else min(1.0, p * (rows - 1))
                figure["significant"] = p * (rows - 1) < LEVEL
    figures = {
        metric: [
            {name: short(value) for name, value in figure.items() if name != "values"}
            for figure in column
        ]
        for metric, column in summary["figures"].items()
    }
    seconds = {run["candidate"]: run["seconds"] * len(study.seeds) for run in study.runs()}
    return {
        **{name: summary[name] for name in (*KEPT, "still_improving")},
        "settings": study.config["settings"],
        "network": study.config["network"],
        "versions": study.config["metadata"]["versions"],
        "seconds": {key: round(value, 1) for key, value in seconds.items()},
        "figures": figures,
        "by_level": {key: short(values) for key, values in summary["by_level"].items()},
        "severity": {key: short(values) for key, values in summary["severity"].items()},
        "selected": {key: short(value) for key, value in summary["selected"].items()},
    }


def with_rows(old: dict[str, Any], new: dict[str, Any], order: list[str]) -> dict[str, Any]:
    """Return the figures of a study with the rows of another, all but its first.

    Args:
        old: the study.
        new: the other one.
        order: of the keys, where a new row stands; others keep their place.
    """
    added = new["candidates"][1:]
    keys = list(old["candidates"])
    for key in added:
        if key not in keys:
            keys.insert(keys.index(order[order.index(key) - 1]) + 1, key)
    sources = {key: new if key in added else old for key in keys}
    places = {key: one["candidates"].index(key) for key, one in sources.items()}
    merged = {**old, "candidates": keys}
    merged["labels"] = [sources[key]["labels"][places[key]] for key in keys]
    merged["figures"] = {
        metric: [{**one["figures"][metric][places[key]]} for key, one in sources.items()]
        for metric in old["metrics"]
    }
    for metric, column in merged["figures"].items():
        for figure in column:
            figure["best"] = False
        mark_best(metric, column)
    for name in ("still_improving", "seconds", "by_level", "severity", "selected"):
        found = {key: one.get(name, {}).get(key) for key, one in sources.items()}
        merged[name] = {key: value for key, value in found.items() if value is not None}
    first = {metric: new["figures"][metric][0]["mean"] for metric in old["metrics"]}
    merged["added"] = {"rows": added, "first": first, "machine": machine()}
    return merged


def short(node: Any) -> Any:
    """Return a value with seven digits."""
    if isinstance(node, list):
        return [short(value) for value in node]
    return float(f"{node:.7g}") if isinstance(node, float) else node


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the page by title."""
    made = {}
    for name, summary in found["paper"].items():
        for number, title in ((1, "Table 1"), (2, "Table 2"), (0, "what the paper lacks")):
            made[f"{name}, {title}"] = paper.as_markdown({name: summary}, number)
    for name, summary in found["users"].items():
        made[f"{name}, users' protocol"] = as_markdown(summary)
    return made


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--add"]
    folders = dict(zip(("paper", "users"), map(Path, words), strict=True))
    path = RESULTS / "study.json"
    if "--add" in sys.argv:
        content = json.loads(path.read_text())
        for kind, folder in folders.items():
            for name, old in content[kind].items():
                keys = [row.candidate.key for row in paper.ROWS]
                order = keys if kind == "paper" else old["candidates"]
                content[kind][name] = with_rows(old, compact(folder / name, len(order)), order)
    else:
        found = {
            kind: {name: compact(folder / name) for name in paper.EPOCHS}
            for kind, folder in folders.items()
        }
        content = {"command": "the commands of docs/study.md", "machine": machine(), **found}
    path.write_text(json.dumps(content, indent=1) + "\n")
    for title, table in tables(content).items():
        print(f"\n### {title}\n\n{table}")
    print(f"\n{paper.verdict(content['paper'])}")
    print(f"\nwrote {path}")


if __name__ == "__main__":
    main()
