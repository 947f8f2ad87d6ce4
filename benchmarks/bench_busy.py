"""Seconds of a fit with no option set, on a quiet machine and beside busy processes.

    python benchmarks/bench_busy.py

Generated numbers of the shapes that users brought, and texts. A busy process counts to no end, on
any core, until it is stopped after each fit. Every fit is in a process of its own, imports left
out, but for those that a first fit makes. Figures are medians of a few runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack

from machine import write

FIT = """
import sys, time
import numpy as np
from sklearn.datasets import make_classification
from hierlearn import HierarchicalClassifier

rows, columns, classes = map(int, sys.argv[1:4])
if columns:
    X, y = make_classification(
        rows, columns, n_informative=min(columns, 20), n_redundant=0, n_classes=classes,
        n_clusters_per_class=1, class_sep=2.0, random_state=0,
    )
else:
    draw = np.random.default_rng(0)
    y = draw.integers(0, classes, rows)
    words = np.array([f"word{n}" for n in range(5000)])
    X = [" ".join(words[(draw.integers(0, 400, 8) + 11 * one) % 5000]) for one in y]
labels = [f"{one // 10}/{one}" for one in y]
begun = time.perf_counter()
HierarchicalClassifier().fit(X, labels)
print(time.perf_counter() - begun)
"""
BUSY = "while True: pass"
SHAPES = {
    "1,600 x 70, 50 classes": (1600, 70, 50),
    "5,000 x 22, 10 classes": (5000, 22, 10),
    "28,000 x 38, 22 classes": (28_000, 38, 22),
    "15,000 texts, 150 classes": (15_000, 0, 150),
}


def seconds(shape: tuple[int, int, int], beside: int) -> float:
    """Return the seconds of one fit, with some busy processes beside it."""
    with ExitStack() as stack:
        for _ in range(beside):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            stack.callback(busy.kill)
        found = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FIT, *map(str, shape)],
            capture_output=True,
            text=True,
            check=True,
            timeout=900,
        )
        return float(found.stdout.split()[-1])


def main() -> None:
    """Measure every shape quiet, and beside one and three busy processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    figures = {}
    for name, shape in SHAPES.items():
        found = {
            beside: statistics.median(seconds(shape, beside) for _ in range(runs))
            for beside in (0, 1, 3)
        }
        figures[name] = {
            "quiet": found[0],
            "beside one": found[1] / found[0],
            "beside three": found[3] / found[0],
        }
        print(name, json.dumps(figures[name]), flush=True)
    write("busy", figures, "python benchmarks/bench_busy.py")


if __name__ == "__main__":
    main()
