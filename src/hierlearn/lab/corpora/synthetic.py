"""Synthetic data: a random taxonomy and rows around its classes; and noise on purpose.

Every class c has a center, its parents' mean center plus an offset that shrinks with the level:

    mu(c) = mean over parents p of mu(p) + decay^(m(c) - 1) * g(c),    g(c) ~ N(0, I)

so classes that are close in the taxonomy are close in space. A row with the terminal classes T is
x = mean over T of mu + spread * N(0, I). Noise gives rows wrong labels and classes wrong parents,
to measure how much each loss suffers.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from inspect import signature
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError, quoted, unknown_name
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy.structure import Ints


CORRUPTED = ("train", "valid")  # the test split stays clean, so that it measures the damage
TRIES = 16  # random draws of a parent before its level is searched
COUNTS = ("rows", "features", "depth", "fan_out", "labels_per_row")
RATES = ("ragged", "dag")
SPLIT_NAMES = ("train", "valid", "test")


def check_rate(name: str, rate: float) -> None:
    """Refuse a rate outside [0, 1]."""
    if not 0 <= rate <= 1:
        raise DataError(f"{name} must lie in [0, 1], not {rate}")


def seeded(seed: int) -> np.random.Generator:
    """Return a random generator, or refuse a seed that NumPy does not take."""
    if seed < 0:
        raise DataError(f"seed must be at least 0, not {seed}")
    return np.random.default_rng(seed)


def with_label_noise(
    dataset: Dataset, rate: float, seed: int = 0, splits: Sequence[str] | None = None
) -> Dataset:
    """Replace the labels of a fraction of the rows by one wrong terminal class.

    Args:
        dataset: the clean rows.
        rate: the fraction of rows that get a wrong label.
        seed: decides which rows, and which labels.
        splits: the splits to corrupt; by default those of "train" and "valid" that exist, or all
            rows of a dataset without splits.
    """
    check_rate("label noise", rate)
    labels = Labels(dataset.labels, dataset.hierarchy)
    rng = seeded(seed)
    rows = rows_to_corrupt(dataset, splits)
    rows = rng.permutation(rows)[: round(rate * len(rows))]
    # Rows that have every terminal class cannot be given a wrong one.
    rows = rows[np.diff(labels.terminal[0])[rows] < len(labels.terminal_classes)]
    corrupted = list(dataset.labels)
    for row, number in zip(rows.tolist(), draw_wrong(labels, rows, rng).tolist(), strict=True):
        corrupted[row] = [dataset.hierarchy.names[number]]
    return replace(dataset, labels=corrupted)


def draw_wrong(labels: Labels, rows: Ints, rng: np.random.Generator) -> Ints:
    """Draw a terminal class for each of some rows that is none of the row's own."""
    offsets, terminal = labels.terminal
    positions, counts = expand_ranges(offsets, rows)
    width = len(labels.hierarchy)
    true = np.sort(np.repeat(np.arange(len(rows)), counts) * width + terminal[positions])
    wrong = np.zeros(len(rows), dtype=np.int64)
    waiting = np.arange(len(rows))
    while len(waiting):  # draw again where a true class was drawn
        wrong[waiting] = rng.choice(labels.terminal_classes, size=len(waiting))
        waiting = waiting[np.isin(waiting * width + wrong[waiting], true)]
    return wrong


def rows_to_corrupt(dataset: Dataset, splits: Sequence[str] | None) -> Ints:
    """Return the rows of the named splits, each once."""
    if splits is None:
        if not dataset.splits:
            return np.arange(len(dataset))
        splits = [name for name in CORRUPTED if name in dataset.splits]
        if not splits:
            raise DataError(
                f"the dataset has neither of the splits {quoted(CORRUPTED)}; "
                f"name those to corrupt with splits=, of {quoted(dataset.splits)}"
            )
    for name in splits:
        if name not in dataset.splits:
            raise DataError(unknown_name("split", name, dataset.splits))
    return np.unique(np.concatenate([np.arange(0), *(dataset.splits[name] for name in splits)]))


def with_hierarchy_noise(dataset: Dataset, rate: float, seed: int = 0) -> Dataset:
    """Move a fraction of the edges to another parent on the level of the true one.

    Rows keep their terminal classes; the names of classes change with their paths. Where every
    other parent has a child of that name already, the moved one gets a mark: ``2'``. An edge stays
    only where there is no other parent at all.

    Args:
        dataset: the clean taxonomy.
        rate: the fraction of edges that move.
        seed: decides which edges, and where to.
    """
    return corrupt_hierarchy(dataset, rate, seed)[0]


