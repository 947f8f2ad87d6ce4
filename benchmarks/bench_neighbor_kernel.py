"""The Triton kernels of the neighbor head on a GPU, relative to the plain path and to matmuls.

A step is a comparison of a batch with candidates, cross entropy, and the gradients of both
embeddings and of the scale. The floor is the time of three matmuls of these sizes by torch, of
distances, and of both gradients, which no version avoids. Steps alternate in one loop, each
between two CUDA events; medians in milliseconds. The host does not wait in between.
Run with ``python benchmarks/bench_neighbor_kernel.py``; the figures go to
results/neighbor_kernel.json.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bench_kernels import alternate, captured
from bench_losses import tree
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels import neighbor_head
from hierlearn.losses import LOSSES
from hierlearn.memory import Candidates, LabelSets, NeighborHead, SetCandidates
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = {  # rows, candidates, width, classes of each level
    "(1024, 100000, 256, 10000)": (1024, 100_000, 256, (10, 100, 1000, 8890)),
    "(4096, 50000, 128, 1000)": (4096, 50_000, 128, (10, 90, 900)),
}
SMALL = {
    "(128, 2048, 256, 1000)": (128, 2048, 256, (10, 90, 900)),
    "(512, 2048, 256, 1000)": (512, 2048, 256, (10, 90, 900)),
    "(1024, 4096, 256, 1000)": (1024, 4096, 256, (10, 90, 900)),
    "(1024, 16384, 256, 1000)": (1024, 16384, 256, (10, 90, 900)),
    "(512, 2048, 256, 10000)": (512, 2048, 256, (10, 100, 1000, 8890)),
}
DEVICE = "cuda"
CHECKED = 128  # rows whose answers and gradients are compared with double precision


class Step:
    """A batch whose rows are among its candidates, each of one random class."""

    def __init__(self, rows: int, count: int, width: int, sizes: tuple[int, ...]) -> None:
        draw = np.random.default_rng(0)
        torch.manual_seed(0)
        self.hierarchy = tree(sizes)
        names = draw.integers(0, len(self.hierarchy), count)
        labels = Labels([[int(one)] for one in names], self.hierarchy, numbers=True)
        self.labels = LabelSets.from_labels(labels)
        sets = torch.from_numpy(self.labels.of_row).to(DEVICE)
        keys = torch.arange(count, device=DEVICE)
        self.sparse = SetCandidates(self.labels, sets, keys[:rows], keys)
        # Near the center of their class, as embeddings that were trained are.
        centers = torch.randn(len(self.hierarchy), width, device=DEVICE)
        noise = torch.randn(count, width, device=DEVICE)
        self.x = centers[torch.from_numpy(names).to(DEVICE)] + 0.7 * noise
        self.q = self.x[:rows].clone()
        self.targets = self.labels.targets(sets[:rows])
        self.loss = LOSSES["bce"](self.hierarchy).to(DEVICE)
        self.scale = width / 4

    @property
    def dense(self) -> Candidates:
        """The same candidates for the plain path."""
        return Candidates(self.sparse.targets, self.sparse.excluded)

    def run(self, candidates: Any, dtype: torch.dtype = torch.float32) -> Callable[[], Any]:
        """Return a step that returns the loss and the gradients of embeddings and scale."""
        head = NeighborHead(self.hierarchy, nn.Identity(), scale=self.scale, learn_scale=True)
        head = head.to(DEVICE, dtype)
        q, x = (one.to(dtype).requires_grad_() for one in (self.q, self.x))

        def once() -> tuple[torch.Tensor, ...]:
            output = head.compare(q, x, candidates)
            loss = self.loss(output, self.targets[: len(q)])
            return loss, *torch.autograd.grad(loss, (q, x, head.scale.log_scale))

        return once


def errors(shape: tuple[Any, ...]) -> dict[str, float]:
    """Return the relative errors of a few rows of a shape, by norm."""
    step = Step(CHECKED, *shape[1:])
    expected = step.run(step.dense, torch.float64)()
    found = {}
    for name, candidates in (("kernels", step.sparse), ("plain", step.dense)):
        values = zip(step.run(candidates)(), expected, strict=True)
        found[name] = [float((a - b).norm() / b.norm()) for a, b in values]
    names = ("loss", "rows", "candidates", "scale")
    return {
        f"{kind}, {name}": float(f"{one:.1e}")
        for kind, values in found.items()
        for name, one in zip(names, values, strict=True)
    }


def peak(run: Callable[[], Any]) -> float:
    """Return the most gigabytes beyond what was held before."""
    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 1e9, 2)


def matmuls(step: Step) -> Callable[[], Any]:
    """Return the three matmuls of a step."""
    q, x = step.q, step.x
    given = torch.randn(len(q), len(x), device=DEVICE)
    return lambda: (q @ x.T, given @ x, given.T @ q)


def measure(shape: tuple[Any, ...], *, rounds: int, plain_rounds: int) -> dict[str, Any]:
    """Return times, memory and ratios of a shape."""
    step = Step(*shape)
    figures: dict[str, Any] = {"levels": shape[3]}
    milliseconds: dict[str, float] = {}
    for name, precision in (("float32", "highest"), ("TF32", "high")):
        torch.set_float32_matmul_precision(precision)
        steps = {
            "kernels": step.run(step.sparse),
            "kernels, in a graph": captured(step.run(step.sparse)),
            "matmuls": matmuls(step),
        }
        found = alternate(steps, rounds)
        memory = {"kernels": peak(steps["kernels"])}
        plain = step.run(step.dense)
        found |= alternate({"plain": plain}, plain_rounds, warm_up=2)
        memory["plain"] = peak(plain)
        milliseconds |= {f"{one}, {name}": round(value, 3) for one, value in found.items()}
        figures[f"kernels_over_matmuls, {name}"] = round(found["kernels"] / found["matmuls"], 2)
        in_graph = found["kernels, in a graph"]
        figures[f"kernels_in_a_graph_over_matmuls, {name}"] = round(in_graph / found["matmuls"], 2)
        figures[f"plain_over_kernels, {name}"] = round(found["plain"] / found["kernels"], 2)
        figures[f"gigabytes, {name}"] = memory
        del steps, plain
        torch.cuda.empty_cache()
    torch.set_float32_matmul_precision("highest")
    return {**figures, "milliseconds": milliseconds}


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("bench_neighbor_kernel needs a GPU")
    neighbor_head.LEAST = 0
    figures: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        figures[name] = measure(shape, rounds=20, plain_rounds=5)
        figures[name]["relative_errors"] = errors(shape)
        print(name, figures[name], flush=True)
    for name, shape in SMALL.items():
        figures[name] = measure(shape, rounds=20, plain_rounds=20)
        print(name, figures[name], flush=True)
    path = write("neighbor_kernel", figures, "python benchmarks/bench_neighbor_kernel.py")
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
