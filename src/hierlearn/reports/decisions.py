"""Decisions: the stored decisions of a candidate against the truth.

A run is evaluated once, right after training, and the metrics of every test row are stored beside
the decisions. What is left for later is here: which label of its row a decision came nearest to
(by the height of their lowest common ancestor), how often each class is hit, and the metrics of
decisions that were made under another taxonomy. A decision is right where it is a label itself, not
a class above or below one.

Of the rows of class c, the accuracy of c is the fraction whose decision is c or lies below it. The
accuracy of a level is the fraction of the rows with a label there for which a class of that level,
on the path to the decision, is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.decoding.mass import terminal_scores
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.choices import best_classes
from hierlearn.metrics.registry import find_metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """The labels of the test rows, as CSR.

    Attributes:
        hierarchy: the taxonomy.
        offsets: (N + 1,) where each row begins in ``closed``.
        closed: the classes of each row, closed under ancestors.
    """

    hierarchy: Hierarchy
    offsets: Ints
    closed: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def rows(self) -> Ints:
        """The row of each class of ``closed``."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def terminal(self) -> tuple[Ints, Ints]:
        """Rows and classes of the most specific labels."""
        kept = self.hierarchy.most_specific(self.rows, self.closed)
        return self.rows[kept], self.closed[kept]

    @cached_property
    def support(self) -> Ints:
        """(C,) the test rows of each class."""
        return np.bincount(self.closed, minlength=len(self.hierarchy))

    @property
    def labeled(self) -> int:
        """How many rows have a label."""
        return int(np.count_nonzero(np.diff(self.offsets)))

    @cached_property
    def targets(self) -> Tensor:
        """(N, C) bool, the closed targets."""
        targets = torch.zeros(len(self), len(self.hierarchy), dtype=torch.bool)
        targets[torch.from_numpy(self.rows), torch.from_numpy(self.closed)] = True
        return targets

    def contains(self, rows: Ints, classes: Ints) -> NDArray[np.bool_]:
        """Return whether each class is a closed label of its row."""
        count = len(self.hierarchy)
        return np.isin(rows * count + classes, self.rows * count + self.closed)


@dataclass(frozen=True)
class Decisions:
    """The decisions of a candidate with what they missed; (S, N) each, S seeds.

    Attributes:
        decided: the class; -1 where none is answered.
        nearest: the row's label that lies nearest to it; -1 where the row has none.
        heights: how wrong it is: the height of the lowest common ancestor with that label, 0 where
            the decision is right or the row has no label.
        probability: how probable the model thought it.
        hits: (C,) decisions at or below each class, of the class's rows, over all seeds.
        early: which stop above the terminal classes, on the path to a label.
    """

    decided: Ints
    nearest: Ints
    heights: Ints
    probability: NDArray[np.float64]
    hits: Ints
    early: NDArray[np.bool_] | None = None

    @classmethod
    def read(
        cls,
        truth: Truth,
        rows: Mapping[str, NDArray[Any]],
        terminal: NDArray[np.bool_] | None = None,
    ) -> Decisions:
        """Read the decisions of a candidate.

        Args:
            truth: the labels.
            rows: what a study stores of each test row, see ``Study.rows``; ``wrong`` says which
                decisions are, where some entries of the truth are unknown.
            terminal: (C,) the terminal classes. A decision that stops above them, on the path to
                a label, is not among the mistakes that are shown.
        """
        decided = rows.get("answer", rows["terminal"]).astype(np.int64)
        hits = np.zeros(len(truth.hierarchy), dtype=np.int64)
        for classes in decided:
            hits += np.bincount(hits_on_path(truth, classes)[1], minlength=len(hits))
        near = [nearest_labels(truth, classes) for classes in decided]
        nearest, heights = (np.stack([pair[side] for pair in near]) for side in (0, 1))
        if "wrong" in rows:
            heights = np.where(rows["wrong"], heights, 0)
        p = rows["probability"].astype(np.float64)
        early = np.zeros(decided.shape, dtype=bool)
        if terminal is not None:
            for seed, classes in enumerate(decided):
                above = truth.contains(np.arange(len(classes)), classes)
                early[seed] = above & ~terminal[classes]
        return cls(decided, nearest, heights, p, hits, early)

    @cached_property
    def mistakes(self) -> NDArray[np.bool_]:
        """(S, N) bool: the decisions to show as mistakes, a wrong class each."""
        wrong: NDArray[np.bool_] = (self.heights > 0) & (self.decided >= 0)
        return wrong if self.early is None else wrong & ~self.early


