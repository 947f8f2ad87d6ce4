"""Random memories and candidates for the tests of heads that remember."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn

from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import Candidates, LabelSets, NeighborHead, Remembered
from losses.random_batches import random_hierarchy

POLICIES = ("negative", "ignore")


class Case:
    """A hierarchy with labeled rows, embeddings and queries in double precision."""

    def __init__(self, seed, *, dag=False, policy="negative", rows=9, queries=4, width=3):
        rng = random.Random(seed)
        self.hierarchy = random_hierarchy(rng, dag=dag)
        classes = len(self.hierarchy)
        names = [[rng.randrange(classes) for _ in range(rng.randint(0, 2))] for _ in range(rows)]
        self.labels = Labels(names, self.hierarchy, unlabeled_descendants=policy, numbers=True)
        draw = torch.Generator().manual_seed(seed)
        options = {"generator": draw, "dtype": torch.float64}
        self.rows = torch.randn(rows, width, **options)
        self.queries = torch.randn(queries, width, **options)
        self.excluded = torch.rand(queries, rows, generator=draw) < 0.3
        self.counts = torch.rand(rows, **options) * 3
        self.counts[rng.randrange(rows)] = 0.0

    @property
    def parents(self):
        return [list(self.hierarchy.parents(c)) for c in range(len(self.hierarchy))]

    @property
    def targets(self):
        return self.labels.targets()

    @property
    def mask(self):
        return self.labels.mask() if self.labels.unlabeled_descendants == "ignore" else None

    def candidates(self, *, weighted=False):
        return Candidates(self.targets, self.excluded, self.mask, self.counts if weighted else None)

    def remembered(self, weights=None):
        ids = [f"row {number}" for number in range(len(self.labels))]
        return Remembered(LabelSets.from_labels(self.labels), ids, weights)

    def head(self, **options):
        return NeighborHead(self.hierarchy, nn.Identity(), **options).double()

    def full_head(self, weights=None, **options):
        """Return a head that remembers the rows in double precision."""
        head = self.head(**options)
        head.memory.set(self.rows, self.remembered(weights))
        return head


def positive_counts(case, seed):
    return np.random.default_rng(seed).uniform(0.2, 3, len(case.labels))
