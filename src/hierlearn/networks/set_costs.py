"""Costs of label sets: what answering one set costs where another is true.

    hier-dist   the mean height of the lowest common ancestor of each answered class and the nearest
                true one, averaged with that of each true class and the nearest answered one
    hamming     the classes, ancestors included, that are in one of the two sets
    hier-f1     1 - 2 |Y and Y'| / (|Y| + |Y'|), of the sets with their ancestors

A set is its most specific classes; equal classes cost nothing, and against a set without any class
each costs the height of the root. For rows with one path ``hier-dist`` is the HierDist of the
metrics with ``correct_cost="zero"``. All three are symmetric.

``COSTS`` maps a name to a function from two collections of S and K sets to their (S, K) costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.hierarchy.structure import Ints

    Costs = NDArray[np.float32]


def hier_dist_costs(truth: Labels, answers: Labels) -> Costs:
    """Return (S, K) the heights of lowest common ancestors, averaged over both directions."""
    found: Costs = mean_heights(truth, answers) + mean_heights(answers, truth).T
    found /= 2
    return found


def mean_heights(sets: Labels, others: Labels) -> Costs:
    """Return (S, K) the mean height, over the classes of a set, to the nearest of another."""
    heights = nearest_heights(others)  # (K, C)
    sizes = np.diff(sets.terminal[0])
    shares = np.repeat(1 / np.maximum(sizes, 1), sizes)
    found = np.asarray(csr(sets.terminal, len(sets.hierarchy), shares) @ heights.T)
    empty = sizes == 0
    found[empty] = np.where(np.diff(others.terminal[0]) == 0, 0, sets.hierarchy.root_height)
    return found.astype(np.float32)


def nearest_heights(sets: Labels) -> Costs:
    """Return (K, C) the height of the lowest common ancestor of each class and each set.

    It is the lowest of the class and its ancestors that a closed set contains: in a DAG, too, where
    several are common.
    """
    hierarchy = sets.hierarchy
    own = torch.tensor(hierarchy.heights, dtype=torch.float32)
    heights = torch.where(sets.targets(), own, float(hierarchy.root_height))
    heights = -hierarchy.max_down(-heights)
    offsets, numbers = sets.terminal
    rows = np.repeat(np.arange(len(sets)), np.diff(offsets))
    heights[torch.from_numpy(rows), torch.from_numpy(numbers)] = 0.0
    return heights.numpy()


def hamming_costs(truth: Labels, answers: Labels) -> Costs:
    """Return (S, K) how many classes are in one set only."""
    shared, sizes = overlaps(truth, answers)
    return sizes - 2 * shared


def hier_f1_costs(truth: Labels, answers: Labels) -> Costs:
    """Return (S, K) 1 - F1; two sets without a class agree."""
    shared, sizes = overlaps(truth, answers)
    return np.where(sizes == 0, 0, 1 - 2 * shared / np.maximum(sizes, 1)).astype(np.float32)


def overlaps(truth: Labels, answers: Labels) -> tuple[Costs, Costs]:
    """Return (S, K) the classes in both sets, and the summed sizes of the two."""
    classes = len(truth.hierarchy)
    shared = (csr(truth.closed, classes) @ csr(answers.closed, classes).T).toarray()
    sizes = np.diff(truth.closed[0])[:, None] + np.diff(answers.closed[0])
    return shared.astype(np.float32), sizes.astype(np.float32)


def csr(sets: tuple[Ints, Ints], classes: int, values: Any = None) -> Any:
    """Return sets given as offsets and class numbers as a sparse (S, C) matrix."""
    from scipy.sparse import csr_array

    offsets, numbers = sets
    data = np.ones(len(numbers)) if values is None else values
    return csr_array((data.astype(np.float32), numbers, offsets), (len(offsets) - 1, classes))


COSTS: dict[str, Callable[[Labels, Labels], Costs]] = {
    "hier-dist": hier_dist_costs,
    "hamming": hamming_costs,
    "hier-f1": hier_f1_costs,
}


def find_cost(name: str) -> Callable[[Labels, Labels], Costs]:
    """Return a cost of COSTS."""
    if name not in COSTS:
        raise HierlearnError(unknown_name("cost", name, COSTS))
    return COSTS[name]
