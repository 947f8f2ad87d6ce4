"""How long the sixteen rows of the paper's tables take on a CPU, ten seeds each.

    python benchmarks/bench_study_cpu.py --data-dir FOLDER --out STUDY

trains them as ``hierlearn paper`` does, two rows at a time on two cores, and writes the
seconds of every row to results/study_cpu.json. A study that is complete is only read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hierlearn.lab import paper
from machine import write

PRINTED = 8  # rows of the paper's tables; the others are ours


def seconds_of(folder: Path) -> dict[str, float]:
    """Return the summed seconds of the seeds of each row."""
    found: dict[str, float] = {}
    for line in (folder / "runs.jsonl").read_text().splitlines():
        run = json.loads(line)
        found[run["candidate"]] = round(found.get(run["candidate"], 0.0) + run["seconds"], 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", required=True, type=Path)
    asked = parser.parse_args()
    if not all((asked.out / name / "summary.json").is_file() for name in paper.EPOCHS):
        from hierlearn.cli import main as hierlearn

        paper.ROWS = paper.ROWS[:PRINTED]
        words = f"paper --seeds 10 --device cpu --data-dir {asked.data_dir}"
        sys.argv = ["hierlearn", *words.split(), "--out", str(asked.out)]
        try:
            hierlearn()
        except SystemExit as ended:
            if ended.code:
                raise
    figures = {
        name: {
            "seconds": (rows := seconds_of(asked.out / name)),
            "relative_to_bce": {key: round(value / rows["bce"], 2) for key, value in rows.items()},
        }
        for name in paper.EPOCHS
    }
    write(
        "study_cpu", figures, "python benchmarks/bench_study_cpu.py --data-dir FOLDER --out STUDY"
    )
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
