"""Speed and memory of the metrics at 10,000 x 4,000, and of scikit-learn's average precision.

Seconds are the median of a few calls after one warm-up. Memory is the peak beyond the inputs of
one call in a fresh process. Run with ``python benchmarks/bench_metrics.py``; the figures go to
results/metrics.json. ``--small`` tries it out at 500 x 4,000 and writes nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sklearn.metrics import average_precision_score

from bench_losses import tree
from hierlearn.metrics import METRICS
from machine import seconds, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn import Hierarchy

LEVELS = (8, 64, 512, 3416)
ROWS = 10_000
SCIKIT = "scikit-learn, micro"
MEASURED = ("au-prc", "clus-au-prc", SCIKIT)  # their memory is measured
REPEAT = {"ap-macro": 1, SCIKIT: 1}


def batch(hierarchy: Hierarchy, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return probabilities in single precision, a little better than chance, and closed targets."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, len(hierarchy), (rows,), generator=generator)
    targets = hierarchy.encode([[hierarchy.names[c]] for c in numbers.tolist()])
    logits = torch.randn(rows, len(hierarchy), generator=generator)
    return logits.add_(targets, alpha=2.0).sigmoid_(), targets


def call(
    name: str, scores: torch.Tensor, targets: torch.Tensor, hierarchy: Hierarchy
) -> Callable[[], Any]:
    """Return the call that is measured."""
    if name == SCIKIT:
        # Raveled: scikit-learn does the same with a multi-label matrix, after more checks.
        truth, values = targets.numpy().ravel(), scores.numpy().ravel()
        return lambda: average_precision_score(truth, values)
    return lambda: METRICS[name](scores, targets, hierarchy)


def speed(rows: int) -> dict[str, Any]:
    hierarchy = tree(LEVELS)
    scores, targets = batch(hierarchy, rows)
    found = {}
    for name in (*METRICS, SCIKIT):
        run = call(name, scores, targets, hierarchy)
        found[name] = {
            key: round(value, 4) for key, value in seconds(run, repeat=REPEAT.get(name, 3)).items()
        }
        print(f"{name}: {found[name]['median']} s", flush=True)
    value = float(METRICS["au-prc"](scores, targets, hierarchy))
    theirs = call(SCIKIT, scores, targets, hierarchy)()
    found["difference of au-prc and scikit-learn"] = abs(value - theirs)
    return found


MEMORY = """
import re, sys
sys.path.insert(0, {folder!r})
from bench_metrics import LEVELS, batch, call
from bench_losses import tree

def peak(reset=False):
    if reset:
        open("/proc/self/clear_refs", "w").write("5")
    return 1024 * int(re.search(r"VmHWM:\\s+([0-9]+)", open("/proc/self/status").read())[1])

hierarchy = tree(LEVELS)
call({name!r}, *batch(hierarchy, 20), hierarchy)()  # imports what is imported at first use
scores, targets = batch(hierarchy, {rows})
run = call({name!r}, scores, targets, hierarchy)
before = peak(reset=True)
run()
print(peak() - before)
"""


def memory(rows: int) -> dict[str, int]:
    """Return the peak beyond the inputs in MB (10^6 bytes)."""
    folder = str(Path(__file__).parent)
    found = {}
    for name in MEASURED:
        code = MEMORY.format(folder=folder, name=name, rows=rows)
        found[name] = round(int(subprocess.check_output([sys.executable, "-c", code])) / 1e6)
        print(f"{name}: {found[name]} MB", flush=True)
    return found


def main(rows: int) -> None:
    shape = f"({rows}, {sum(LEVELS)})"
    figures = {
        "shape": shape,
        "inputs_in_MB": round(rows * sum(LEVELS) * (4 + 1) / 1e6),
        "peak_memory_beyond_the_inputs_in_MB": memory(rows),
        "seconds": speed(rows),
    }
    if rows == ROWS:
        path = write("metrics", figures, "python benchmarks/bench_metrics.py")
        print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main(500 if "--small" in sys.argv[1:] else ROWS)
