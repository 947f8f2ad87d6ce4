"""Synthetic data: a random taxonomy, and rows drawn around its classes.

Every class c has a center, its parents' mean center plus an offset that shrinks with the level:

    mu(c) = mean over parents p of mu(p) + decay^(m(c) - 1) * g(c),    g(c) ~ N(0, I)

so classes that are close in the taxonomy are close in space. A row with the terminal classes T is
x = mean over T of mu + spread * N(0, I).
"""

from __future__ import annotations

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.noise import check_rate, seeded, with_hierarchy_noise, with_label_noise
from hierlearn.errors import DataError
from hierlearn.hierarchy import Hierarchy


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


def make_synthetic(
    *,
    rows: int = 2000,
    features: int = 32,
    depth: int = 3,
    fan_out: int = 4,
    ragged: float = 0.0,
    dag: float = 0.0,
    labels_per_row: int = 1,
    decay: float = 0.6,
    spread: float = 0.5,
    label_noise: float = 0.0,
    hierarchy_noise: float = 0.0,
    seed: int = 0,
) -> Dataset:
    """Draw a dataset with splits "train" (60 %), "valid" (20 %) and "test" (20 %).

    Args:
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
    counts = {"rows": rows, "features": features, "depth": depth, "fan_out": fan_out}
    for name, value in {**counts, "labels_per_row": labels_per_row}.items():
        if value < 1:
            raise DataError(f"{name} must be at least 1, not {value}")
    for name, rate in {"ragged": ragged, "dag": dag}.items():
        check_rate(name, rate)
    rng = seeded(seed)
    hierarchy = random_hierarchy(depth, fan_out, rng, ragged=ragged, dag=dag)
    centers = np.zeros((len(hierarchy), features))
    for number in range(len(hierarchy)):
        above = list(hierarchy.parents(number))
        offset = decay ** (int(hierarchy.levels[number]) - 1) * rng.standard_normal(features)
        centers[number] = offset + (centers[above].mean(axis=0) if above else 0)
    inputs = np.empty((rows, features))
    labels: list[list[str]] = []
    for row in range(rows):
        most = min(labels_per_row, len(hierarchy.leaves))
        chosen = rng.choice(hierarchy.leaves, size=rng.integers(1, most + 1), replace=False)
        inputs[row] = centers[chosen].mean(axis=0) + spread * rng.standard_normal(features)
        labels.append([hierarchy.names[number] for number in np.sort(chosen)])
    order = rng.permutation(rows)
    cuts = [round(0.6 * rows), round(0.8 * rows)]
    parts = np.split(order, cuts)
    dataset = Dataset(
        inputs=inputs.astype(np.float32),
        labels=labels,
        hierarchy=hierarchy,
        splits={
            name: np.sort(part)
            for name, part in zip(("train", "valid", "test"), parts, strict=True)
        },
        name="synthetic",
        feature_names=tuple(f"x{number}" for number in range(features)),
        source=f"drawn at random with seed {seed}",
    )
    dataset = with_label_noise(dataset, label_noise, seed)
    return with_hierarchy_noise(dataset, hierarchy_noise, seed)
