"""Do classes as points of hyperbolic space, or as boxes, beat a linear layer?

The recipe ``flat`` with five heads on the same encoder, evaluated on validation rows
(nothing here sees a test row):

    linear       logits = W z + b
    points       logits = b - s |z - e_c|^2, in 64 dimensions: the control of the next two
    hyperbolic   the same with the squared distance of the Poincare ball
    nested       hyperbolic, begun with every class near its parent, farther out
    boxes        logits = b - s (sum over dimensions of softplus(|z - center_c| - width_c))

Run with ``python benchmarks/bench_label_geometry.py FOLDER [set ...]``, the folder of the sets of
Clus; the figures go to results/label_geometry.json.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from bench_recipes import rows_of
from hierlearn.hierarchy.labels import Labels
from hierlearn.links import HeadOutput
from hierlearn.metrics.measure import measure
from hierlearn.networks.heads import HEADS, LinearHead
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.settings import Plan
from machine import write

SETS = ("diatoms", "cellcycle_fun")
SIZE = 64  # of the space of classes
SEEDS = 2
SCALE, RATE = 16.0, 3e-3  # of distances: the best of 1, 4, 16 and 1e-3, 3e-3 on Diatoms
MOST = 1 - 1e-4  # the largest norm in the ball


class Points(LinearHead):
    """Classes are points, and a class is the more probable the nearer its point is."""

    stackable = False

    def __init__(self, features: int, label_space: Any, link: Any = "sigmoid") -> None:
        super().__init__(features, label_space, link)
        classes = len(self.link.hierarchy)
        self.linear = nn.Linear(features, SIZE)
        self.points = nn.Parameter(torch.randn(classes, SIZE) / SIZE**0.5)
        self.bias = nn.Parameter(torch.zeros(classes))
        self.log_scale = nn.Parameter(torch.full((classes,), SCALE).log())

    def distances(self, z: Tensor) -> Tensor:
        """Return (N, C) squared distances."""
        return torch.cdist(z, self.points).square()

    def forward(self, features: Tensor) -> HeadOutput:
        """Return the logits with their link."""
        found = self.distances(self.linear(features))
        return HeadOutput.from_logits(self.bias - self.log_scale.exp() * found, self.link)

    @torch.no_grad()
    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Begin with the class priors, at the mean distance of random points."""
        prior = self.link.prior_logits(counts, terminal_counts, rows)
        self.bias.copy_(prior.to(self.bias) + self.log_scale.exp() * 2)


class Hyperbolic(Points):
    """Points of the Poincare ball, given by their logarithm at the origin."""

    def distances(self, z: Tensor) -> Tensor:
        """Return squared hyperbolic distances."""
        x, y = in_ball(z), in_ball(self.points)
        apart = (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T).clamp_min(1e-9)
        room = (1 - x.square().sum(1))[:, None] * (1 - y.square().sum(1))
        return torch.acosh(1 + 2 * apart / room + 1e-7).square()


class Nested(Hyperbolic):
    """Hyperbolic, and every class begins near its parent, one step farther from the origin."""

    def __init__(self, features: int, label_space: Any, link: Any = "sigmoid") -> None:
        super().__init__(features, label_space, link)
        hierarchy = self.link.hierarchy
        parents = hierarchy.structure.first_parents
        with torch.no_grad():
            for number in range(len(hierarchy)):
                way = torch.randn(SIZE) / SIZE**0.5
                parent = int(parents[number])
                above = torch.zeros(SIZE) if parent < 0 else self.points[parent]
                self.points[number] = above + way * 0.7


class Boxes(Points):
    """Classes are boxes: a class is probable where the point is inside in all dimensions."""

    def __init__(self, features: int, label_space: Any, link: Any = "sigmoid") -> None:
        super().__init__(features, label_space, link)
        self.log_width = nn.Parameter(torch.zeros(len(self.link.hierarchy), SIZE))

    def distances(self, z: Tensor) -> Tensor:
        """Return how far outside a point is, summed over dimensions, each a softplus."""
        outside = (z[:, None] - self.points).abs() - self.log_width.exp()
        return softplus(outside, beta=4).sum(dim=2)


def in_ball(v: Tensor) -> Tensor:
    """Return the exponential map of vectors at the origin, a little inside the ball."""
    norm = v.norm(dim=1, keepdim=True).clamp_min(1e-9)
    return v / norm * torch.tanh(norm).clamp_max(MOST)


KINDS = {
    "linear": None,
    "points": Points,
    "hyperbolic": Hyperbolic,
    "nested": Nested,
    "boxes": Boxes,
}


def figures(name: str, folder: str) -> dict[str, Any]:
    """Return AU(PRC) on the validation rows and seconds, by head and seed."""
    training, valid = rows_of(name, folder)
    targets = Labels(valid.labels, valid.hierarchy).targets()
    found: dict[str, Any] = {}
    for kind, head in KINDS.items():
        if head is not None:
            HEADS[kind] = head
        values, begun = [], time.perf_counter()
        for seed in range(SEEDS):
            rate = {} if head is None else {"learning_rate": RATE}
            settings = {"seed": seed, "device": "cpu", **rate}
            plan = Plan(recipe="flat", head=kind, settings=settings)
            model = train(training, plan, reporting=Reporting(bar=False))
            p = model.probabilities(valid.inputs)
            values.append(measure(p, targets, model.label_space, ["au-prc"])["au-prc"])
        spent = (time.perf_counter() - begun) / SEEDS
        found[kind] = {"au-prc": values, "mean": float(np.mean(values)), "seconds": round(spent, 1)}
        print(f"{name}: {kind} {found[kind]['mean']:.4f}, {spent:.1f} s", flush=True)
    return found


def main() -> None:
    """Measure and write."""
    folder, *names = sys.argv[1:]
    command = "python benchmarks/bench_label_geometry.py FOLDER"
    write("label_geometry", {name: figures(name, folder) for name in names or SETS}, command)


if __name__ == "__main__":
    main()
