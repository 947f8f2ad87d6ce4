"""The figures of docs/study.md: what ``hierlearn compare`` found, without those of single seeds.

    python benchmarks/bench_study.py PAPER USERS

reads the studies of both datasets in each of the two folders, writes results/study.json and prints
the tables of the page. The folders are those of the commands on that page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hierlearn.studies import paper
from hierlearn.studies.study import Study
from hierlearn.studies.summary import summarize
from hierlearn.studies.tables import as_markdown
from machine import RESULTS, machine

KEPT = ("candidates", "labels", "missing", "metrics", "directions", "level", "seeds")


def compact(folder: Path) -> dict[str, Any]:
    """Return the figures of a study, rounded, without single seeds."""
    study = Study.open(folder)
    summary = summarize(study)
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
    }


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
    folders = dict(zip(("paper", "users"), map(Path, sys.argv[1:]), strict=True))
    found: dict[str, Any] = {
        kind: {name: compact(folder / name) for name in paper.EPOCHS}
        for kind, folder in folders.items()
    }
    content = {"command": "the commands of docs/study.md", "machine": machine(), **found}
    path = RESULTS / "study.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    for title, table in tables(found).items():
        print(f"\n### {title}\n\n{table}")
    print(f"\nwrote {path}")


if __name__ == "__main__":
    main()
