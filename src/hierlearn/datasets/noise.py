"""Noise on purpose: wrong labels and wrong parents, to see which loss minds."""

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

SPOILED = ("train", "valid")  # the test split stays clean so that it measures the harm
TRIES = 16  # blind draws of a parent before its level is searched


def check_rate(name: str, rate: float) -> None:
    """Refuse a rate outside [0, 1]."""
    if not 0 <= rate <= 1:
        raise DataError(f"{name} must lie in [0, 1], not {rate}")


def seeded(seed: int) -> np.random.Generator:
    """Return a source of chance, or refuse a seed that NumPy does not take."""
    if seed < 0:
        raise DataError(f"seed must be at least 0, not {seed}")
    return np.random.default_rng(seed)


def with_label_noise(
    dataset: Dataset, rate: float, seed: int = 0, splits: Sequence[str] | None = None
) -> Dataset:
    """Replace the labels of a share of the rows by those of one other terminal class.

    Args:
        dataset: the clean rows.
        rate: the share of rows that get a wrong label.
        seed: decides which rows, and which labels.
        splits: the splits to spoil; by default "train" and "valid", as far as they are there, or
            all rows of a dataset without splits.
    """
    check_rate("label noise", rate)
    labels = Labels(dataset.labels, dataset.hierarchy)
    rng = seeded(seed)
    rows = rows_to_spoil(dataset, splits)
    rows = rng.permutation(rows)[: round(rate * len(rows))]
    offsets, terminal = labels.terminal
    candidates = labels.terminal_classes
    rows = rows[np.diff(offsets)[rows] < len(candidates)]  # the others have no wrong class left
    positions, counts = expand_ranges(offsets, rows)
    width = len(dataset.hierarchy)
    true = np.sort(np.repeat(np.arange(len(rows)), counts) * width + terminal[positions])
    wrong = np.zeros(len(rows), dtype=np.int64)
    waiting = np.arange(len(rows))
    while len(waiting):  # draw, and draw again where the true class was hit
        wrong[waiting] = rng.choice(candidates, size=len(waiting))
        waiting = waiting[np.isin(waiting * width + wrong[waiting], true)]
    spoiled = list(dataset.labels)
    for row, number in zip(rows.tolist(), wrong.tolist(), strict=True):
        spoiled[row] = [dataset.hierarchy.names[number]]
    return replace(dataset, labels=spoiled)


def rows_to_spoil(dataset: Dataset, splits: Sequence[str] | None) -> Ints:
    """Return the rows of the named splits, each once."""
    if splits is None:
        if not dataset.splits:
            return np.arange(len(dataset))
        splits = [name for name in SPOILED if name in dataset.splits]
        if not splits:
            raise DataError(
                f"the dataset has neither of the splits {quoted(SPOILED)}; "
                f"name those to spoil with splits=, of {quoted(dataset.splits)}"
            )
    for name in splits:
        if name not in dataset.splits:
            raise DataError(unknown_name("split", name, dataset.splits))
    return np.unique(np.concatenate([np.arange(0), *(dataset.splits[name] for name in splits)]))


def with_hierarchy_noise(dataset: Dataset, rate: float, seed: int = 0) -> Dataset:
    """Hang a share of the edges under another parent of the same level as the true one.

    Rows keep their terminal classes; the classes' names change with their paths. Where every other
    parent has a child of that name already, the moved one gets a mark: ``2'``. An edge stays only
    where there is no other parent at all.

    Args:
        dataset: the clean taxonomy.
        rate: the share of edges that move.
        seed: decides which edges, and where to.
    """
    return corrupt_hierarchy(dataset, rate, seed)[0]


def corrupt_hierarchy(dataset: Dataset, rate: float, seed: int = 0) -> tuple[Dataset, Ints]:
    """Return what ``with_hierarchy_noise`` does, and which class each one was.

    Args:
        dataset: the clean taxonomy.
        rate: the share of edges that move.
        seed: decides which edges, and where to.

    Returns:
        The spoiled dataset, and (C,) the clean number of each class of its hierarchy.
    """
    check_rate("hierarchy noise", rate)
    dataset = most_specific(dataset)
    clean = dataset.hierarchy
    rng = seeded(seed)
    bare = list(clean.bare_names)
    true = [set(clean.parents(number)) for number in range(len(clean))]
    parents = [sorted(above) for above in true]
    taken = Counter((p, clean.bare_names[c]) for c, above in enumerate(parents) for p in above)
    edges = [(child, place) for child, above in enumerate(parents) for place in range(len(above))]
    for child, place in rng.permutation(np.array(edges).reshape(-1, 2))[: round(rate * len(edges))]:
        old, name = parents[child][place], bare[child]
        level = clean.level_slices[clean.levels[old] - 1]
        barred = true[child].union(parents[child])
        draws = rng.integers(level.start, level.stop, size=TRIES).tolist()
        new = next((n for n in draws if n not in barred and not taken[n, name]), None)
        if new is None:
            others = [n for n in range(level.start, level.stop) if n not in barred]
            if not others:
                continue
            new = int(rng.choice([n for n in others if not taken[n, name]] or others))
        taken[old, name] -= 1
        while taken[new, name]:
            name += "'"
        taken[new, name] += 1
        bare[child] = name
        parents[child][place] = new
    # The stored form rather than a builder: it keeps the names, the separator and the root.
    form = {**json.loads(clean.to_json()), "names": bare, "parents": parents}
    noisy = Hierarchy.from_json(json.dumps(form))
    if clean.named_by == "id":
        return replace(dataset, hierarchy=noisy), clean_numbers(noisy, clean.names)
    names: list[str] = []
    for name, ps in zip(bare, parents, strict=True):  # parents come before children
        names.append(clean.sep.join([*(names[p] for p in ps), name]))
    moved = dict(zip(clean.names, names, strict=True))
    labels = [[moved[label] for label in row] for row in dataset.labels]
    return replace(dataset, hierarchy=noisy, labels=labels), clean_numbers(noisy, names)


def most_specific(dataset: Dataset) -> Dataset:
    """Return the dataset with the terminal labels of each row alone.

    Many files name the ancestors of a label as well. Under a taxonomy where they are none any more
    they would be further labels of the row, although nobody has said so.
    """
    offsets, numbers = Labels(dataset.labels, dataset.hierarchy).terminal
    names = [dataset.hierarchy.names[number] for number in numbers]
    rows = [names[begin:end] for begin, end in pairwise(offsets)]
    return replace(dataset, labels=rows)


def clean_numbers(noisy: Hierarchy, names: Sequence[str]) -> Ints:
    """Return (C,) the clean number of each noisy class; ``names`` are the noisy, in clean order."""
    number = {name: place for place, name in enumerate(names)}
    return np.array([number[name] for name in noisy.names], dtype=np.int64)
