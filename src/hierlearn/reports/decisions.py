"""Decisions: the decisions of a model, or a candidate of a study, against the truth.

A run is evaluated once, right after training, and the metrics of every test row are stored beside
the decisions. What is left for later is here: which label of its row a decision came nearest to
(by the height of their lowest common ancestor), how often each class is hit, and the metrics of
decisions that were made under another taxonomy. A decision is right where it is a label itself, not
a class above or below one.

Of the rows of class c, the accuracy of c is the fraction whose decision is c or lies below it. The
accuracy of a level is the fraction of the rows with a label there for which a class of that level,
on the path to the decision, is right.

The figures of a class, whose rows and decisions are those at the class or below it, are

    precision = right / decided,    recall = right / rows,    F1 = 2 right / (decided + rows)

The icicle, the interactive plot of the hierarchy, is a tree; a class of a DAG is drawn below its
first parent. The page draws it from

    names, parent       of each class; -1 for a top class
    titles              of each class, null where it has none; no list where no class has one
    support             test rows of each class, and at the end all that have a label
    accuracy            of each candidate and class in thousandths, 0 where there is no test row;
                        at the end the fraction of all decisions that are right
    confused            of each candidate, flat triples: true class, decided class, how often

The worst mistakes are those of the largest height, then the decision that most seeds agree on, then
the most probable. A row is shown once, by the worst decision on it; of each height some are kept.
Where a memory answers, a mistake comes with the training rows that weigh most in the answer of the
run that is surest of the decision: of one run, because each run has an embedding of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.decoding.probabilities import terminal_scores
from hierlearn.hierarchy.names import shorten
from hierlearn.metrics.inputs import best_classes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace

    Ints = NDArray[np.int64]
    from collections.abc import Iterable

    from hierlearn.reports.page import Outcome


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


MOST_CONFUSED = 4000  # pairs of classes kept per candidate, the most frequent


def icicle_tree(hierarchy: Hierarchy, truth: Truth) -> dict[str, Any]:
    """Return what all candidates share."""
    return {
        "root": hierarchy.root,
        "sep": hierarchy.sep if hierarchy.named_by == "path" else None,
        "names": list(hierarchy.bare_names),
        **({"titles": list(hierarchy.titles)} if hierarchy.has_titles else {}),
        "parent": hierarchy.structure.first_parents.tolist(),
        "support": [*truth.support.tolist(), truth.labeled],
    }


def icicle_figures(
    truth: Truth, decisions: Decisions, *, most: int = MOST_CONFUSED
) -> dict[str, Any]:
    """Return the accuracy of every class and the most confused pairs of a candidate."""
    seeds = len(decisions.decided)
    hits = np.append(decisions.hits, seeds * truth.labeled - np.count_nonzero(decisions.heights))
    found = seeds * np.append(truth.support, truth.labeled)
    accuracy = np.rint(1000 * hits / np.maximum(found, 1)).astype(np.int64)
    pairs, kept, left_out = confused(decisions, len(truth.hierarchy), most)
    return {
        "accuracy": accuracy.tolist(),
        "confused": np.column_stack([*pairs, kept]).ravel().tolist(),
        "left_out": left_out,
    }


def confused(decisions: Decisions, count: int, most: int) -> tuple[tuple[Ints, Ints], Ints, int]:
    """Return pairs (true, decided), how often each occurs, and how many rarer ones are left out."""
    wrong = decisions.mistakes
    keys = decisions.nearest[wrong] * count + decisions.decided[wrong]
    found, often = np.unique(keys, return_counts=True)
    order = np.lexsort((found, -often))[:most]
    return (found[order] // count, found[order] % count), often[order], len(found) - len(order)


MOST = 24  # rows kept per height
LONGEST = 400  # characters of a row's text
LONGEST_NEIGHBOR = 160  # of a remembered row's text
MOST_LABELS = 4  # shown of a remembered row


def worst_mistakes(decisions: Decisions, *, most: int = MOST) -> list[list[int]]:
    """Return [row, true class, decided class, height, agreeing seeds, p in percent] of each."""
    seeds, rows = np.nonzero(decisions.mistakes)
    decided = decisions.decided[seeds, rows]
    if not len(rows):
        return []
    order = np.lexsort((decided, rows))
    seeds, rows, decided = seeds[order], rows[order], decided[order]
    new = (np.diff(rows, prepend=-1) != 0) | (np.diff(decided, prepend=-1) != 0)
    starts = np.flatnonzero(new)
    agreed = np.diff(starts, append=len(rows))
    probable = np.add.reduceat(decisions.probability[seeds, rows], starts) / agreed
    rows, seeds, decided = rows[starts], seeds[starts], decided[starts]
    heights = decisions.heights[seeds, rows]
    truth = decisions.nearest[seeds, rows]
    kept: list[list[int]] = []
    seen: set[int] = set()
    room = dict.fromkeys(heights.tolist(), most)
    for one in np.lexsort((decided, rows, -probable, -agreed, -heights)).tolist():
        row, height = int(rows[one]), int(heights[one])
        if row in seen:
            continue
        seen.add(row)
        if not room[height]:
            continue
        room[height] -= 1
        percent = round(100 * float(probable[one]))
        kept.append([row, int(truth[one]), int(decided[one]), height, int(agreed[one]), percent])
    return kept


def texts_of(rows: Iterable[int], texts: Sequence[str] | None) -> dict[str, str]:
    """Return the texts, or the names, of some rows by row number, shortened."""
    if texts is None:
        return {}
    return {str(row): shorten(texts[row], LONGEST) for row in sorted(set(rows))}


def numbered(rows: int, split: str) -> list[str]:
    """Return what to call rows that have neither id nor line: by number, from 1."""
    of = "" if split == "all" else f" of {split}"
    return [f"row {number:,}{of}" for number in range(1, rows + 1)]


def neighbor(
    name: str,
    text: str | None,
    labels: Sequence[int],
    pair: tuple[int, int],
    hierarchy: Hierarchy,
) -> dict[str, Any]:
    """Return what the page shows of a remembered row but its weight, see ``evidence_of``.

    Args:
        name: its id.
        text: what to show of it; None where inputs are not texts.
        labels: its most specific labels.
        pair: the true and the decided class of the row that it misled, or did not.
        hierarchy: the taxonomy.
    """
    truth, decided = pair
    above = {c: {c, *hierarchy.ancestors(c)} for c in labels}
    shown = sorted(labels, key=lambda c: (decided not in above[c], truth not in above[c]))
    return {
        "id": name,
        **({} if text is None else {"text": shorten(text, LONGEST_NEIGHBOR)}),
        "decided": any(decided in one for one in above.values()),
        "true": any(truth in one for one in above.values()),
        "labels": shown[:MOST_LABELS],
        "more": max(0, len(labels) - MOST_LABELS),
    }


PAIRS = 60  # of classes that are confused, with those in the fold


def class_counts(outcome: Outcome) -> dict[str, list[int]]:
    """Return rows, decisions and right decisions of every class, (C,) each, and its level."""
    answers, targets = outcome.answers.known(outcome.answers.sets), outcome.targets
    return {
        "level": outcome.space.hierarchy.levels.tolist(),
        "rows": targets.sum(dim=0).tolist(),
        "decided": answers.sum(dim=0).tolist(),
        "right": (answers & targets).sum(dim=0).tolist(),
    }


def confusions(outcome: Outcome, most: int = PAIRS) -> list[dict[str, int]]:
    """Return the most frequent pairs of a true and a decided class.

    true, decided   class numbers
    rows            how often the pair occurs
    of              rows of the true class that end there
    lca             the lowest common ancestor, -1 for the root
    height          of that ancestor: how far the decision is off
    """
    hierarchy, decisions = outcome.space.hierarchy, outcome.decisions
    truth = decisions.nearest[0]
    (left, right), often, _ = confused(decisions, len(hierarchy), most)
    ends = np.bincount(truth[truth >= 0], minlength=len(hierarchy))
    columns = {
        "true": left,
        "decided": right,
        "rows": often,
        "of": ends[left],
        "lca": hierarchy.lcas(left, right),
        "height": hierarchy.lca_heights(left, right),
    }
    return [
        dict(zip(columns, map(int, one), strict=True))
        for one in zip(*columns.values(), strict=True)
    ]
