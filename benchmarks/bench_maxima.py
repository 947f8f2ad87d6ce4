"""MCLoss and the losses of rows on a GPU: the Triton kernels against the plain path.

Measured as in bench_kernels.py. Run with ``python benchmarks/bench_maxima.py``; the figures go to
results/maxima.json.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from bench_kernels import (
    DEVICE,
    LARGE,
    SHAPES,
    alternate,
    bandwidth,
    check_agreement,
    compared,
    labels,
    peak,
    step,
)
from bench_losses import tree
from hierlearn.losses import LOSSES, MCLoss
from hierlearn.losses.loss import ElementwiseLoss
from machine import write


class PlainMCLoss(MCLoss):
    """MCLoss by its plain path."""

    forward = ElementwiseLoss.forward


def measure(copied: float) -> dict[str, Any]:
    """Return the times of MCLoss and of the row losses: kernels and the plain path."""
    found = {}
    for shape in LARGE:
        rows, sizes, rounds = SHAPES[shape]
        torch.manual_seed(0)
        hierarchy = tree(sizes)
        targets = labels(hierarchy, rows)
        x = torch.randn(rows, len(hierarchy), device=DEVICE, requires_grad=True)
        leaves = targets[:, hierarchy.leaves].float().argmax(dim=1)
        floors = {"float32": 14e3 * x.numel() / copied}
        figures: dict[str, Any] = {"levels": sizes}
        loss = MCLoss(hierarchy, validate=False).to(DEVICE)
        plain = PlainMCLoss(hierarchy, validate=False).to(DEVICE)
        steps = {"kernels": step(loss, x, targets)}
        times = alternate(steps, rounds)
        times["peak"] = peak(steps["kernels"], x)
        check_agreement(loss, plain, x[:256], targets[:256], 1e-4)
        times |= alternate({"plain": step(plain, x, targets)}, 3, warm_up=1)
        figures["mcloss"] = compared(times, floors)
        print(shape, "mcloss", figures["mcloss"], flush=True)
        steps = {"cross entropy": step(cross_entropy, x, leaves)}
        for name in ("leaf-ce", "hxe", "soft-labels", "cond-softmax"):
            steps[name] = step(LOSSES[name](hierarchy, validate=False).to(DEVICE), x, targets)
        times = alternate(steps, 5, warm_up=2)
        figures["rows"] = {name: round(value, 4) for name, value in times.items()}
        print(shape, "rows", figures["rows"], flush=True)
        found[shape] = figures
        del x, targets, steps, leaves, loss
    return found


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("bench_maxima needs a GPU")
    path = write("maxima", measure(bandwidth()), "python benchmarks/bench_maxima.py")
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
