"""Speed and memory of every loss, forward and backward, relative to torch's binary cross entropy.

Each loss and torch's eager binary_cross_entropy_with_logits alternate in one loop, so that a busy
moment of the machine affects both and no third loss interferes; medians of each, and their ratio,
with CPU kernels (numba) and without.
Run with ``python benchmarks/bench_losses.py``; the figures go to results/losses.json.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from hierlearn import Hierarchy
from hierlearn.kernels import choose
from hierlearn.losses import LOSSES, HCLLoss
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = {  # rows, classes of each level, rounds
    "(128, 398)": (128, (85, 310, 3), 400),
    "(256, 4000)": (256, (8, 64, 512, 3416), 60),
    "(1024, 10000)": (1024, (10, 100, 1000, 8890), 9),
}
COMPILED = ("hcl", "hcl-hier", "bce")


def tree(sizes: tuple[int, ...]) -> Hierarchy:
    """Return a tree with these level sizes, children spread evenly."""
    parents: list[int] = []
    above = (0, 0)
    for size in sizes:
        begin = len(parents)
        first, count = above
        parents += [first + place * count // size if count else -1 for place in range(size)]
        above = (begin, size)
    return Hierarchy.from_parents(parents)


def batch(hierarchy: Hierarchy, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    numbers = torch.randint(0, len(hierarchy), (rows,))
    targets = hierarchy.encode([[hierarchy.names[int(c)]] for c in numbers]).float()
    return torch.randn(rows, len(hierarchy), requires_grad=True), targets


def step(
    loss: Callable[..., torch.Tensor], logits: torch.Tensor, targets: torch.Tensor
) -> Callable[[], None]:
    def run() -> None:
        logits.grad = None
        loss(logits, targets).backward()

    return run


def alternate(
    steps: dict[str, Callable[[], None]], rounds: int, warm_up: int = 3
) -> dict[str, float]:
    """Return the median seconds of each step; all alternate."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        for _ in range(warm_up):
            run()
    for _ in range(rounds):
        for name, run in steps.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(runs) for name, runs in times.items()}


def speed() -> dict[str, Any]:
    found = {}
    for shape, (rows, sizes, rounds) in SHAPES.items():
        hierarchy = tree(sizes)
        logits, targets = batch(hierarchy, rows)
        losses: dict[str, Any] = {"torch bce": binary_cross_entropy_with_logits}
        losses |= {name: make(hierarchy) for name, make in LOSSES.items()}
        losses["hcl, sigmoid, levels"] = HCLLoss.paper(hierarchy, floor=0.1)
        for name in COMPILED:
            loss = losses["torch bce"] if name == "bce" else LOSSES[name](hierarchy)
            losses[f"{name}, compiled"] = torch.compile(loss, fullgraph=True)
        plain = step(losses.pop("torch bce"), logits, targets)
        found[shape] = {}
        for name, loss in losses.items():
            run = step(loss, logits, targets)
            pair = alternate({"plain": plain, "loss": run}, rounds)
            found[shape][name] = {
                "microseconds": round(1e6 * pair["loss"], 1),
                "torch_bce_microseconds": round(1e6 * pair["plain"], 1),
                "ratio": round(pair["loss"] / pair["plain"], 2),
            }
            if "compiled" not in name:
                with mock.patch.object(choose, "has_numba", return_value=False):
                    pair = alternate({"plain": plain, "loss": run}, max(3, rounds // 10), warm_up=1)
                ratio = round(pair["loss"] / pair["plain"], 2)
                found[shape][name]["ratio_without_kernels"] = ratio
        print(shape, {name: value["ratio"] for name, value in found[shape].items()}, flush=True)
    return found


def dense_mcloss(is_below: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Return MCLoss as its authors write it, with an N x C x C tensor."""

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        p = logits.sigmoid()
        best = (p[:, None, :] * is_below).amax(dim=2)
        positive = ((p * targets)[:, None, :] * is_below).amax(dim=2)
        return binary_cross_entropy(targets * positive + (1 - targets) * best, targets)

    return loss


def mcloss() -> dict[str, Any]:
    hierarchy = tree((8, 64, 512, 3416))
    logits, targets = batch(hierarchy, 64)
    offsets, ids = hierarchy.structure.closure
    is_below = torch.zeros(len(hierarchy), len(hierarchy))
    rows = torch.repeat_interleave(torch.arange(len(hierarchy)), torch.tensor(offsets).diff())
    is_below[torch.tensor(ids), rows] = 1  # ancestor, descendant
    losses = {"mcloss": LOSSES["mcloss"](hierarchy), "dense": dense_mcloss(is_below)}
    with torch.no_grad():
        both = [float(loss(logits[:4], targets[:4])) for loss in losses.values()]
    medians = alternate({n: step(f, logits, targets) for n, f in losses.items()}, 1, warm_up=1)
    return {
        "shape": "(64, 4000)",
        "milliseconds": {name: round(1e3 * value, 2) for name, value in medians.items()},
        "times_faster": round(medians["dense"] / medians["mcloss"], 1),
        "difference_of_the_two_on_4_rows": abs(both[0] - both[1]),
    }


MEMORY = """
import re, sys
sys.path.insert(0, {folder!r})
from bench_losses import batch, step, tree
from hierlearn.losses import LOSSES

def peak(reset=False):
    if reset:
        open("/proc/self/clear_refs", "w").write("5")
    return 1024 * int(re.search(r"VmHWM:\\s+([0-9]+)", open("/proc/self/status").read())[1])

small = tree((2, 3)); step(LOSSES[{name!r}](small), *batch(small, 60000))()  # loads kernels
hierarchy = tree({sizes!r}); logits, targets = batch(hierarchy, {rows})
run = step(LOSSES[{name!r}](hierarchy), logits, targets)
before = peak(reset=True)
run()
print((peak() - before) / logits.nbytes)
"""


def memory() -> dict[str, float]:
    """Return the peak beyond logits and targets, gradient included, in units of the logits."""
    from pathlib import Path

    folder = str(Path(__file__).parent)
    found = {}
    for name in ("bce", "hcl", "hcl-hier", "mcloss"):
        code = MEMORY.format(folder=folder, name=name, sizes=(10, 100, 1000, 8890), rows=4096)
        found[name] = round(float(subprocess.check_output([sys.executable, "-c", code])), 2)
    return found


def main() -> None:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    figures = {
        "peak_memory_in_logits_at_(4096, 10000)": memory(),
        "forward_and_backward": speed(),
        "mcloss_against_dense": mcloss(),
    }
    path = write("losses", figures, "python benchmarks/bench_losses.py")
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
