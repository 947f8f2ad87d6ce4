"""Noise on purpose: wrong labels and wrong parents, to see which loss minds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import DataError
from hierlearn.hierarchy import Hierarchy
from hierlearn.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.datasets.dataset import Dataset


def check_rate(name: str, rate: float) -> None:
    """Refuse a rate outside [0, 1]."""
    if not 0 <= rate <= 1:
        raise DataError(f"{name} must lie in [0, 1], not {rate}")


def with_label_noise(
    dataset: Dataset, rate: float, seed: int = 0, splits: Sequence[str] = ("train", "valid")
) -> Dataset:
    """Replace the labels of a share of the rows by those of one other terminal class.

    Args:
        dataset: the clean rows.
        rate: the share of rows that get a wrong label.
        seed: decides which rows, and which labels.
        splits: the splits to spoil; the test split stays clean so that it measures the harm.
    """
    check_rate("label noise", rate)
    labels = Labels(dataset.labels, dataset.hierarchy)
    rng = np.random.default_rng(seed)
    chosen = [dataset.splits[name] for name in splits if name in dataset.splits]
    rows = np.concatenate(chosen) if chosen else np.arange(len(dataset))
    rows = rng.permutation(rows)[: round(rate * len(rows))]
    spoiled = list(dataset.labels)
    offsets, terminal = labels.terminal
    for row in rows:
        true = terminal[offsets[row] : offsets[row + 1]]
        others = np.setdiff1d(labels.terminal_classes, true)
        if len(others):
            spoiled[row] = [dataset.hierarchy.names[rng.choice(others)]]
    return replace(dataset, labels=spoiled)


def with_hierarchy_noise(dataset: Dataset, rate: float, seed: int = 0) -> Dataset:
    """Hang a share of the edges under another parent of the same level as the true one.

    Rows keep their classes; the classes' names change with their paths. An edge stays where no
    other parent could take the child without two siblings sharing a name.

    Args:
        dataset: the clean taxonomy.
        rate: the share of edges that move.
        seed: decides which edges, and where to.
    """
    check_rate("hierarchy noise", rate)
    clean = dataset.hierarchy
    rng = np.random.default_rng(seed)
    true = [set(clean.parents(number)) for number in range(len(clean))]
    parents = [sorted(above) for above in true]
    taken = Counter((p, clean.bare_names[c]) for c, above in enumerate(parents) for p in above)
    edges = [(child, place) for child, above in enumerate(parents) for place in range(len(above))]
    for child, place in rng.permutation(np.array(edges).reshape(-1, 2))[: round(rate * len(edges))]:
        old, name = parents[child][place], clean.bare_names[child]
        level = clean.level_slices[clean.levels[old] - 1]
        free = [
            number
            for number in range(level.start, level.stop)
            if number not in true[child].union(parents[child]) and not taken[number, name]
        ]
        if free:
            new = int(rng.choice(free))
            taken[old, name] -= 1
            taken[new, name] += 1
            parents[child][place] = new
    if clean.named_by == "id":
        above = {clean.names[c]: [clean.names[p] for p in ps] for c, ps in enumerate(parents)}
        noisy = Hierarchy.from_parents(above, sep=clean.sep, named_by="id")
        return replace(dataset, hierarchy=noisy)
    names: list[str] = []
    for bare, ps in zip(clean.bare_names, parents, strict=True):  # parents come before children
        names.append(clean.sep.join([*(names[p] for p in ps), bare]))
    moved = dict(zip(clean.names, names, strict=True))
    return replace(
        dataset,
        hierarchy=Hierarchy.from_paths(names, sep=clean.sep),
        labels=[[moved[label] for label in row] for row in dataset.labels],
    )
