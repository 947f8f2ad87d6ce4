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
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError, quoted, unknown_name
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    bare = list(clean.bare_names)
    parents = [sorted(clean.parents(number)) for number in range(len(clean))]
    true = [set(above) for above in parents]
    # How often a parent has a child of a name.
    taken = Counter(
        (parent, bare[child]) for child, above in enumerate(parents) for parent in above
    )
    edges = [(child, place) for child, above in enumerate(parents) for place in range(len(above))]
    moving = rng.permutation(np.array(edges).reshape(-1, 2))[: round(rate * len(edges))]
    for child, place in moving.tolist():
        name, old = bare[child], parents[child][place]
        level = clean.level_slices[clean.levels[old] - 1]
        new = draw_parent(level, true[child].union(parents[child]), taken, name, rng)
        if new is None:
            continue
        taken[old, name] -= 1
        while taken[new, name]:
            name += "'"
        taken[new, name] += 1
        bare[child], parents[child][place] = name, new
    # The stored form rather than a builder: it keeps the names, the separator and the root.
    form = {**json.loads(clean.to_json()), "names": bare, "parents": parents}
    noisy = Hierarchy.from_json(json.dumps(form))
    names = list(clean.names)
    if clean.named_by != "id":  # names are paths, which follow the parents
        for number, (name, above) in enumerate(zip(bare, parents, strict=True)):  # parents first
            names[number] = clean.sep.join([*(names[parent] for parent in above), name])
        renamed = dict(zip(clean.names, names, strict=True))
        labels = [[renamed[label] for label in row] for row in dataset.labels]
        dataset = replace(dataset, labels=labels)
    number_of = {name: number for number, name in enumerate(names)}
    clean_numbers = np.array([number_of[name] for name in noisy.names], dtype=np.int64)
    return replace(dataset, hierarchy=noisy), clean_numbers


def draw_parent(
    level: slice,
    barred: set[int],
    taken: Mapping[tuple[int, str], int],
    name: str,
    rng: np.random.Generator,
) -> int | None:
    """Draw a class of a level that is not barred, if possible without a child of the same name."""
    for drawn in rng.integers(level.start, level.stop, size=TRIES).tolist():
        if drawn not in barred and not taken[drawn, name]:
            return int(drawn)
    others = [one for one in range(level.start, level.stop) if one not in barred]
    if not others:
        return None
    return int(rng.choice([one for one in others if not taken[one, name]] or others))


def with_terminal_labels(dataset: Dataset) -> Dataset:
    """Return the dataset with only the terminal labels of each row.

    Many files also list the ancestors of a label. In a hierarchy where they are no longer ancestors
    they would become labels of their own, although nobody annotated them.
    """
    offsets, numbers = Labels(dataset.labels, dataset.hierarchy).terminal
    names = [dataset.hierarchy.names[number] for number in numbers]
    rows = [names[begin:end] for begin, end in pairwise(offsets)]
    return replace(dataset, labels=rows)


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


def make_synthetic(
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
    for name, count in {**counts, "labels_per_row": labels_per_row}.items():
        if count < 1:
            raise DataError(f"{name} must be at least 1, not {count}")
    check_rate("ragged", ragged)
    check_rate("dag", dag)
    rng = seeded(seed)
    hierarchy = random_hierarchy(depth, fan_out, rng, ragged=ragged, dag=dag)
    centers = np.zeros((len(hierarchy), features))
    for number in range(len(hierarchy)):  # parents first
        above = list(hierarchy.parents(number))
        offset = decay ** (int(hierarchy.levels[number]) - 1) * rng.standard_normal(features)
        centers[number] = offset + (centers[above].mean(axis=0) if above else 0)
    inputs = np.empty((rows, features))
    labels: list[list[str]] = []
    most = min(labels_per_row, len(hierarchy.leaves))
    for row in range(rows):
        chosen = rng.choice(hierarchy.leaves, size=rng.integers(1, most + 1), replace=False)
        inputs[row] = centers[chosen].mean(axis=0) + spread * rng.standard_normal(features)
        labels.append([hierarchy.names[number] for number in np.sort(chosen)])
    parts = np.split(rng.permutation(rows), [round(0.6 * rows), round(0.8 * rows)])
    dataset = Dataset(
        inputs=inputs.astype(np.float32),
        labels=labels,
        hierarchy=hierarchy,
        splits=dict(zip(("train", "valid", "test"), map(np.sort, parts), strict=True)),
        name="synthetic",
        feature_names=tuple(f"x{number}" for number in range(features)),
        source=f"drawn at random with seed {seed}",
    )
    dataset = with_label_noise(dataset, label_noise, seed)
    return with_hierarchy_noise(dataset, hierarchy_noise, seed)


ENTRY = DatasetEntry(
    "synthetic",
    "rows drawn around the classes of a random tree or DAG",
    "generated",
    make_synthetic,
)
