r"""Fmax and Smin, the metrics of CAFA (Radivojac et al., 2013; Jiang et al., 2016).

At a threshold t row i is answered P_i(t) = {c : p_i(c) >= t}, closed, and its truth is T_i.

    pr(t) = mean over rows with P_i(t) not empty of |P_i(t) n T_i| / |P_i(t)|
    rc(t) = mean over rows of |P_i(t) n T_i| / |T_i|
    Fmax  = max over t of 2 pr(t) rc(t) / (pr(t) + rc(t))
    ru(t) = mean over rows of the sum of ic(c) over T_i \ P_i(t)     remaining uncertainty
    mi(t) = mean over rows of the sum of ic(c) over P_i(t) \ T_i     misinformation
    Smin  = min over t of sqrt(ru(t)^2 + mi(t)^2)

The weighted Fmax counts every class by its information content ic; where no class has any, all
count alike. Rows are those with a label in the namespace of the classes that are evaluated (any
label, where there are no namespaces), as cafaeval has it: a row that is known by the top class
alone counts where that class does not, with recall 0, and lowers the precision if it is answered.
Thresholds are 0.01, 0.02, ..., 1.

Information content of classes, as in CAFA (Clark and Radivojac, 2013).

    ic(c) = -log2 P(c | all parents of c) = log2(n(parents of c) / n(c))

n(c) is the number of rows that have c, n(parents of c) of those that have all its parents; for a
top class, of all rows that have any label. A class without rows counts as one with a single row,
so that its information is finite; where no row has its parents either, it is 0.

Predictions as CAFA takes them: a gene, a term and a score per line, separated by tabs.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hierlearn.errors import DataError, HierlearnError, LabelError, arg, place
from hierlearn.files import read_text
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.structure import Structure, row_chunks
from hierlearn.metrics.inputs import (
    as_probabilities,
    as_targets,
    check_rows,
    read_labels,
    read_targets,
)
from hierlearn.metrics.measure import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.metrics.inputs import Scores, Space, Targets

    Numbers = Sequence[int] | Ints

STEPS = 100  # thresholds


@dataclass(frozen=True)
class CafaCurve:
    """Precision, recall, uncertainty and misinformation at each threshold; all (T,) float64.

    Attributes:
        thresholds: ascending.
        precision: pr(t), 0 where no row is answered.
        recall: rc(t).
        weighted_precision: pr(t) by information content.
        weighted_recall: rc(t) by information content.
        uncertainty: ru(t).
        misinformation: mi(t).
        coverage: the fraction of rows that are answered.
        rows: how many rows count.
    """

    thresholds: Tensor
    precision: Tensor
    recall: Tensor
    weighted_precision: Tensor
    weighted_recall: Tensor
    uncertainty: Tensor
    misinformation: Tensor
    coverage: Tensor
    rows: int

    @property
    def f(self) -> Tensor:
        """F1 at each threshold."""
        return harmonic(self.precision, self.recall)

    @property
    def weighted_f(self) -> Tensor:
        """F1 by information content at each threshold."""
        return harmonic(self.weighted_precision, self.weighted_recall)

    @property
    def s(self) -> Tensor:
        """The semantic distance at each threshold."""
        return (self.uncertainty**2 + self.misinformation**2).sqrt()

    @property
    def fmax(self) -> float:
        """The largest F1."""
        return float(self.f.max())

    @property
    def fmax_threshold(self) -> float:
        """The largest threshold with the largest F1."""
        return self._last(self.f == self.f.max())

    @property
    def weighted_fmax(self) -> float:
        """The largest F1 by information content."""
        return float(self.weighted_f.max())

    @property
    def smin(self) -> float:
        """The smallest semantic distance."""
        return float(self.s.min())

    @property
    def smin_threshold(self) -> float:
        """The largest threshold with the smallest semantic distance."""
        return self._last(self.s == self.s.min())

    def _last(self, best: Tensor) -> float:
        return float(self.thresholds[best.nonzero()[-1, 0]])


def harmonic(precision: Tensor, recall: Tensor) -> Tensor:
    """Return F1, 0 where both are 0."""
    total = precision + recall
    return torch.where(total > 0, 2 * precision * recall / total.clamp_min(1e-300), 0.0)


def cafa_curve(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    *,
    information: Tensor | None = None,
    classes: Numbers | None = None,
) -> CafaCurve:
    """Return what Fmax and Smin are found on.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``; made coherent by the maximum
            over the descendants.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        information: (C,) information content of each class, from ``information_content`` of the
            training rows; by default that of these rows.
        classes: the numbers of the classes that count; by default all.

    Raises:
        HierlearnError: where no row has a label in the namespaces of the classes.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    groups = {"all": np.arange(len(hierarchy)) if classes is None else classes}
    found = cafa_curves(probabilities, targets, hierarchy, groups, information=information)
    if "all" not in found:
        raise HierlearnError(
            "no row has a label in the namespace of these classes, so there is no Fmax"
        )
    return found["all"]


