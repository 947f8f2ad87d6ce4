"""Random batches for the loss tests: a hierarchy, logits, closed targets, a mask."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from hierlearn import Hierarchy, LabelSpace

FLAT = Hierarchy.from_paths(list("abcdef"))
RAGGED = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


@dataclass
class Batch:
    hierarchy: Hierarchy
    logits: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor | None

    @property
    def parents(self):
        return [list(self.hierarchy.parents(c)) for c in range(len(self.hierarchy))]

    @property
    def lists(self):
        """Logits and targets as plain lists, for the oracles."""
        return self.logits.tolist(), self.targets.int().tolist()

    @property
    def mask_list(self):
        return None if self.mask is None else self.mask.tolist()


def random_hierarchy(rng: random.Random, most: int = 12, dag: bool = False) -> Hierarchy:
    parents: dict[str, list[str]] = {}
    for node in range(rng.randint(1, most)):
        wanted = rng.choice([0, 1, 1, 1, 2] if dag else [0, 1, 1, 1])
        above = rng.sample(range(node), min(wanted, node))
        parents[f"n{node}"] = [f"n{one}" for one in above]
    return Hierarchy.from_parents(parents)


def random_batch(
    seed: int,
    *,
    dag: bool = False,
    labels: tuple[int, int] = (0, 2),
    masked: bool | None = None,
    scale: float | None = None,
    rows: tuple[int, int] = (1, 5),
) -> Batch:
    """Draw a batch; ``labels`` bounds the number of labels per row, at any level."""
    rng = random.Random(seed)
    hierarchy = random_hierarchy(rng, dag=dag)
    count, classes = rng.randint(*rows), len(hierarchy)
    generator = torch.Generator().manual_seed(seed)
    scale = rng.choice([0.1, 1.0, 5.0]) if scale is None else scale
    logits = scale * torch.randn(count, classes, dtype=torch.float64, generator=generator)
    rows_ = [[rng.randrange(classes) for _ in range(rng.randint(*labels))] for _ in range(count)]
    use_mask = rng.random() < 0.5 if masked is None else masked
    mask = torch.rand(count, classes, generator=generator) < 0.7 if use_mask else None
    return Batch(hierarchy, logits, hierarchy.encode(rows_, numbers=True), mask)


def random_terminals(batch: Batch, seed: int) -> tuple[LabelSpace, list[int]]:
    """Declare some classes terminal; return the label space and the list for the reference."""
    rng = random.Random(seed)
    inner = [c for c in range(len(batch.hierarchy)) if rng.random() < 0.4]
    everything = sorted({*inner, *batch.hierarchy.leaves.tolist()})
    return LabelSpace(batch.hierarchy, inner), everything


def flat_batch():
    """Logits, one-hot targets and class numbers of 9 rows over the classes of FLAT."""
    torch.manual_seed(0)
    numbers = torch.randint(0, 6, (9,))
    logits = torch.randn(9, 6, dtype=torch.float64)
    return logits, F.one_hot(numbers, 6).bool(), numbers


def leaf_batch(rows=6):
    """Logits, closed targets and leaf numbers of rows labeled with leaves of RAGGED; its leaves."""
    torch.manual_seed(1)
    leaves = torch.from_numpy(RAGGED.leaves.copy())
    numbers = leaves[torch.randint(0, len(leaves), (rows,))]
    targets = RAGGED.encode([[RAGGED.names[int(c)]] for c in numbers])
    return torch.randn(rows, len(RAGGED), dtype=torch.float64), targets, numbers, leaves
