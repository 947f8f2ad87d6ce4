"""Label points: the distinct label sets of the training rows, embedded by what mistakes cost.

    |t_i - u_j| ~ sqrt(cost of answering set j where set i is true),    weighted by the rows of i

t_i is the point of set i as the truth and u_i as an answer; pairs within a role have weight 0.
Huang and Lin (2017), by weighted SMACOF. Where there are more sets than points, the most frequent
ones have points, and a row of another trains towards the one that costs it least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.hierarchy.chunks import row_chunks
from hierlearn.links.label_points import LabelPoints
from hierlearn.memory.label_sets import LabelSets, labels_of, take_rows
from hierlearn.networks.ensemble import networks_in
from hierlearn.networks.set_costs import find_cost
from hierlearn.training.smacof import classical_start, smacof_between

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hierlearn.hierarchy.labels import Labels

    Floats = NDArray[np.float64]

ITERATIONS = 100
TOLERANCE = 1e-3  # of the stress, in one step


@dataclass(frozen=True)
class Fitted:
    """Label sets as points.

    Attributes:
        truth, answers: (K, D).
        targets: (K, C) bool.
        others: the sets without points.
        stand_ins: the number of the point that stands for each of them.
        mean: (D,) of the truth of the training rows.
        mean_cost: of answering the set of one training row to another.
        stress: of the start, and after every step.
    """

    truth: Tensor
    answers: Tensor
    targets: Tensor
    others: Labels
    stand_ins: Tensor
    mean: Tensor
    mean_cost: float
    stress: list[float]


def fit_label_points(network: nn.Module, labels: Labels, weights: Floats | None) -> None:
    """Set the points of every head ``clems`` of a network or an ensemble, and where it begins.

    Args:
        network: what will be trained.
        labels: of the training rows.
        weights: (N,) how much each row counts; None for all alike.
    """
    fitted: dict[tuple[str, int, int], Fitted] = {}
    one: Any
    for one in networks_in(network):
        for head in getattr(one, "heads", {}).values():
            if not isinstance(getattr(head, "points", None), LabelPoints):
                continue
            key = (head.cost, head.points.size, head.points.truth.shape[-2])
            if key not in fitted:
                fitted[key] = embed_sets(labels, weights, *key)
            set_points(head, fitted[key])


@torch.no_grad()
def set_points(head: Any, found: Fitted) -> None:
    """Give a head its points; its bias begins at the mean of what it is trained towards."""
    device = head.points.factors.device
    chunks = row_chunks(len(found.others), len(found.others.hierarchy))
    keys = [head.points.keys_of(found.others.targets(rows).to(device)) for rows in chunks]
    head.points.set(
        found.truth,
        found.answers,
        found.targets,
        head.temperature * (found.mean_cost or 1.0),
        (torch.cat(keys), found.stand_ins.to(device)),
    )
    bias = head.linear.bias
    bias.copy_(found.mean.to(bias).expand_as(bias))


def embed_sets(
    labels: Labels, weights: Floats | None, cost: str, size: int, count: int, seed: int = 0
) -> Fitted:
    """Return the most frequent label sets as points.

    Args:
        labels: of the training rows.
        weights: (N,) how much each row counts; None for all alike.
        cost: a name of COSTS.
        size: D.
        count: K, how many sets have points.
        seed: of where the points begin. It is that of no training, so that members of an ensemble,
            and networks trained alone with their seeds, have the same points.
    """
    sets = LabelSets.from_labels(labels)
    rows = np.bincount(sets.of_row, weights, len(sets.sets)).astype(np.float64)
    order = np.argsort(-rows, kind="stable")
    kept, others = (some_sets(sets, part) for part in (order[:count], order[count:]))
    costs = torch.from_numpy(find_cost(cost)(kept, kept))
    stand_ins = nearest_sets(others, kept, cost)
    counts = torch.from_numpy(rows[order[:count]]).float()
    counts.index_add_(0, stand_ins, torch.from_numpy(rows[order[count:]]).float())
    start = classical_start(costs, size, seed)
    found = smacof_between(
        costs.sqrt(),
        torch.cat([start, start]),
        (counts, torch.ones(len(counts))),
        iterations=ITERATIONS,
        tolerance=TOLERANCE,
    )
    truth, answers = found.points[: len(counts)], found.points[len(counts) :]
    shares = counts / counts.sum()
    return Fitted(
        truth=truth,
        answers=answers,
        targets=kept.targets(),
        others=others,
        stand_ins=stand_ins,
        mean=shares @ truth,
        mean_cost=float(shares @ costs @ shares),
        stress=found.stress,
    )


def some_sets(sets: LabelSets, numbers: Any) -> Labels:
    """Return some of the distinct label sets."""
    return labels_of(take_rows(*sets.sets.terminal, numbers), sets.sets)


def nearest_sets(others: Labels, kept: Labels, cost: str) -> Tensor:
    """Return, for each of some sets, the number of the one that costs least where it is true."""
    function, step = find_cost(cost), len(kept)
    found = [torch.zeros(0, dtype=torch.int64)]
    for begin in range(0, len(others), step):
        numbers = np.arange(begin, min(begin + step, len(others)))
        part = labels_of(take_rows(*others.terminal, numbers), others)
        found.append(torch.from_numpy(function(part, kept)).argmin(dim=1))
    return torch.cat(found)
