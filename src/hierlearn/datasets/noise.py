"""Noise on purpose: wrong labels and wrong parents, to measure how much each loss suffers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import DataError, quoted, unknown_name
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.hierarchy.structure import Ints

CORRUPTED = ("train", "valid")  # the test split stays clean, so that it measures the damage
TRIES = 16  # random draws of a parent before its level is searched


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
