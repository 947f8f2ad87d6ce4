"""Random scores and labels for the metric tests, full of ties, and comparison with the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

import strategies
from hierlearn import Hierarchy

ANIMALS = Hierarchy.from_paths(
    ["animal/dog/pug", "animal/dog/bulldog", "animal/cat", "plant/oak"]
)  # 0 animal, 1 plant, 2 cat, 3 dog, 4 oak, 5 bulldog, 6 pug; heights 2 1 0 1 0 0 0, root 3
DIAMOND = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])


@dataclass
class Batch:
    hierarchy: Hierarchy
    parents: list[list[int]]  # as the oracle wants them
    scores: torch.Tensor  # (N, C), in [0, 1], so that they are probabilities too
    targets: torch.Tensor

    @property
    def lists(self):
        return self.scores.tolist(), self.targets.tolist()

    @property
    def labeled(self) -> bool:
        return bool(self.targets.any())


@st.composite
def batches(draw, max_size=9, max_rows=6, of=strategies.taxonomies, labels=(0, 3), steps=8):
    """A taxonomy, N >= 1 rows of scores on a coarse grid (so that they tie) and closed targets."""
    taxonomy = draw(of(max_size))
    hierarchy, _ = taxonomy.build()
    classes = len(hierarchy)
    rows = draw(
        st.lists(
            st.lists(st.integers(0, classes - 1), min_size=labels[0], max_size=labels[1]),
            min_size=1,
            max_size=max_rows,
        )
    )
    grid = st.integers(0, steps).map(lambda step: step / steps)
    scores = draw(
        st.lists(
            st.lists(grid, min_size=classes, max_size=classes),
            min_size=len(rows),
            max_size=len(rows),
        )
    )
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    names = [[hierarchy.names[c] for c in row] for row in rows]
    return Batch(
        hierarchy,
        taxonomy.in_class_order(),
        torch.tensor(scores, dtype=dtype),
        hierarchy.encode(names),
    )


def random_batch(hierarchy: Hierarchy, rows: int, seed: int = 0, labels: int = 1) -> Batch:
    """Continuous scores in (0, 1) and ``labels`` random labels a row."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(rows, len(hierarchy), generator=generator, dtype=torch.float64)
    numbers = torch.randint(0, len(hierarchy), (rows, labels), generator=generator)
    names = [[hierarchy.names[c] for c in row] for row in numbers.tolist()]
    parents = [list(hierarchy.parents(c)) for c in range(len(hierarchy))]
    return Batch(hierarchy, parents, scores, hierarchy.encode(names))


def assert_same(found, expected):
    """The two are equal up to the rounding of float64 sums; NaN equals NaN."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def tree(rows):
    """Return scores as a tensor from rows of {class name: score} over ANIMALS, others 0."""
    scores = torch.zeros(len(rows), len(ANIMALS))
    for i, row in enumerate(rows):
        for name, value in row.items():
            scores[i, ANIMALS.index(name)] = value
    return scores
