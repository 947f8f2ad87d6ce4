"""The figures of docs/noise.md: what ``hierlearn noise`` found, by draw and seed.

    python benchmarks/bench_noise.py FOLDER...

reads noise.json in each folder, writes results/noise.json and prints the tables and the text of
the page. The folders are those of the commands on that page.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from hierlearn.lab.noise_figures import TITLES, main_metrics, noise_verdict, rate_table
from machine import RESULTS, machine

KEPT = (
    *("noise_seed", "first_seed", "settings", "network", "valid_fraction", "machine", "versions"),
    *("candidates", "labels", "draws", "seeds", "unit", "kinds", "rates", "corrupted"),
    *("still_improving", "metrics", "directions", "level"),
)
INNERMOST = re.compile(r"([\[{])\s+([^\[\]{}]*?)\s+([\]}])")


def compact(found: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a noise study, rounded."""

    def short(node: Any) -> Any:
        if isinstance(node, dict):
            return {name: short(value) for name, value in node.items()}
        if isinstance(node, list):
            return [short(value) for value in node]
        return float(f"{node:.7g}") if isinstance(node, float) else node

    dataset = found["dataset"]
    described = {name: dataset[name] for name in ("name", "source", "rows", "splits")}
    described["classes_by_level"] = dataset["hierarchy"]["classes_by_level"]
    kept = {name: found[name] for name in KEPT}
    return {
        "dataset": described,
        **kept,
        **{name: short(found[name]) for name in ("figures", "harm")},
    }


def page(found: dict[str, Any]) -> str:
    """Return the tables and the text of one dataset."""
    lines = []
    for kind in found["kinds"]:
        lines += [f"{TITLES[kind]}:", ""]
        for metric in main_metrics(found, kind):
            lines += [*rate_table(found, kind, metric), ""]
    return "\n".join([*lines, noise_verdict(found)])


def main() -> None:
    studies = [
        compact(json.loads((Path(folder) / "noise.json").read_text())) for folder in sys.argv[1:]
    ]
    content = {"command": "the commands of docs/noise.md", "machine": machine(), "studies": studies}
    text = json.dumps(content, indent=1)
    text = INNERMOST.sub(lambda m: m[1] + " ".join(m[2].split()) + m[3], text)
    path = RESULTS / "noise.json"
    path.write_text(text + "\n")
    for found in studies:
        print(f"\n## {found['dataset']['name']}\n\n{page(found)}")
    print(f"\nwrote {path}")


if __name__ == "__main__":
    main()
