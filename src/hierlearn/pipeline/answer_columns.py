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

from hierlearn.decoding.mass import terminal_scores
from hierlearn.errors import HierlearnError, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.pipeline import Pipeline

    Columns = dict[str, list[Any]]

CELLS = 1 << 20  # scores that are held as Python numbers at a time


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
            raise HierlearnError("the long layout has no columns per level; leave by_level out")
        most = len(pipeline.label_space.terminals)
        if self.top > most:
            classes = plural(most, "terminal class", "terminal classes")
            raise HierlearnError(f"top must be at most {most:,}: there are {classes}")

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


def level_columns(
    p: Tensor, decoder: Decoder, pipeline: Pipeline, levels: Sequence[str], label_sep: str
) -> Columns:
    """Return the classes of the answers at every level, joined where there are several."""
    hierarchy = pipeline.hierarchy
    closed = decoder.sets(p) if decoder.answers == "class" else decoder(p)
    depth = hierarchy.levels.tolist()
    cells: list[list[list[tuple[int, float]]]] = [[[] for _ in levels] for _ in range(len(p))]
    places = closed.nonzero()
    values = p[places[:, 0], places[:, 1]].tolist()
    for (row, number), value in zip(places.tolist(), values, strict=True):
        cells[row][depth[number] - 1].append((number, value))
    single = decoder.answers == "class" and hierarchy.is_tree
    columns: Columns = {}
    for place, name in enumerate(levels):
        here = [row[place] for row in cells]
        columns[name] = [label_sep.join(hierarchy.bare_names[c] for c, _ in one) for one in here]
        columns[f"{name}_title"] = [
            label_sep.join(hierarchy.titles[c] or "" for c, _ in one) for one in here
        ]
        columns[f"{name}_probability"] = (
            [one[0][1] if one else None for one in here]
            if single
            else [label_sep.join(f"{v:.6g}" for _, v in one) for one in here]
        )
    return columns


def best_terminals(p: Tensor, pipeline: Pipeline, count: int) -> tuple[Tensor, Tensor]:
    """Return (n, count) numbers and scores of the most probable terminal classes."""
    space = pipeline.label_space
    scores = terminal_scores(p, space).clamp_min(0) if space.has_inner_terminals else p
    numbers = space.terminal_ids().to(p.device)
    values, order = scores.index_select(1, numbers).topk(count, dim=1)
    return numbers[order], values


def top_columns(p: Tensor, pipeline: Pipeline, count: int) -> Columns:
    """Return the most probable terminal classes, the best first."""
    hierarchy = pipeline.hierarchy
    numbers, values = best_terminals(p, pipeline, count)
    columns: Columns = {}
    for rank in range(count):
        chosen = numbers[:, rank].tolist()
        columns[f"top_{rank + 1}"] = [hierarchy.names[one] for one in chosen]
        columns[f"top_{rank + 1}_title"] = [hierarchy.titles[one] or "" for one in chosen]
        columns[f"top_{rank + 1}_probability"] = values[:, rank].tolist()
    return columns


def score_columns(p: Tensor, hierarchy: Hierarchy) -> Columns:
    """Return the probabilities of every class."""
    return {f"p:{name}": column for name, column in zip(hierarchy.names, p.T.tolist(), strict=True)}


def long_columns(p: Tensor, pipeline: Pipeline, layout: Layout, first: int) -> Columns:
    """Return one row per input row and class.

    Args:
        p: (n, C) node probabilities.
        pipeline: the model.
        layout: the best classes or all of them.
        first: the number of the first input row, from 1.
    """
    hierarchy = pipeline.hierarchy
    if layout.top:
        found, scores = best_terminals(p, pipeline, layout.top)
        numbers, values = found.flatten().tolist(), scores.flatten().tolist()
    else:
        numbers, values = list(range(len(hierarchy))) * len(p), p.flatten().tolist()
    each = layout.top or len(hierarchy)
    levels = hierarchy.levels.tolist()
    return {
        "row": [first + row for row in range(len(p)) for _ in range(each)],
        "rank": list(range(1, each + 1)) * len(p),
        "path": [hierarchy.names[one] for one in numbers],
        "class": [hierarchy.bare_names[one] for one in numbers],
        "title": [hierarchy.titles[one] or "" for one in numbers],
        "level": [levels[one] for one in numbers],
        "probability": values,
    }
