"""Random rows for the decoder tests: a hierarchy, probabilities, closed targets.

Probabilities are multiples of 1 / 1024, so that sums are exact in every precision used and ties
are true ties, for the decoders and for the oracles.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from losses.random_batches import random_hierarchy

if TYPE_CHECKING:
    from hierlearn import Hierarchy

UNIT = 1024


@dataclass
class Case:
    hierarchy: Hierarchy
    p: torch.Tensor  # (N, C) float64
    targets: torch.Tensor  # (N, C) bool, closed

    @property
    def parents(self):
        return [list(self.hierarchy.parents(c)) for c in range(len(self.hierarchy))]

    @property
    def rows(self):
        return self.p.tolist()

    @property
    def fractions(self):
        """The rows as exact numbers."""
        return [[Fraction(value) for value in row] for row in self.rows]


def masses(rng: random.Random, classes: int) -> list[int]:
    """Return what ends at each class, in units; the rest ends at the root."""
    left, q = UNIT, [0] * classes
    for _ in range(rng.choice([1, 2, 4, 12])):
        part = rng.choice([left, left // 2, left // 4, rng.randint(0, left)])
        q[rng.randrange(classes)] += part
        left -= part
    if rng.random() < 0.7:  # mostly nothing ends at the root
        q[rng.randrange(classes)] += left
    return q


def random_case(seed: int, *, dag: bool = False, adds_up: bool = True, most: int = 10) -> Case:
    """Draw a case; ``adds_up`` says whether p is a distribution over where a row ends."""
    rng = random.Random(seed)
    hierarchy = random_hierarchy(rng, most=most, dag=dag)
    count, classes = rng.randint(1, 6), len(hierarchy)
    if adds_up:
        q = torch.tensor([masses(rng, classes) for _ in range(count)])
        p = hierarchy.sum_up(q).double() / UNIT
    else:
        scale = rng.choice([4, UNIT])  # few values make many ties
        units = [[rng.randint(0, scale) for _ in range(classes)] for _ in range(count)]
        p = torch.tensor(units, dtype=torch.float64) / scale
    labels = [[rng.randrange(classes) for _ in range(rng.randint(0, 2))] for _ in range(count)]
    return Case(hierarchy, p, hierarchy.encode(labels, numbers=True))


def some_terminals(case: Case, seed: int) -> tuple[list[int], list[int]]:
    """Return inner classes to declare terminal, and the full list that the oracles want."""
    rng = random.Random(seed)
    inner = [c for c in range(len(case.hierarchy)) if rng.random() < 0.3]
    return inner, sorted({*inner, *case.hierarchy.leaves.tolist()})
