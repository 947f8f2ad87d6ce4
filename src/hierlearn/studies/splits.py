"""Splits for a study: rows to judge on where the dataset names none, and what only they hold."""

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


def with_test_rows(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, str]:
    """Return the dataset with a split "test", and what was done, for the reader.

    Args:
        dataset: as it was read; its own split "test" stays.
        share: of the rows, for those that have none.
        seed: of the draw.
    """
    if len(dataset.splits.get("test", ())):
        return dataset, ""
    others = [name for name in dataset.splits if name not in ("train", "valid", "test")]
    if others:
        raise HierlearnError(
            f"none of the splits {quoted(list(dataset.splits))} is called 'test'; call the one to "
            f"judge on so, and those to train and to stop on 'train' and 'valid'"
        )
    if not 0 < share < 1:
        raise HierlearnError(f"the share of test rows must lie between 0 and 1, not {share}")
    held = dataset.splits.get("valid", np.zeros(0, dtype=np.int64))
    rows = np.setdiff1d(dataset.splits.get("train", np.arange(len(dataset))), held)
    if not len(rows):
        raise HierlearnError("there are no training rows to set test rows aside from")
    count = round(share * len(rows))
    if not 0 < count < len(rows):
        raise HierlearnError(f"a share of {share} of {len(rows)} rows is {count} rows")
    order = torch.randperm(len(rows), generator=generator(seed, "test")).numpy()
    splits = {
        **dataset.splits,
        "test": np.sort(rows[order[:count]]),
        "train": np.sort(rows[order[count:]]),
    }
    return replace(dataset, splits=splits), f"; {count:,} rows set aside to judge on"


def unseen_classes(dataset: Dataset) -> list[str]:
    """Return the classes that occur in the rows of the split "test" and in no other."""
    rows = dataset.splits["test"]
    rest = np.setdiff1d(np.arange(len(dataset)), rows)
    tested, taught = (
        set(Labels([dataset.labels[row] for row in part], dataset.hierarchy).closed[1].tolist())
        for part in (rows, rest)
    )
    return [dataset.hierarchy.names[number] for number in sorted(tested - taught)]
