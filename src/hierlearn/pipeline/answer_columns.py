"""The columns that may stand beside an answer, or instead of it: levels, best classes, all scores.

wide, one row per input row:
    level_1, level_1_title, level_1_probability, ...  the answer at every level
    top_1, top_1_title, top_1_probability, ...        the most probable terminal classes
    p:PATH                                            the probability of every class

long, one row per input row and class:
    row, rank, path, class, title, level, probability
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.tables.write import CodedColumn
from hierlearn.decoding.decoder import ROOT
from hierlearn.decoding.mass import terminal_scores
from hierlearn.errors import HierlearnError, arg, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.pipeline.pipeline import Pipeline

    Columns = dict[str, Any]  # sequences of one length

CELLS = 1 << 20  # scores that become text at a time


@dataclass(frozen=True)
class Layout:
    """What is written of each row beside the answer.

    Attributes:
        levels: the names of the levels, to add columns for each of them; empty for none.
        top: how many of the most probable terminal classes to add.
        scores: whether to add the probability of every class.
        long: write these as one row per class, without an answer.
    """

    levels: Sequence[str] = ()
    top: int = 0
    scores: bool = False
    long: bool = False

    def check(self, pipeline: Pipeline) -> None:
        """Raise on what does not go together, or is not there."""
        if self.top and self.scores:
            raise HierlearnError("top and scores are given; leave one of them out")
        if self.long and not (self.top or self.scores):
            raise HierlearnError(
                "the long layout has one row per class; give top or scores with it"
            )
        if self.long and self.levels:
            raise HierlearnError(
                f"the long layout has no columns per level; leave {arg('by_level')} out"
            )
        most = len(pipeline.label_space.terminals)
        if self.top > most:
            classes = plural(most, "terminal class", "terminal classes")
            raise HierlearnError(f"{arg('top')} must be at most {most:,}: there are {classes}")

    def names(self, pipeline: Pipeline) -> list[str]:
        """Return the names of the columns that it adds, in order."""
        hierarchy = pipeline.hierarchy
        if self.long:
            rank = ["rank"] if self.top else []
            return ["row", *rank, "path", "class", *titled(hierarchy, "title"), *LONG]
        found = []
        for begin in (*self.levels, *(f"top_{rank}" for rank in range(1, self.top + 1))):
            found += [begin, *titled(hierarchy, f"{begin}_title"), f"{begin}_probability"]
        return found + ([f"p:{name}" for name in hierarchy.names] if self.scores else [])

    def rows_at_once(self, classes: int) -> int | None:
        """Return how many rows may be written at a time; None for any number."""
        return max(1, CELLS // classes) if self.scores else None


LONG = ("level", "probability")


def titled(hierarchy: Hierarchy, name: str) -> list[str]:
    """Return the name of a column of titles; none where the hierarchy has no titles."""
    return [name] if hierarchy.has_titles else []


class ClassNames:
    """What is written of each class; the root, which has no name, is the last one.

    Args:
        label_space: what can be predicted.
    """

    def __init__(self, label_space: LabelSpace) -> None:
        hierarchy = label_space.hierarchy
        self.paths = (*hierarchy.names, "")
        self.bare = (*hierarchy.bare_names, "")
        self.titles = (*(title or "" for title in hierarchy.titles), "")
        self.levels = (*hierarchy.levels.tolist(), 0)
        self.stopped = (*(~label_space.is_terminal).tolist(), True)

    def codes(self, classes: Tensor) -> NDArray[np.int64]:
        """Return class numbers, -1 for the root, as codes of a column."""
        found: NDArray[np.int64] = classes.remainder(len(self.paths)).cpu().numpy()
        return found


def as_doubles(p: Tensor) -> NDArray[np.float64]:
    """Return a column of probabilities."""
    found: NDArray[np.float64] = p.double().cpu().numpy()
    return found


def level_columns(
    p: Tensor, decoder: Decoder, names: ClassNames, levels: Sequence[str], label_sep: str
) -> Columns:
    """Return the classes of the answers at every level, joined where there are several."""
    hierarchy = decoder.hierarchy
    if decoder.answers == "class" and hierarchy.is_tree:
        return chain_columns(p, decoder(p), hierarchy, names, levels)
    closed = decoder.sets(p) if decoder.answers == "class" else decoder(p)
    depth = hierarchy.levels.tolist()
    cells: list[list[list[tuple[int, float]]]] = [[[] for _ in levels] for _ in range(len(p))]
    places = closed.nonzero()
    values = p[places[:, 0], places[:, 1]].tolist()
    for (row, number), value in zip(places.tolist(), values, strict=True):
        cells[row][depth[number] - 1].append((number, value))
    columns: Columns = {}
    for place, name in enumerate(levels):
        here = [row[place] for row in cells]
        columns[name] = [label_sep.join(names.bare[c] for c, _ in one) for one in here]
        columns[f"{name}_title"] = [label_sep.join(names.titles[c] for c, _ in one) for one in here]
        columns[f"{name}_probability"] = [
            label_sep.join(f"{v:.6g}" for _, v in one) for one in here
        ]
    return columns


def chain_columns(
    p: Tensor, classes: Tensor, hierarchy: Hierarchy, names: ClassNames, levels: Sequence[str]
) -> Columns:
    """Return the one class per level that lies above each answer in a tree, or is the answer.

    Args:
        p: (n, C) node probabilities.
        classes: (n,) the answers, -1 for the root.
        hierarchy: the tree.
        names: what is written of each class.
        levels: the names of the levels.
    """
    above = torch.tensor([*hierarchy.structure.first_parents.tolist(), ROOT], device=p.device)
    level = torch.tensor(names.levels, device=p.device)
    columns: Columns = {}
    here = classes
    for place, name in reversed([*enumerate(levels, 1)]):
        found = torch.where(level[here] == place, here, ROOT)
        codes = names.codes(found)
        values = as_doubles(p.gather(1, found.clamp_min(0)[:, None]).squeeze(1))
        columns[name] = CodedColumn(names.bare, codes)
        columns[f"{name}_title"] = CodedColumn(names.titles, codes)
        columns[f"{name}_probability"] = np.ma.masked_array(values, (found == ROOT).cpu().numpy())
        here = torch.where(found == ROOT, here, above[here])
    return columns


def best_terminals(p: Tensor, pipeline: Pipeline, count: int) -> tuple[Tensor, Tensor]:
    """Return (n, count) numbers and scores of the most probable terminal classes."""
    space = pipeline.label_space
    scores = terminal_scores(p, space).clamp_min(0) if space.has_inner_terminals else p
    numbers = space.terminal_ids().to(p.device)
    values, order = scores.index_select(1, numbers).topk(count, dim=1)
    return numbers[order], values


def top_columns(p: Tensor, pipeline: Pipeline, names: ClassNames, count: int) -> Columns:
    """Return the most probable terminal classes, the best first."""
    numbers, values = best_terminals(p, pipeline, count)
    columns: Columns = {}
    for rank in range(count):
        codes = names.codes(numbers[:, rank])
        columns[f"top_{rank + 1}"] = CodedColumn(names.paths, codes)
        columns[f"top_{rank + 1}_title"] = CodedColumn(names.titles, codes)
        columns[f"top_{rank + 1}_probability"] = as_doubles(values[:, rank])
    return columns


def score_columns(p: Tensor, hierarchy: Hierarchy) -> Columns:
    """Return the probabilities of every class."""
    return {f"p:{name}": row for name, row in zip(hierarchy.names, as_doubles(p.T), strict=True)}


def long_columns(
    p: Tensor, pipeline: Pipeline, names: ClassNames, layout: Layout, first: int
) -> Columns:
    """Return one row per input row and class.

    Args:
        p: (n, C) node probabilities.
        pipeline: the model.
        names: what is written of each class.
        layout: the best classes or all of them.
        first: the number of the first input row, from 1.
    """
    each = layout.top or len(pipeline.hierarchy)
    if layout.top:
        numbers, p = best_terminals(p, pipeline, layout.top)
        codes = names.codes(numbers.flatten())
    else:
        codes = np.tile(np.arange(each), len(p))
    return {
        "row": np.arange(first, first + len(p)).repeat(each),
        "rank": np.tile(np.arange(1, each + 1), len(p)),
        "path": CodedColumn(names.paths, codes),
        "class": CodedColumn(names.bare, codes),
        "title": CodedColumn(names.titles, codes),
        "level": CodedColumn(names.levels, codes),
        "probability": as_doubles(p.flatten()),
    }