def cafa_curves(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    groups: Mapping[str, Numbers] | None = None,
    *,
    information: Tensor | None = None,
) -> dict[str, CafaCurve]:
    """Return a curve per group of classes, by default per namespace.

    Args:
        probabilities: (N, C) node probabilities.
        targets: labels, which are closed within their namespaces; or (N, C) multi-hot, in which
            what another namespace implied cannot be told from what was annotated.
        label_space: the taxonomy.
        groups: the numbers of the classes of each group; by default ``namespace_classes``, which is
            ``no_orphans`` of cafaeval; all classes of a namespace are its default. A group whose
            namespace labels no row is left out.
        information: (C,) information content of each class; by default that of these rows.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    p = as_probabilities(probabilities, hierarchy)
    truth = dense(closed_rows(targets, hierarchy), len(hierarchy))
    truth = as_targets(truth, p.shape, hierarchy, beside="probabilities").to(p.device)
    check_rows(len(p), "Fmax")
    if information is None:
        information = information_content(targets, hierarchy)
    ic = checked_information(information, hierarchy).to(p.device)
    steps = torch.arange(1, STEPS + 1, dtype=torch.float64, device=p.device) / STEPS
    groups = namespace_classes(hierarchy) if groups is None else groups
    sums = {}
    for name, classes in groups.items():
        counted = flags(classes, hierarchy)
        sums[name] = Sums(steps, counted.to(p.device), beside(counted, hierarchy).to(p.device))
    make_coherent = Coherence(hierarchy)
    for rows in row_chunks(len(p), max(p.shape[1], len(hierarchy.structure.parent_ids))):
        part = make_coherent(p[rows])
        for one in sums.values():
            one.add(part, truth[rows], ic)
    return {name: one.curve() for name, one in sums.items() if one.rows}


class Sums:
    """Sums over rows at each threshold, of some classes.

    Args:
        thresholds: (T,) ascending.
        counted: (C,) bool, the classes that count.
        labeling: (C,) bool, the classes whose rows count.
    """

    def __init__(self, thresholds: Tensor, counted: Tensor, labeling: Tensor) -> None:
        self.thresholds = thresholds
        self.counted, self.labeling = counted, labeling
        self.rows = 0
        self.plain = True  # no class has information
        names = ("pr", "rc", "wpr", "wrc", "ru", "mi", "answered", "informed")
        self.totals = {name: torch.zeros_like(thresholds) for name in names}

    def add(self, p: Tensor, truth: Tensor, ic: Tensor) -> None:
        """Take in some rows.

        Args:
            p: (n, C) coherent probabilities.
            truth: (n, C) bool, closed.
            ic: (C,) the information content of each class.
        """
        labeled = (truth & self.labeling).any(1).nonzero().squeeze(1)
        if not len(labeled):
            return
        p, truth = p[labeled], truth[labeled] & self.counted
        self.plain = not bool(ic[self.counted].any())
        self.rows += len(p)
        steps = self.thresholds.to(p.dtype)  # 0.29 as a probability and as a threshold is one
        rows, numbers = ((p >= steps[0]) & self.counted).nonzero(as_tuple=True)
        # The last threshold that each entry reaches; the sum from the right counts those above.
        place = torch.bucketize(p[rows, numbers], steps, right=True) - 1
        flat = rows * len(steps) + place
        hits = truth[rows, numbers]
        shape = (len(p), len(steps))

        def reached(weights: Tensor) -> Tensor:
            """Return (n, T) how much is answered at each threshold."""
            found = torch.bincount(flat, weights, minlength=shape[0] * shape[1]).view(shape)
            return found.flip(1).cumsum(1).flip(1)

        weights, is_hit = ic[numbers], hits.double()
        answered, true = reached(torch.ones_like(is_hit)), reached(is_hit)
        w_answered, w_true = reached(weights), reached(weights * is_hit)
        size, w_size = truth.sum(1, keepdim=True).double(), (truth.double() @ ic)[:, None]
        values = {
            "pr": divided(true, answered),
            "rc": divided(true, size.expand(shape)),
            "wpr": divided(w_true, w_answered),
            "wrc": divided(w_true, w_size.expand(shape)),
            "ru": (w_size - w_true).clamp_min(0.0),
            "mi": (w_answered - w_true).clamp_min(0.0),
            "answered": (answered > 0).double(),
            "informed": (w_answered > 0).double(),
        }
        for name, one in values.items():
            self.totals[name] += one.sum(0)

    def curve(self) -> CafaCurve:
        total = self.totals
        precision, recall = divided(total["pr"], total["answered"]), total["rc"] / self.rows
        weighted = divided(total["wpr"], total["informed"]), total["wrc"] / self.rows
        return CafaCurve(
            thresholds=self.thresholds,
            precision=precision,
            recall=recall,
            weighted_precision=precision if self.plain else weighted[0],
            weighted_recall=recall if self.plain else weighted[1],
            uncertainty=total["ru"] / self.rows,
            misinformation=total["mi"] / self.rows,
            coverage=total["answered"] / self.rows,
            rows=self.rows,
        )


def divided(above: Tensor, below: Tensor) -> Tensor:
    """Return a quotient, 0 where the divisor is 0."""
    return torch.where(below > 0, above / torch.where(below > 0, below, 1.0), 0.0)


def checked_information(information: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (C,) float64 information content; raise on another shape and negative values."""
    found = torch.as_tensor(information, dtype=torch.float64)
    if tuple(found.shape) != (len(hierarchy),):
        raise HierlearnError(f"information {tuple(found.shape)} must be ({len(hierarchy)},)")
    if not bool((found >= 0).all()) or not bool(found.isfinite().all()):
        raise HierlearnError("information must be finite and at least 0")
    return found


