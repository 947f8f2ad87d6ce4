"""Splits for a study: test rows where the dataset names none, and the classes only they have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.errors import HierlearnError, quoted
from hierlearn.hierarchy.labels import Labels
from hierlearn.training.seeding import generator

if TYPE_CHECKING:
    from hierlearn.datasets import Dataset


def with_test_rows(dataset: Dataset, fraction: float, seed: int) -> tuple[Dataset, str]:
    """Return the dataset with a split "test", and what was done, for the reader.

    Args:
        dataset: as it was read; its own split "test" stays.
        fraction: of the rows, for a dataset without that split.
        seed: of the draw.
    """
    if len(dataset.splits.get("test", ())):
        return dataset, ""
    others = [name for name in dataset.splits if name not in ("train", "valid", "test")]
    if others:
        raise HierlearnError(
            f"none of the splits {quoted(list(dataset.splits))} is called 'test'; rename "
            f"the one to evaluate on to 'test', and those to train and stop on to 'train' and "
            f"'valid'"
        )
    if not 0 < fraction < 1:
        raise HierlearnError(f"the fraction of test rows must lie in (0, 1), not {fraction}")
    held = dataset.splits.get("valid", np.zeros(0, dtype=np.int64))
    rows = np.setdiff1d(dataset.splits.get("train", np.arange(len(dataset))), held)
    if not len(rows):
        raise HierlearnError("there are no training rows to set test rows aside from")
    count = round(fraction * len(rows))
    if not 0 < count < len(rows):
        raise HierlearnError(f"a fraction of {fraction} of {len(rows)} rows is {count} rows")
    order = torch.randperm(len(rows), generator=generator(seed, "test")).numpy()
    splits = {
        **dataset.splits,
        "test": np.sort(rows[order[:count]]),
        "train": np.sort(rows[order[count:]]),
    }
    return replace(dataset, splits=splits), f"; {count:,} rows set aside for testing"


def check_test_rows(dataset: Dataset) -> None:
    """Raise for a dataset without a split "test", or without a label in it."""
    name, rows = dataset.name or "the dataset", dataset.splits.get("test", ())
    if not len(rows):
        raise HierlearnError(
            f"{name} has no split 'test' to evaluate on; make one with "
            f"hierlearn.lab.splits.with_test_rows"
        )
    if not len(Labels(dataset.split("test").labels, dataset.hierarchy).closed[1]):
        raise HierlearnError(f"none of the {len(rows)} test rows has a label to evaluate on")


def unseen_classes(dataset: Dataset) -> list[str]:
    """Return the classes that occur in the rows of the split "test" and in no other."""
    rows = dataset.splits["test"]
    rest = np.setdiff1d(np.arange(len(dataset)), rows)
    tested, trained = (
        set(Labels([dataset.labels[row] for row in part], dataset.hierarchy).closed[1].tolist())
        for part in (rows, rest)
    )
    return [dataset.hierarchy.names[number] for number in sorted(tested - trained)]


def without_test_rows(dataset: Dataset) -> Dataset:
    """Return the dataset with splits for its other rows alone, so that nothing reads the test rows.

    The rows that no split names are in "train" then.
    """
    splits = with_training_rows(dataset).splits
    return replace(dataset, splits={name: splits[name] for name in splits if name != "test"})


def with_training_rows(dataset: Dataset) -> Dataset:
    """Return the dataset with a split "train": the rows that are in no other."""
    if "train" in dataset.splits:
        return dataset
    held = np.concatenate([dataset.splits[n] for n in ("valid", "test") if n in dataset.splits])
    rest = np.setdiff1d(np.arange(len(dataset)), held)
    return replace(dataset, splits={**dataset.splits, "train": rest})