def nearest_labels(truth: Truth, classes: Ints) -> tuple[Ints, Ints]:
    """Return (N,) the label of each row that is nearest to (N,) classes, -1 without a label.

    And the height of their lowest common ancestor, 0 where the label is the class itself.
    """
    rows, labels = truth.terminal
    starts = np.flatnonzero(np.diff(rows, prepend=-1))  # the first label of each row
    here = classes[rows]
    heights = truth.hierarchy.lca_heights(np.maximum(here, 0), labels)
    heights = np.where(here < 0, truth.hierarchy.root_height, heights)
    heights = np.where(here == labels, 0, np.maximum(heights, 1))
    order = np.lexsort((heights, rows))[starts]
    nearest = np.full(len(truth), -1, dtype=np.int64)
    nearest[rows[starts]] = labels[order]
    found = np.zeros(len(truth), dtype=np.int64)
    found[rows[starts]] = heights[order]
    return nearest, found


def hits_on_path(truth: Truth, classes: Ints) -> tuple[Ints, Ints]:
    """Return rows and classes of the labels that lie on the paths to (N,) decided classes."""
    offsets = np.append(0, np.cumsum(classes >= 0))
    offsets, closed = truth.hierarchy.close(offsets, classes[classes >= 0])
    rows = np.repeat(np.arange(len(classes)), np.diff(offsets))
    right = truth.contains(rows, closed)
    return rows[right], closed[right]


def level_accuracies(truth: Truth, classes: Ints) -> list[float]:
    """Return the accuracy of each level of (N,) decided classes, NaN without rows."""
    hits = rows_by_level(truth.hierarchy, *hits_on_path(truth, classes))
    counts = rows_by_level(truth.hierarchy, truth.rows, truth.closed)
    found: list[float] = np.where(counts > 0, hits / np.maximum(counts, 1), np.nan).tolist()
    return found


def rows_by_level(hierarchy: Hierarchy, rows: Ints, classes: Ints) -> Ints:
    """Return (L,) how many different rows have a class of each level."""
    size = hierarchy.depth + 1
    found = np.unique(rows * size + hierarchy.levels[classes])
    return np.bincount(found % size, minlength=size)[1:]


def evaluate_decisions(
    truth: Truth, decided: NDArray[Any], metrics: Sequence[str]
) -> dict[str, list[float]]:
    """Return metrics of decided classes, one value per seed, with ``level-m`` of every level.

    A decision is scored as the one class that could be meant: 1, all others 0.

    Args:
        truth: the labels.
        decided: (S, N) class numbers; any class may be decided, inner ones too.
        metrics: names of METRICS that read the best class.
    """
    hierarchy = truth.hierarchy
    space = LabelSpace(hierarchy, range(len(hierarchy)))
    found: dict[str, list[float]] = {name: [] for name in metrics}
    for classes in decided.astype(np.int64):
        scores = torch.zeros(truth.targets.shape)
        scores[torch.arange(len(truth)), torch.from_numpy(classes)] = 1
        for name in metrics:
            found[name].append(float(find_metric(name)(scores, truth.targets, space)))
        for level, value in enumerate(level_accuracies(truth, classes), start=1):
            found.setdefault(f"level-{level}", []).append(value)
    return found


def decide(p: Tensor, space: LabelSpace) -> dict[str, NDArray[Any]]:
    """Return what one model decides on each row, (N,) each.

    argmax       the most probable class of all
    terminal     the best terminal class
    probability  its probability
    """
    terminal = best_classes(terminal_scores(p, space), space.terminal_ids(p.device))
    found = {
        "argmax": best_classes(p)[:, 0],
        "terminal": terminal[:, 0],
        "probability": p.gather(1, terminal)[:, 0],
    }
    return {name: value.cpu().numpy() for name, value in found.items()}
