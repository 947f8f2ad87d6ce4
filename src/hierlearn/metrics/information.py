"""Information content of classes, as in CAFA (Clark and Radivojac, 2013).

    ic(c) = -log2 P(c | all parents of c) = log2(n(parents of c) / n(c))

n(c) is the number of rows that have c, n(parents of c) of those that have all its parents; for a
top class, of all rows that have any label. A class without rows counts as one with a single row,
so that its information is finite; where no row has its parents either, it is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.errors import DataError, HierlearnError, LabelError, place
from hierlearn.files import read_text
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.inputs import as_targets, read_targets

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.metrics.inputs import Space, Targets

CHUNK = 1024  # rows whose parents are counted at a time


def information_content(targets: Targets, label_space: Space) -> Tensor:
    """Return (C,) float64 the information content of each class, in bits.

    Args:
        targets: the labels of the training rows: ``Labels``, lists of labels, or (N, C) closed
            multi-hot.
        label_space: the taxonomy.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    offsets, numbers = closed_rows(targets, hierarchy)
    own = np.bincount(numbers, minlength=len(hierarchy))
    labeled = int((np.diff(offsets) > 0).sum())
    above = parent_counts(offsets, numbers, own, hierarchy)
    above[np.diff(hierarchy.structure.parent_offsets) == 0] = labeled
    ratio = np.maximum(above, 1) / np.maximum(own, 1)
    return torch.from_numpy(np.log2(np.maximum(ratio, 1.0)))


def closed_rows(targets: Targets, hierarchy: Hierarchy) -> tuple[Ints, Ints]:
    """Return the closed classes of each row as CSR."""
    if isinstance(targets, Labels):
        if targets.hierarchy != hierarchy:
            raise HierlearnError("the labels belong to another hierarchy than label_space")
        return targets.closed
    dense = read_targets(targets, hierarchy)
    dense = as_targets(dense, (len(dense), len(hierarchy)), hierarchy, beside="rows and classes")
    rows, numbers = (part.cpu().numpy() for part in dense.nonzero(as_tuple=True))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
    return hierarchy.close(offsets.astype(np.int64), numbers)


def parent_counts(
    offsets: Ints, numbers: Ints, own: Ints, hierarchy: Hierarchy
) -> NDArray[np.int64]:
    """Return (C,) how many rows have all parents of each class; 0 for top classes.

    Args:
        offsets: where the classes of each row begin.
        numbers: the closed classes of the rows.
        own: (C,) the rows of each class.
        hierarchy: the taxonomy.
    """
    from scipy.sparse import csr_array

    structure = hierarchy.structure
    fan_in = np.diff(structure.parent_offsets)
    found = np.zeros(len(hierarchy), dtype=np.int64)
    single = np.flatnonzero(fan_in == 1)
    found[single] = own[structure.parent_ids[structure.parent_offsets[single]]]
    several = np.flatnonzero(fan_in > 1)
    if not len(several):
        return found
    place = np.full(len(hierarchy), -1, dtype=np.int64)
    place[several] = np.arange(len(several))
    inside = place[structure.edge_children] >= 0
    edges = (structure.parent_ids[inside], place[structure.edge_children[inside]])
    shape = (len(hierarchy), len(several))
    parents = csr_array((np.ones(int(inside.sum()), np.int32), edges), shape=shape)
    for begin in range(0, len(offsets) - 1, CHUNK):
        part = offsets[begin : begin + CHUNK + 1]
        ids = numbers[part[0] : part[-1]]
        rows = csr_array(
            (np.ones(len(ids), np.int32), ids, part - part[0]),
            shape=(len(part) - 1, len(hierarchy)),
        )
        held = (rows @ parents).tocoo()
        complete = held.col[held.data == fan_in[several[held.col]]]
        found[several] += np.bincount(complete, minlength=len(several))
    return found


def read_information(path: Path, hierarchy: Hierarchy) -> Tensor:
    """Read the information content of classes: lines of a class, a tab and a number.

    Classes that the file does not name have 0; lines of terms that the hierarchy does not have are
    left out.
    """
    found = torch.zeros(len(hierarchy), dtype=torch.float64)
    known = 0
    for line, text in enumerate(read_text(path).split("\n"), start=1):
        cells = text.split("\t")
        if not text.strip() or text.startswith("!"):
            continue
        try:
            value = float(cells[1])
        except (IndexError, ValueError):
            raise DataError(
                f"{place(path, line)}: {text[:60]!r} is no class, a tab and its information"
            ) from None
        if not 0 <= value < float("inf"):
            raise DataError(f"{place(path, line)}: the information {cells[1]} is not at least 0")
        try:
            found[hierarchy.index(cells[0].strip())] = value
            known += 1
        except LabelError:
            continue
    if not known:
        raise DataError(f"{path} names no class of the hierarchy; is it for another ontology?")
    return found