def corrupt_hierarchy(dataset: Dataset, rate: float, seed: int = 0) -> tuple[Dataset, Ints]:
    """Return what ``with_hierarchy_noise`` does, and the clean class of each corrupted one.

    Args:
        dataset: the clean taxonomy.
        rate: the fraction of edges that move.
        seed: decides which edges, and where to.

    Returns:
        The corrupted dataset, and (C,) the clean number of each class of its hierarchy.
    """
    check_rate("hierarchy noise", rate)
    dataset = with_terminal_labels(dataset)
    clean = dataset.hierarchy
    rng = seeded(seed)
    moves = EdgeMoves(clean)
    edges = np.array(moves.edges).reshape(-1, 2)
    for child, place in rng.permutation(edges)[: round(rate * len(edges))].tolist():
        moves.move(child, place, rng)
    noisy = moves.hierarchy()
    if clean.named_by == "id":
        return replace(dataset, hierarchy=noisy), clean_numbers(noisy, clean.names)
    names = moves.path_names()
    renamed = dict(zip(clean.names, names, strict=True))
    labels = [[renamed[label] for label in row] for row in dataset.labels]
    return replace(dataset, hierarchy=noisy, labels=labels), clean_numbers(noisy, names)


class EdgeMoves:
    """A hierarchy whose edges are moved one by one.

    Args:
        clean: the hierarchy to begin with.

    Attributes:
        bare: (C,) the bare name of each class, with a mark where its parent had that name already.
        parents: the parents of each class.
    """

    def __init__(self, clean: Hierarchy) -> None:
        self.clean = clean
        self.bare = list(clean.bare_names)
        self.parents = [sorted(clean.parents(number)) for number in range(len(clean))]
        self._true = [set(above) for above in self.parents]
        self._taken = Counter(  # how often a parent has a child of a name
            (parent, self.bare[child])
            for child, above in enumerate(self.parents)
            for parent in above
        )

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Each edge as a child and the position of the parent among its parents."""
        return [
            (child, place)
            for child, above in enumerate(self.parents)
            for place in range(len(above))
        ]

    def move(self, child: int, place: int, rng: np.random.Generator) -> None:
        """Move an edge to a random wrong parent on the same level, if there is one."""
        new = self._draw_parent(child, place, rng)
        if new is None:
            return
        name = self.bare[child]
        self._taken[self.parents[child][place], name] -= 1
        while self._taken[new, name]:
            name += "'"
        self._taken[new, name] += 1
        self.bare[child] = name
        self.parents[child][place] = new

    def _draw_parent(self, child: int, place: int, rng: np.random.Generator) -> int | None:
        """Draw a class that never was a parent, if possible without a child of the same name."""
        name = self.bare[child]
        level = self.clean.level_slices[self.clean.levels[self.parents[child][place]] - 1]
        barred = self._true[child].union(self.parents[child])
        for drawn in rng.integers(level.start, level.stop, size=TRIES).tolist():
            if drawn not in barred and not self._taken[drawn, name]:
                return int(drawn)
        others = [one for one in range(level.start, level.stop) if one not in barred]
        if not others:
            return None
        return int(rng.choice([one for one in others if not self._taken[one, name]] or others))

    def hierarchy(self) -> Hierarchy:
        """Return the hierarchy as it is now."""
        # The stored form rather than a builder: it keeps the names, the separator and the root.
        form = {**json.loads(self.clean.to_json()), "names": self.bare, "parents": self.parents}
        return Hierarchy.from_json(json.dumps(form))

    def path_names(self) -> list[str]:
        """Return the name of each class, in the order of the clean hierarchy."""
        names: list[str] = []
        for name, above in zip(self.bare, self.parents, strict=True):  # parents before children
            names.append(self.clean.sep.join([*(names[parent] for parent in above), name]))
        return names


def with_terminal_labels(dataset: Dataset) -> Dataset:
    """Return the dataset with only the terminal labels of each row.

    Many files also list the ancestors of a label. In a hierarchy where they are no longer ancestors
    they would become labels of their own, although nobody annotated them.
    """
    offsets, numbers = Labels(dataset.labels, dataset.hierarchy).terminal
    names = [dataset.hierarchy.names[number] for number in numbers]
    rows = [names[begin:end] for begin, end in pairwise(offsets)]
    return replace(dataset, labels=rows)


def clean_numbers(noisy: Hierarchy, names: Sequence[str]) -> Ints:
    """Return (C,) the clean number of each noisy class; ``names`` are the noisy, in clean order."""
    number = {name: place for place, name in enumerate(names)}
    return np.array([number[name] for name in noisy.names], dtype=np.int64)


# ---------------------------------------- rows around the classes of a random taxonomy


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
            splits={name: np.sort(part) for name, part in zip(SPLIT_NAMES, parts, strict=True)},
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


ENTRY = DatasetEntry(
    "synthetic",
    "rows drawn around the classes of a random tree or DAG",
    "generated",
    make_synthetic,
)
