"""Two revisions of hierlearn side by side: did a change make something slower?

One process per revision; both do the same work in turn, so that a busy moment of the machine meets
both alike. Loss steps (forward and backward), an epoch of the estimator on rows of the shape of
Diatoms, and a small comparison on the command line. Figures are medians of the ratios new / old.
Run with ``python benchmarks/bench_revisions.py OLD_CHECKOUT [NEW_CHECKOUT]``; the figures go to
results/revisions.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import write

SERVER = r"""
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
from hierlearn import Hierarchy, HierarchicalClassifier
from hierlearn.losses import LOSSES, HCLLoss

SHAPES = {
    "(128, 398)": (128, (85, 310, 3)),
    "(256, 4000)": (256, (8, 64, 512, 3416)),
    "(1024, 10000)": (1024, (10, 100, 1000, 8890)),
}
OLD = {"sample-curriculum": "lyu"}

def tree(sizes):
    parents, above = [], (0, 0)
    for size in sizes:
        begin, (first, count) = len(parents), above
        parents += [first + place * count // size if count else -1 for place in range(size)]
        above = (begin, size)
    return Hierarchy.from_parents(parents)

def loss_step(shape, name):
    rows, sizes = SHAPES[shape]
    h = tree(sizes)
    torch.manual_seed(0)
    y = h.encode(torch.randint(0, len(h), (rows,)).tolist(), numbers=True).float()
    x = torch.randn(rows, len(h), requires_grad=True)
    if name == "hcl, softmax, ancestors":
        loss = HCLLoss(h, link="softmax", scope="ancestors", floor=0.3, normalize="mean")
    else:
        loss = LOSSES[name if name in LOSSES else OLD[name]](h)
    def run():
        x.grad = None
        loss(x, y).backward()
    return run

def fit(name):
    draw = np.random.default_rng(0)
    leaves = [f"c{n // 4}/d{n}" for n in range(300)]
    X, y = draw.normal(size=(2065, 371)), [leaves[n] for n in draw.integers(0, 300, 2065)]
    def run():
        HierarchicalClassifier(loss=name, epochs=2, random_state=0).fit(X, y)
    return run

jobs = {}
for line in sys.stdin:
    kind, what, name, rounds = line.rstrip("\n").split("|")
    key = (kind, what, name)
    if key not in jobs:
        if len(jobs) > 2:
            jobs.clear()
        jobs[key] = loss_step(what, name) if kind == "loss" else fit(name)
        jobs[key]()
    times = []
    for _ in range(int(rounds)):
        start = time.perf_counter()
        jobs[key]()
        times.append(time.perf_counter() - start)
    print(min(times), flush=True)
"""
LOSSES = ("bce", "focal", "hxe", "soft-labels", "leaf-ce", "cond-softmax", "mcloss", "mixed", "hcl")
LOSSES = (*LOSSES, "hcl-hier", "sample-curriculum", "hcl, softmax, ancestors")
ROUNDS = {"(128, 398)": (20, 15), "(256, 4000)": (3, 9), "(1024, 10000)": (1, 5)}
COMPARE = "compare --methods bce,soft-labels,mcloss,hcl --seeds 3 --epochs 6 --learning-rate 0.01"


class Revision:
    """A process that works with one checkout."""

    def __init__(self, checkout: Path) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def seconds(self, *words: object) -> float:
        """Return the least seconds of some rounds of a job."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("|".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def compare(self) -> float:
        """Return the seconds of a small comparison on the command line."""
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            command = [sys.executable, "-m", "hierlearn", *COMPARE.split(), "--out", f"{folder}/s"]
            subprocess.run(command, env=self.environment, check=True, capture_output=True)
            return time.perf_counter() - start


def ratio(old: list[float], new: list[float]) -> dict[str, float]:
    """Return the figures of one job, in milliseconds."""
    return {
        "old_milliseconds": round(1e3 * statistics.median(old), 3),
        "new_milliseconds": round(1e3 * statistics.median(new), 3),
        "ratio": round(statistics.median(n / o for o, n in zip(old, new, strict=True)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=Path(__file__).parents[1])
    given = parser.parse_args()
    old, new = Revision(given.old), Revision(given.new)
    figures: dict[str, Any] = {}
    jobs = [("fit", "two epochs", name, (1, 7)) for name in ("bce", "hcl", "leaf-ce", "mcloss")]
    jobs += [("loss", shape, name, ROUNDS[shape]) for shape in ROUNDS for name in LOSSES]
    for kind, what, name, (rounds, times) in jobs:
        pairs = [
            (old.seconds(kind, what, name, rounds), new.seconds(kind, what, name, rounds))
            for _ in range(times)
        ]
        figures.setdefault(f"{kind}, {what}", {})[name] = ratio(
            *map(list, zip(*pairs, strict=True))
        )
        print(kind, what, name, figures[f"{kind}, {what}"][name], flush=True)
    pairs = [(old.compare(), new.compare()) for _ in range(3)]
    figures["command line"] = {COMPARE: ratio(*map(list, zip(*pairs, strict=True)))}
    print(json.dumps(figures["command line"]))
    print(write("revisions", figures, "python benchmarks/bench_revisions.py OLD_CHECKOUT"))


if __name__ == "__main__":
    main()
