"""Splits that keep together what would leak: groups of rows, drawn by a hash."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Sequence

    from numpy.typing import NDArray

OTHER = re.compile(r"[\W_]+")


def normalized(text: str) -> str:
    """Return a text as it counts for equality: in lower case, letters and digits alone."""
    return OTHER.sub(" ", text.casefold()).strip()


def linked_groups(keys: Iterable[Collection[Hashable]]) -> list[int]:
    """Return the group of each row: rows that share a key, directly or through others, share it.

    Args:
        keys: the keys of each row, such as its skill and its normalized text.

    Returns:
        For each row the number of the first row of its group.
    """
    group: list[int] = []
    first: dict[Hashable, int] = {}

    def root(row: int) -> int:
        while group[row] != row:
            group[row] = group[group[row]]
            row = group[row]
        return row

    for row, own in enumerate(keys):
        group.append(row)
        for key in own:
            other = root(first.setdefault(key, row))
            mine = root(row)
            group[max(mine, other)] = min(mine, other)
    return [root(row) for row in range(len(group))]


def split_groups(
    groups: Sequence[int],
    names: Sequence[str],
    labels: Sequence[Sequence[str]],
    *,
    seed: int,
    fraction: float = 0.1,
    training: Collection[int] = (),
) -> dict[str, NDArray[np.int64]]:
    """Draw whole groups for "test" and "valid"; every class keeps at least one training group.

    The order of the draw is that of a hash of the names. Unlike a random generator's, it does not
    change with the version of a library.

    Args:
        groups: the group of each row, as ``linked_groups`` returns it.
        names: a name of each row that identifies its group: that of a group's first row counts.
        labels: the annotated labels of each row.
        seed: another one draws other groups.
        fraction: how much of the rows each of "test" and "valid" gets, at most.
        training: groups that must train.
    """
    sizes = Counter(groups)
    classes: dict[int, set[str]] = {}
    for group, own in zip(groups, labels, strict=True):
        classes.setdefault(group, set()).update(own)
    left = Counter(label for own in classes.values() for label in own)
    room = {"test": int(fraction * len(groups)), "valid": int(fraction * len(groups))}
    drawn: dict[int, str] = {}

    def looks_random(group: int) -> bytes:
        return hashlib.sha256(f"{seed}/{names[group]}".encode()).digest()

    order = sorted(sizes.keys() - set(training), key=looks_random)
    for group in order:
        if any(left[label] <= 1 for label in classes[group]):
            continue
        # By turns, so that neither split gets the smaller groups that a nearly full one takes.
        split = max(room, key=lambda name: room[name])
        if sizes[group] <= room[split]:
            drawn[group] = split
            room[split] -= sizes[group]
            left.subtract(classes[group])
    found = np.array([drawn.get(group, "train") for group in groups], dtype="<U5")
    return {
        name: np.flatnonzero(found == name).astype(np.int64) for name in ("train", "valid", "test")
    }
