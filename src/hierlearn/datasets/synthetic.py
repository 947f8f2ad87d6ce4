"""Synthetic data: a random taxonomy, and rows drawn around its classes.

Every class c has a center, its parents' mean center plus an offset that shrinks with the level:

    mu(c) = mean over parents p of mu(p) + decay^(m(c) - 1) * g(c),    g(c) ~ N(0, I)

so classes that are close in the taxonomy are close in space. A row with the terminal classes T is
x = mean over T of mu + spread * N(0, I).
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.noise import check_rate, seeded, with_hierarchy_noise, with_label_noise
from hierlearn.errors import DataError
from hierlearn.hierarchy import Hierarchy

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUNTS = ("rows", "features", "depth", "fan_out", "labels_per_row")
RATES = ("ragged", "dag")
SPLITS = ("train", "valid", "test")


def random_hierarchy(
    depth: int, fan_out: int, rng: np.random.Generator, *, ragged: float = 0.0, dag: float = 0.0
) -> Hierarchy:
    """Grow a hierarchy level by level.

    Args:
        depth: the number of levels.
        fan_out: the children of every inner class, and the number of top classes.
        rng: the random generator.
        ragged: the fraction of classes above the last level that stay leaves; at least one class
            per level does not.
        dag: the fraction of classes below level 1 that get a second parent.
    """
    levels = [[f"c{number}" for number in range(fan_out)]]
    parents: dict[str, list[str]] = {name: [] for name in levels[0]}
    while len(levels) < depth:
        growing = [name for name in levels[-1] if rng.random() >= ragged] or levels[-1][:1]
        below: list[str] = []
        for parent in growing:
            for _ in range(fan_out):
                name = f"c{len(parents)}"
                others = [other for other in growing if other != parent]
                second = [str(rng.choice(others))] if others and rng.random() < dag else []
                parents[name] = [parent, *second]
                below.append(name)
        levels.append(below)
    return Hierarchy.from_parents(parents)


@dataclass(frozen=True)
class Synthetic:
    """The options of ``make_synthetic``; checks itself.

    Attributes:
        rows: N.
        features: D.
        depth: the number of levels.
        fan_out: the children of every inner class.
        ragged: the fraction of inner classes that are leaves instead.
        dag: the fraction of classes with a second parent.
        labels_per_row: the most terminal classes of a row; each row has between 1 and this many.
        decay: the factor by which offsets shrink per level; small values make siblings similar.
        spread: the standard deviation of a row around its center.
        label_noise: the fraction of training and validation rows with a wrong label.
        hierarchy_noise: the fraction of edges that lead to a wrong parent.
        seed: the same seed gives the same data.
    """

    rows: int = 2000
    features: int = 32
    depth: int = 3
    fan_out: int = 4
    ragged: float = 0.0
    dag: float = 0.0
    labels_per_row: int = 1
    decay: float = 0.6
    spread: float = 0.5
    label_noise: float = 0.0
    hierarchy_noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in COUNTS:
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in RATES:
            check_rate(name, getattr(self, name))

    def draw_centers(self, hierarchy: Hierarchy, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return (C, D) the center of each class."""
        centers = np.zeros((len(hierarchy), self.features))
        for number in range(len(hierarchy)):
            above = list(hierarchy.parents(number))
            size = self.decay ** (int(hierarchy.levels[number]) - 1)
            offset = size * rng.standard_normal(self.features)
            centers[number] = offset + (centers[above].mean(axis=0) if above else 0)
        return centers

    def draw_rows(
        self, hierarchy: Hierarchy, centers: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], list[list[str]]]:
        """Return (N, D) rows around the centers of their terminal classes, and their labels."""
        inputs = np.empty((self.rows, self.features))
        labels: list[list[str]] = []
        most = min(self.labels_per_row, len(hierarchy.leaves))
        for row in range(self.rows):
            chosen = rng.choice(hierarchy.leaves, size=rng.integers(1, most + 1), replace=False)
            noise = self.spread * rng.standard_normal(self.features)
            inputs[row] = centers[chosen].mean(axis=0) + noise
            labels.append([hierarchy.names[number] for number in np.sort(chosen)])
        return inputs.astype(np.float32), labels

    def draw(self) -> Dataset:
        """Draw the dataset."""
        rng = seeded(self.seed)
        hierarchy = random_hierarchy(
            self.depth, self.fan_out, rng, ragged=self.ragged, dag=self.dag
        )
        inputs, labels = self.draw_rows(hierarchy, self.draw_centers(hierarchy, rng), rng)
        cuts = [round(0.6 * self.rows), round(0.8 * self.rows)]
        parts = np.split(rng.permutation(self.rows), cuts)
        dataset = Dataset(
            inputs=inputs,
            labels=labels,
            hierarchy=hierarchy,
            splits={name: np.sort(part) for name, part in zip(SPLITS, parts, strict=True)},
            name="synthetic",
            feature_names=tuple(f"x{number}" for number in range(self.features)),
            source=f"drawn at random with seed {self.seed}",
        )
        dataset = with_label_noise(dataset, self.label_noise, self.seed)
        return with_hierarchy_noise(dataset, self.hierarchy_noise, self.seed)


def make_synthetic(**options: Any) -> Dataset:
    """Draw a dataset with splits "train" (60 %), "valid" (20 %) and "test" (20 %).

    Args:
        options: the attributes of ``Synthetic``, such as ``rows=200, depth=4, seed=7``.
    """
    return Synthetic(**options).draw()


make_synthetic.__signature__ = signature(Synthetic)  # type: ignore[attr-defined]