def flags(classes: Numbers, hierarchy: Hierarchy) -> Tensor:
    """Return (C,) bool which classes count; raise on what are no class numbers."""
    numbers = np.asarray(classes)
    if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iu":
        raise HierlearnError("classes must be a list of class numbers, at least one")
    if not 0 <= int(numbers.min()) <= int(numbers.max()) < len(hierarchy):
        raise HierlearnError(f"classes must lie in 0..{len(hierarchy) - 1}")
    found = torch.zeros(len(hierarchy), dtype=torch.bool)
    found[torch.from_numpy(numbers.astype(np.int64))] = True
    return found


def beside(counted: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (C,) bool the classes of the namespaces of those that count; all without any."""
    if not hierarchy.namespace_names:
        return torch.ones_like(counted)
    own = {hierarchy.namespaces[number] for number in counted.nonzero()[:, 0].tolist()}
    return torch.tensor([one in own for one in hierarchy.namespaces])


def fmax(probabilities: Scores, targets: Targets, label_space: Space) -> Tensor:
    """Return the largest F1 over all thresholds; see ``cafa_curve`` for more."""
    curve = cafa_curve(probabilities, targets, label_space)
    return torch.tensor(curve.fmax, dtype=torch.float64)


def weighted_fmax(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    *,
    information: Tensor | None = None,
) -> Tensor:
    """Return the largest F1 by information content.

    Args:
        probabilities: (N, C) node probabilities.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        information: (C,) from the training rows; by default that of these rows.
    """
    curve = cafa_curve(probabilities, targets, label_space, information=information)
    return torch.tensor(curve.weighted_fmax, dtype=torch.float64)


def smin(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    *,
    information: Tensor | None = None,
) -> Tensor:
    """Return the smallest semantic distance over all thresholds, in bits.

    Args:
        probabilities: (N, C) node probabilities.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        information: (C,) from the training rows; by default that of these rows.
    """
    curve = cafa_curve(probabilities, targets, label_space, information=information)
    return torch.tensor(curve.smin, dtype=torch.float64)


def namespace_classes(hierarchy: Hierarchy) -> dict[str, Ints]:
    """Return the classes of each namespace without its top classes, as CAFA evaluates them.

    Every row of a namespace has its top class, so that says nothing. Without namespaces, all
    classes are one group named "all".
    """
    if not hierarchy.namespace_names:
        return {"all": np.arange(len(hierarchy))}
    tops = np.diff(within_namespaces(hierarchy).parent_offsets) == 0
    spaces = {name: hierarchy.in_namespace(name) for name in hierarchy.namespace_names}
    found = {name: numbers[~tops[numbers]] for name, numbers in spaces.items()}
    return {name: below for name, below in found.items() if len(below)}


FMAX = Metric(
    "fmax",
    fmax,
    "largest F1 of a row over all thresholds, averaged over rows as in CAFA",
    takes="probabilities",
)
WEIGHTED_FMAX = Metric(
    "weighted-fmax",
    weighted_fmax,
    "fmax with classes counted by their information content",
    takes="probabilities",
)
SMIN = Metric(
    "smin",
    smin,
    "smallest distance of remaining uncertainty and misinformation over thresholds, in bits",
    direction="down",
    takes="probabilities",
)

# ---------------------------------------- information

CHUNK = 1024  # rows whose parents are counted at a time


def information_content(targets: Targets, label_space: Space) -> Tensor:
    """Return (C,) float64 the information content of each class, in bits.

    Args:
        targets: the labels of the training rows: ``Labels``, lists of labels, or (N, C) closed
            multi-hot.
        label_space: the taxonomy.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    structure = within_namespaces(hierarchy)
    offsets, numbers = closed_rows(targets, hierarchy)
    own = np.bincount(numbers, minlength=len(hierarchy))
    labeled = int((np.diff(offsets) > 0).sum())
    above = parent_counts(offsets, numbers, own, structure)
    above[np.diff(structure.parent_offsets) == 0] = labeled
    ratio = np.maximum(above, 1) / np.maximum(own, 1)
    return torch.from_numpy(np.log2(np.maximum(ratio, 1.0)))


def within_namespaces(hierarchy: Hierarchy) -> Structure:
    """Return the structure without edges into another namespace, which cafaeval discards."""
    structure = hierarchy.structure
    code = {one: number for number, one in enumerate(dict.fromkeys(hierarchy.namespaces))}
    of_class = np.array([code[one] for one in hierarchy.namespaces])
    inside = of_class[structure.edge_children] == of_class[structure.parent_ids]
    if inside.all():
        return structure
    fan_in = np.bincount(structure.edge_children[inside], minlength=len(hierarchy))
    offsets = np.concatenate([[0], np.cumsum(fan_in)])
    return Structure(offsets, structure.parent_ids[inside], structure.level_offsets)


def closed_rows(targets: Targets, hierarchy: Hierarchy) -> tuple[Ints, Ints]:
    """Return the classes of each row as CSR, closed within their namespaces."""
    if not isinstance(targets, Labels):
        found = read_labels(targets, hierarchy, "targets")
        if isinstance(found, Tensor):
            many = read_targets(found, hierarchy)
            many = as_targets(many, (len(many), len(hierarchy)), hierarchy, beside="rows, classes")
            rows, numbers = (part.cpu().numpy() for part in many.nonzero(as_tuple=True))
            counts = np.bincount(rows, minlength=len(many))
            offsets = np.concatenate([[0], np.cumsum(counts)])
            return within_namespaces(hierarchy).close(offsets, numbers)
        targets = Labels(found, hierarchy, numbers=True)
    if targets.hierarchy != hierarchy:
        raise HierlearnError("the labels belong to another hierarchy than label_space")
    return within_namespaces(hierarchy).close(*targets.annotated)


def dense(rows: tuple[Ints, Ints], classes: int) -> Tensor:
    """Return (N, C) bool of CSR rows."""
    offsets, numbers = rows
    found = np.zeros((len(offsets) - 1, classes), dtype=bool)
    found[np.repeat(np.arange(len(found)), np.diff(offsets)), numbers] = True
    return torch.from_numpy(found)


def parent_counts(
    offsets: Ints, numbers: Ints, own: Ints, structure: Structure
) -> NDArray[np.int64]:
    """Return (C,) how many rows have all parents of each class; 0 for top classes.

    Args:
        offsets: where the classes of each row begin.
        numbers: the closed classes of the rows.
        own: (C,) the rows of each class.
        structure: the taxonomy.
    """
    from scipy.sparse import csr_array

    fan_in = np.diff(structure.parent_offsets)
    found = np.zeros(structure.count, dtype=np.int64)
    single = np.flatnonzero(fan_in == 1)
    found[single] = own[structure.parent_ids[structure.parent_offsets[single]]]
    several = np.flatnonzero(fan_in > 1)
    if not len(several):
        return found
    place = np.full(structure.count, -1, dtype=np.int64)
    place[several] = np.arange(len(several))
    inside = place[structure.edge_children] >= 0
    edges = (structure.parent_ids[inside], place[structure.edge_children[inside]])
    shape = (structure.count, len(several))
    parents = csr_array((np.ones(int(inside.sum()), np.int32), edges), shape=shape)
    for begin in range(0, len(offsets) - 1, CHUNK):
        part = offsets[begin : begin + CHUNK + 1]
        ids = numbers[part[0] : part[-1]]
        rows = csr_array(
            (np.ones(len(ids), np.int32), ids, part - part[0]),
            shape=(len(part) - 1, structure.count),
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
            if not 0 <= value < float("inf"):
                raise ValueError
        except (IndexError, ValueError):
            raise DataError(
                f"{place(path, line)}: {text[:60]!r} is not a class, a tab and its information, a "
                f"number of at least 0"
            ) from None
        with suppress(LabelError):
            found[hierarchy.index(cells[0].strip())] = value
            known += 1
    if not known:
        raise DataError(f"{path} names no class of the hierarchy; is it for another ontology?")
    return found


# ---------------------------------------- coherent columns


class Coherence:
    """The maximum over the descendants of each class in its namespace, fast on the CPU.

    Args:
        hierarchy: the taxonomy.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        structure = within_namespaces(hierarchy)
        self.hierarchy = hierarchy if structure is hierarchy.structure else None
        child, parent = structure.edge_children, structure.parent_ids
        self.steps = []  # the edges above each level, the deepest first, sorted by parent
        for level in range(structure.depth, 1, -1):
            some = np.flatnonzero(structure.levels[child] == level)
            some = some[np.argsort(parent[some], kind="stable")]
            above, starts = np.unique(parent[some], return_index=True)
            if len(some):
                self.steps.append((child[some], above, starts))

    def __call__(self, p: Tensor) -> Tensor:
        """Return (n, C) coherent probabilities."""
        if p.is_cuda and self.hierarchy is not None:
            return self.hierarchy.max_up(p)
        columns = np.ascontiguousarray(p.cpu().numpy().T)  # (C, n): a class is one run of memory
        for child, above, starts in self.steps:
            most = np.maximum.reduceat(columns[child], starts, axis=0)
            columns[above] = np.maximum(columns[above], most)
        return torch.from_numpy(columns).T.contiguous().to(p.device)


# ---------------------------------------- predictions as CAFA has them


@contextmanager
def cafa_writer(
    path: Path | str,
    hierarchy: Hierarchy,
    *,
    min_score: float = 0.01,
    max_terms: int = 1500,
) -> Iterator[Callable[[Sequence[str], Tensor], int]]:
    """Yield a function that appends the scores of genes, and returns how many lines it wrote.

    It takes n ids and (n, C) probabilities. The terms of a gene come with falling scores, a parent
    before its children where they tie. The file appears when the context ends without an error.

    Args:
        path: the file.
        hierarchy: the taxonomy of the scores.
        min_score: the smallest score that is written.
        max_terms: how many terms of a gene are written, at most.
    """
    if not 0 <= min_score <= 1:
        raise DataError(f"{arg('min_score')} must lie between 0 and 1, not {min_score}")
    if max_terms < 1:
        raise DataError(f"{arg('max_terms')} must be at least 1, not {max_terms}")
    most = min(max_terms, len(hierarchy))
    names = hierarchy.names
    with atomic_write(path) as file:

        def append(ids: Sequence[str], probabilities: Tensor) -> int:
            if tuple(probabilities.shape) != (len(ids), len(hierarchy)):
                raise DataError(
                    f"probabilities {tuple(probabilities.shape)} must be ({len(ids)}, "
                    f"{len(hierarchy)}): one row per id, one column per class"
                )
            lines: list[str] = []
            for gene, row in zip(ids, probabilities.detach().cpu(), strict=True):
                if "\t" in gene or "\n" in gene:
                    raise DataError(f"the id {gene!r} holds a tab or a line end; rename it")
                rounded = (row.double() * 1000).round() / 1000
                numbers = (row >= min_score).logical_and(rounded > 0).nonzero().squeeze(1)
                # Class numbers ascend by level, so a stable sort puts parents first.
                order = torch.sort(rounded[numbers], descending=True, stable=True).indices
                lines.extend(
                    f"{gene}\t{names[number]}\t{rounded[number]:.3f}\n"
                    for number in numbers[order[:most]].tolist()
                )
            file.writelines(lines)
            return len(lines)

        yield append
