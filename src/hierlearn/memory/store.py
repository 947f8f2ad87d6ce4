"""Memory: the encoded training rows, their labels and ids.

    LabelSets    the labels of the rows, each distinct set stored once
    Remembered   what every head and member remembers of N rows: labels, ids, weights
    Memory       the embeddings of those rows for one head, in half precision, and the sums over
                 the labels of neighbors

It is no part of ``state_dict``: the embeddings follow from the weights and the training rows. A
model folder stores them in files of their own. Rows that share their most specific labels share a
set, so that probabilities are sums over sets: a few hundred of them where every row has one path,
whatever the number of rows.

**Class sizes.** Rows of a class count more if they all came after the training:

    weight'_j = weight_j min(60, max(1, 1.5 usual / n_c))

n_c is the weight of all rows of the class c, and usual the mean of that over the classes that
training saw. An answer sums the weights of the nearest rows, so ten rows of a new class between
hundreds of old ones would lose every vote, however near they are. Training has drawn the rows of
old classes together, but not those of a new one, so these count as much as 1.5 usual classes: the
smaller of two multiples that find most of both when remembered rows are left out in turn. The
limit keeps a few rows from taking too many rows of old classes. Classes with a row that was trained
on stay as they are, and a new class that reaches 1.5 times the usual size counts as every other.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.structure import expand_ranges
from hierlearn.kernels.neighbor_batch import SetTable
from hierlearn.memory.index import ApproximateIndex
from hierlearn.memory.search import dense_distances, nearest, nearest_operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from typing_extensions import Self

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints

DENSE = 1 << 27  # entries of the targets of all sets that are held as a matrix
BLOCK = 1 << 24  # entries of the targets of the sets of a few neighbors, made when needed
LARGE = 1 << 24  # entries of targets from which classes that do not occur are left out
STORED = torch.float16


@dataclass(frozen=True)
class Remembered:
    """What is known of the N rows of a memory beside their embeddings.

    Attributes:
        labels: their label sets.
        ids: by which rows are named, and forgotten; rows may share one.
        weights: (N,) how much each row counts, above 0; None for all alike.
        texts: what to show of each row; None where inputs are not texts.
        later: (N,) bool, which rows came after the training; None for none of them.
    """

    labels: LabelSets
    ids: Sequence[str]
    weights: NDArray[np.float64] | None = None
    texts: Sequence[str] | None = None
    later: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        for name in ("ids", "weights", "texts", "later"):
            held = getattr(self, name)
            if held is not None and len(held) != len(self.labels):
                raise HierlearnError(f"{len(held)} {name} do not fit {len(self.labels)} rows")
        if self.weights is not None:
            wrong = np.flatnonzero(~(np.isfinite(self.weights) & (self.weights > 0)))
            if len(wrong):
                raise HierlearnError(
                    f"the weight of row {wrong[0]} is {self.weights[wrong[0]]}; weights of "
                    f"remembered rows are finite and above 0"
                )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def hierarchy(self) -> Hierarchy:
        """The taxonomy of the labels."""
        return self.labels.hierarchy

    def take(self, rows: Ints) -> Remembered:
        """Return some of the rows."""
        return Remembered(
            self.labels.take(rows),
            [self.ids[row] for row in rows],
            None if self.weights is None else self.weights[rows],
            None if self.texts is None else [self.texts[row] for row in rows],
            None if self.later is None else self.later[rows],
        )

    def join(self, *others: Remembered) -> Remembered:
        """Return these rows, then those of others."""
        parts = (self, *others)
        weights = None
        if any(one.weights is not None for one in parts):
            counts = [np.ones(len(one)) if one.weights is None else one.weights for one in parts]
            weights = np.concatenate(counts)
        texts = None
        if all(one.texts is not None for one in parts):
            texts = [text for one in parts for text in one.texts or ()]
        later = None
        if any(one.later is not None for one in parts):
            flags = [np.zeros(len(one), bool) if one.later is None else one.later for one in parts]
            later = np.concatenate(flags)
        labels = self.labels.join(*(one.labels for one in others))
        ids = [one for part in parts for one in part.ids]
        return Remembered(labels, ids, weights, texts, later)

    def with_labels(self, labels: LabelSets) -> Remembered:
        """Return the rows with other labels, as after a change of the taxonomy."""
        return replace(self, labels=labels)


class Memory(nn.Module):
    """The embeddings of the remembered rows of one head.

    Attributes:
        rows: what is remembered; None while the memory is empty.
        embeddings: (N, D), or (M, N, D) of the members of an ensemble; in the precision in which
            they were set, whatever that of the network is.
        indexes: an approximate index per member; None for exact search.
        is_traced: whether to search by a few operators that can be exported.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: Remembered | None = None
        self.embeddings: Tensor | None = None
        self.indexes: list[ApproximateIndex] | None = None
        self.is_traced = False
        self._set_ids: Tensor | None = None  # (N,)
        self._log_weights: Tensor | None = None  # (N,)
        self._targets: Tensor | None = None  # (S, C) bool, where all sets fit
        self._mask: Tensor | None = None  # (S, C) bool, of partial labels

    @classmethod
    def stack(cls, memories: Sequence[Memory]) -> Memory:
        """Return one memory for all members; they remember the same rows."""
        new = cls()
        found = [one.embeddings for one in memories if one.embeddings is not None]
        if len(found) == len(memories) and memories[0].rows is not None:
            new.set(torch.stack(found), memories[0].rows)
        return new

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    @property
    def is_partial(self) -> bool:
        """Whether the labels of the remembered rows are partial."""
        return self.rows is not None and self.rows.labels.is_partial

    def set(self, embeddings: Tensor, rows: Remembered) -> None:
        """Replace what is remembered.

        Args:
            embeddings: (N, D) or (M, N, D); fewer rows where processes share them.
            rows: the labels and ids of all N rows.
        """
        if embeddings.shape[-2] != len(rows):
            raise HierlearnError(
                f"embeddings {tuple(embeddings.shape)} do not fit {len(rows)} remembered rows"
            )
        self.rows, self.embeddings, self.indexes = rows, embeddings.detach(), None
        device = embeddings.device
        self._set_ids = torch.from_numpy(rows.labels.of_row).to(device)
        self._log_weights = None
        counted = counted_weights(rows)
        if counted is not None:
            weights = torch.from_numpy(np.asarray(counted, dtype=np.float64))
            self._log_weights = weights.log().float().to(device)
        sets = rows.labels.sets
        small = len(sets) * len(rows.hierarchy) <= DENSE
        self._targets = sets.targets().to(device) if small else None
        self._mask = sets.mask().to(device) if small and rows.labels.is_partial else None

    @property
    def set_ids(self) -> Tensor:
        """(N,) the number of the label set of each row."""
        self.held()
        assert self._set_ids is not None
        return self._set_ids

    def targets_of_sets(self, entries: int = BLOCK) -> Iterator[Tensor]:
        """Yield the closed targets of all label sets, (S, C) at once or in blocks, as bool."""
        _, rows = self.held()
        if self._targets is not None:
            yield self._targets
            return
        sets, step = rows.labels.sets, max(1, entries // len(rows.hierarchy))
        for begin in range(0, len(sets), step):
            numbers = np.arange(begin, min(begin + step, len(sets)))
            yield sets.targets(numbers).to(self.set_ids.device)

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]

    def held(self) -> tuple[Tensor, Remembered]:
        """Return what this process holds."""
        if self.rows is None or self.embeddings is None or not len(self.rows):
            raise HierlearnError(
                "the memory is empty, so there is nothing to answer from; train the network, or "
                "give it rows to remember"
            )
        return self.embeddings, self.rows

    def build_index(self, distance: str, *, k: int, recall: float) -> float:
        """Build an approximate index, and return the recall that was measured.

        Args:
            distance: a name of DISTANCES.
            k: how many neighbors answer.
            recall: the fraction of them that a search must find.
        """
        embeddings, _ = self.held()
        parts = embeddings if embeddings.dim() == 3 else embeddings[None]
        self.indexes = [ApproximateIndex.build(one, distance, k=k, recall=recall) for one in parts]
        return min(index.recall for index in self.indexes)

    def search(self, queries: Tensor, k: int, distance: str) -> tuple[Tensor, Tensor]:
        """Return (..., n, k) the distances to the nearest rows, ascending, and their numbers.

        Where it is traced: (..., n, N) of all rows, infinite beyond the k-th nearest.

        Args:
            queries: (n, D) or (M, n, D) embeddings.
            k: how many rows; all where there are fewer.
            distance: a name of DISTANCES.
        """
        embeddings, _ = self.held()
        if self.is_traced:
            # In double precision, so that another engine rounds alike.
            dense = dense_distances(queries.double(), embeddings.double(), k, distance)
            return dense, torch.arange(len(self), device=dense.device).expand(dense.shape)
        if self.indexes is None:
            if torch.compiler.is_compiling():
                found: tuple[Tensor, Tensor] = nearest_operator(
                    queries.detach(), embeddings, k, distance
                )
                return found
            return nearest(queries, embeddings, k, distance)
        if queries.dim() == 2:
            return self.indexes[0].search(queries, k)
        parts = [index.search(one, k) for index, one in zip(self.indexes, queries, strict=True)]
        return torch.stack([one for one, _ in parts]), torch.stack([one for _, one in parts])

    def log_weights(self, index: Tensor) -> Tensor | None:
        """Return the log weights of some rows; None where all count alike."""
        return None if self._log_weights is None else self._log_weights[index]

    # ------------------------------------------------------------------ sums over labels

    def mix(self, weights: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of the neighbors that have each class, and of those that lack it.

        Args:
            weights: (..., n, k) the weights of the neighbors.
            index: (..., n, k) their row numbers.

        Returns:
            (..., n, C) sum of w y and (..., n, C) sum of w (1 - y), over the neighbors whose label
            is known.
        """
        _, rows = self.held()
        assert self._set_ids is not None
        sets = self._set_ids[index]
        if self._targets is not None:
            held = weights.new_zeros(*weights.shape[:-1], len(self._targets))
            held = held.scatter_add(-1, sets, weights)
            return mixture(held, self._targets, self._mask)
        # Too many to hold: only the sets that occur among the neighbors.
        found, place = torch.unique(sets, return_inverse=True)
        held = weights.new_zeros(*weights.shape[:-1], len(found)).scatter_add(-1, place, weights)
        return mixture_in_blocks(held, rows.labels.sets, found.cpu().numpy())

    # ------------------------------------------------------------------ devices and copies

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow the module to another device; embeddings keep their precision."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.embeddings is not None:
            device = fn(torch.empty(0)).device
            for name in ("embeddings", "_set_ids", "_log_weights", "_targets", "_mask"):
                held = getattr(self, name)
                setattr(self, name, None if held is None else held.to(device))
            if self.indexes is not None:
                parts = self.embeddings if self.embeddings.dim() == 3 else self.embeddings[None]
                for index, part in zip(self.indexes, parts, strict=True):
                    index.embeddings = part
        return self

    def __deepcopy__(self, _: object) -> Memory:
        """Return a memory that shares what it holds: nothing of it is changed in place."""
        new = Memory()
        new.__dict__.update(self.__dict__)
        if self.indexes is not None:
            new.indexes = [copy.copy(index) for index in self.indexes]
        return new

    def extra_repr(self) -> str:
        """Show how much is remembered when the module is printed."""
        return f"{len(self):,} rows"


def mixture(held: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return sum of w y and sum of w (1 - y), over what is known.

    Args:
        held: (..., n, S) weights.
        targets: (S, C), or (..., S, C), bool.
        mask: which targets are known; None for all.
    """
    if mask is None and targets.numel() >= LARGE and not torch.compiler.is_compiling():
        occurs = targets.flatten(0, -2).any(0).nonzero().squeeze(1)
        if 2 * len(occurs) <= targets.shape[-1]:
            return occurring_mixture(held, targets, occurs)
    has, lacks = targets, ~targets
    if mask is not None:
        has, lacks = targets & mask, lacks & mask
    return held @ has.to(held.dtype), held @ lacks.to(held.dtype)


def mixture_in_blocks(held: Tensor, sets: Labels, numbers: Ints) -> tuple[Tensor, Tensor]:
    """Return the same for label sets whose targets are made a few at a time.

    Args:
        held: (..., n, S) weights.
        sets: the label sets.
        numbers: (S,) which of them the weights are of.
    """
    partial = sets.unlabeled_descendants == "ignore"
    shape = (*held.shape[:-1], len(sets.hierarchy))
    p, q = held.new_zeros(shape), held.new_zeros(shape)
    step = max(1, BLOCK // len(sets.hierarchy))
    for begin in range(0, len(numbers), step):
        some = numbers[begin : begin + step]
        targets = sets.targets(some).to(held.device)
        mask = sets.mask(some).to(held.device) if partial else None
        parts = mixture(held[..., begin : begin + step], targets, mask)
        p, q = p + parts[0], q + parts[1]
    return p, q


def occurring_mixture(held: Tensor, targets: Tensor, occurs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same where most classes of a large taxonomy occur in no set.

    Args:
        held: (..., n, S) weights.
        targets: (S, C), or (..., S, C), bool.
        occurs: the classes that occur in some set.
    """
    p, q = mixture(held, targets.index_select(-1, occurs).contiguous(), None)
    shape = (*held.shape[:-1], targets.shape[-1])
    lacks = held.sum(-1, keepdim=True).expand(shape)
    return held.new_zeros(shape).index_copy(-1, occurs, p), lacks.index_copy(-1, occurs, q)


def as_stored(embeddings: Tensor) -> Tensor:
    """Return embeddings in half precision, or as they are where that would overflow."""
    stored = embeddings.to(STORED)
    return stored if bool(stored.isfinite().all()) else embeddings


# ---------------------------------------- label sets


@dataclass(frozen=True)
class LabelSets:
    """S distinct label sets, and the set of each of N rows.

    Attributes:
        sets: the labels of every set, its most specific classes.
        of_row: (N,) the number of the set of each row.
    """

    sets: Labels
    of_row: Ints

    @classmethod
    def from_labels(cls, labels: Labels) -> LabelSets:
        """Find the distinct sets among the labels of N rows."""
        first, of_row = distinct_rows(*labels.terminal)
        offsets, numbers = labels.terminal
        return cls(labels_of(take_rows(offsets, numbers, first), labels), of_row)

    def __len__(self) -> int:
        return len(self.of_row)

    @property
    def hierarchy(self) -> Hierarchy:
        """The taxonomy."""
        return self.sets.hierarchy

    def targets(self, numbers: Tensor) -> Tensor:
        """Return (..., C) bool, the closed targets of some sets, on the device of their numbers."""
        if len(self.sets) * len(self.hierarchy) <= DENSE:
            device = numbers.device
            if device not in self._dense:
                self._dense[device] = self.sets.targets().to(device)
            return self._dense[device][numbers]
        flat = numbers.reshape(-1).cpu().numpy()
        return self.sets.targets(flat).to(numbers.device).view(*numbers.shape, -1)

    @cached_property
    def _dense(self) -> dict[torch.device, Tensor]:
        return {}

    @cached_property
    def table(self) -> SetTable:
        """The classes of every set, as the Triton kernels of a head read them."""
        return SetTable(*self.sets.closed, len(self.hierarchy))

    @property
    def is_partial(self) -> bool:
        """Whether classes below a label are unknown, not absent."""
        return self.sets.unlabeled_descendants == "ignore"

    def names(self, rows: Ints | Sequence[int]) -> list[list[str]]:
        """Return the most specific labels of some rows, by name."""
        offsets, numbers = self.sets.terminal
        names = self.hierarchy.names
        return [
            [names[number] for number in numbers[offsets[one] : offsets[one + 1]]]
            for one in self.of_row[rows]
        ]

    def take(self, rows: Ints) -> LabelSets:
        """Return the labels of some rows; sets that no row has any more are dropped."""
        kept, of_row = np.unique(self.of_row[rows], return_inverse=True)
        return LabelSets(labels_of(take_rows(*self.sets.terminal, kept), self.sets), of_row)

    def join(self, *others: LabelSets) -> LabelSets:
        """Return these rows, then those of others; all are of one hierarchy."""
        if any(self.hierarchy != other.hierarchy for other in others):
            raise HierlearnError("the rows are labeled by different hierarchies")
        parts = [self, *others]
        lengths = [np.diff(one.sets.terminal[0]) for one in parts]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        numbers = np.concatenate([one.sets.terminal[1] for one in parts])
        both = labels_of((offsets, numbers), self.sets)
        first = np.cumsum([0, *(len(one.sets) for one in parts[:-1])])
        of_row = np.concatenate([one.of_row + n for one, n in zip(parts, first, strict=True)])
        return LabelSets.from_labels(both).take(of_row)


def labels_of(csr: tuple[Ints, Ints], like: Labels) -> Labels:
    """Return labels given as class numbers, of the hierarchy and policy of others."""
    return Labels.from_numbers(*csr, like.hierarchy, like.unlabeled_descendants)


def take_rows(offsets: Ints, numbers: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return some rows of a CSR matrix."""
    positions, counts = expand_ranges(offsets, rows)
    return np.concatenate([[0], np.cumsum(counts)]), numbers[positions]


def distinct_rows(offsets: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """Return the first of each group of equal CSR rows, and (N,) the group of every row."""
    if len(offsets) > 1 and np.all(np.diff(offsets) == 1):
        _, first, of_row = np.unique(numbers, return_index=True, return_inverse=True)
        return first, of_row.astype(np.int64)
    seen: dict[bytes, int] = {}
    of_row = np.empty(len(offsets) - 1, dtype=np.int64)
    found: list[int] = []
    for row, (begin, end) in enumerate(pairwise(offsets)):
        of_row[row] = seen.setdefault(numbers[begin:end].tobytes(), len(seen))
        if len(found) < len(seen):
            found.append(row)
    return np.array(found, dtype=np.int64), of_row


# ---------------------------------------- class sizes

USUAL = 1.5  # classes of the training that a new one counts as
MOST = 60.0  # times that a row counts


def counted_weights(rows: Remembered) -> NDArray[np.float64] | None:
    """Return (N,) how much each row counts in an answer; None for all alike.

    Args:
        rows: what is remembered; of several labels, the rarest new class decides.
    """
    if rows.later is None or not rows.later.any():
        return rows.weights
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    sets, of_row, count = rows.labels.sets, rows.labels.of_row, len(rows.hierarchy)
    offsets, numbers = sets.terminal
    set_of_label = np.repeat(np.arange(len(sets)), np.diff(offsets))
    of_set = np.bincount(of_row, weights, minlength=len(sets))
    trained_of_set = np.bincount(of_row, weights * ~rows.later, minlength=len(sets))
    sizes = np.bincount(numbers, of_set[set_of_label], minlength=count)
    trained = np.bincount(numbers, trained_of_set[set_of_label], minlength=count) > 0
    new = ~trained & (sizes > 0)
    if not new.any() or not trained.any():
        return rows.weights
    factors = np.ones(count)
    factors[new] = np.clip(USUAL * sizes[trained].mean() / sizes[new], 1.0, MOST)
    most = np.ones(len(sets))
    np.maximum.at(most, set_of_label, factors[numbers])
    found: NDArray[np.float64] = weights * most[of_row]
    return found
