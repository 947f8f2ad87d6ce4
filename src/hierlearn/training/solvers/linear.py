"""Linear: solves the sparse weights of a linear head on all rows at once.

    minimize   l2_penalty m / 2 |w|^2  +  sum over rows i of weight_i max(0, 1 - y_i w x_i)^2

for every slot, with y_i = 1 where it is right and -1 where it is not, and m the mean |x_i|^2, so
that the unit of the inputs does not matter; the bias is penalized as the weight of a constant
column. With one group these are the problems of scikit-learn's LinearSVC with C = 1 / (l2_penalty
m), and m = 1 for texts; see ``kernels/linear_numba.py``.

A group is one problem per slot on the rows that it concerns: the terminal classes and all rows, or
the children of a parent and the rows below it. It sees only the columns that occur in its rows.

Dual variables are where the solver begins again: after some rows are added or left out, most of
them are right already. ``out_of_fold`` does so.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import DataWarning, HierlearnError, arg
from hierlearn.links import HeadOutput
from hierlearn.networks.ensemble import heads_of, networks_in
from hierlearn.networks.estimator import ROOT, families
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.sparse_linear import SparseLinearHead
from hierlearn.training.blending import FOLDS, assign_folds, first_class
from hierlearn.training.seeding import derive
from hierlearn.training.solvers.estimator import paths_of
from hierlearn.training.solvers.solver import fit_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hierlearn.training.prepare import Prepared
    from hierlearn.training.rows import Rows
    from hierlearn.training.solvers.solver import Fitted, Run

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]
    Matrix = tuple[NDArray[np.int64], NDArray[Any], Floats]  # offsets, columns, values
    Duals = dict[int, Floats]  # by the first slot of some that are solved together
    Weights = tuple[int, NDArray[np.int64], Floats, float]  # slot, columns, values, bias

TOLERANCE = 0.1  # of the projected gradients, which begin at 1; liblinear's
PASSES = 1000
FEW = 20  # rows that are left out, below which the slope is not chosen by them
MOST_ROWS = 4000  # that are left out for the slope
MOST_SCORES = 1 << 22  # of these
SLOPES = (0.5, 50.0)
SECTIONS = 10  # of the logarithm of the slope: to within 3 %
PRUNED = 1e-4  # of the norm of the weights of a slot: what may be left out of them


@dataclass(frozen=True)
class Group:
    """Slots that compete, and the rows that they compete for.

    Attributes:
        rows: (n,) the numbers of the rows.
        slots: (K,) the slots.
        positives: the places in ``rows`` where a slot is right, slot after slot.
        bounds: (K + 1,) where those of each slot begin.
        known: (n, C) which classes of a row are known; None for all.
        classes: (K,) the class of each slot, by which ``known`` is read.
    """

    rows: Ints
    slots: Ints
    positives: Ints
    bounds: Ints
    known: NDArray[np.bool_] | None = None

    @classmethod
    def of_choices(cls, rows: Ints, slots: Ints, choice: Ints, known: Any = None) -> Group:
        """Return a group of which each row chooses one slot, by its place among them, or -1."""
        order = np.argsort(choice, kind="stable")
        bounds = np.searchsorted(choice[order], np.arange(len(slots) + 1))
        return cls(rows, slots, order, bounds, known)


def groups_of(head: SparseLinearHead, rows: Rows) -> Iterator[Group]:
    """Yield the groups of a head, those of many rows first."""
    labels, space = rows.labels, head.label_space
    every, classes = np.arange(len(rows)), np.arange(len(space))
    known = labels.mask().numpy() if rows.is_partial and head.strategy != "per-parent" else None
    if head.strategy == "per-class":
        offsets, found = labels.closed
        order = np.argsort(found, kind="stable")
        bounds = np.searchsorted(found[order], np.arange(len(space) + 1))
        row_of = np.repeat(every, np.diff(offsets))
        yield Group(every, classes, row_of[order], bounds, known)
        return
    if (labels.terminal_counts > 1).any() or not labels.terminal_counts.all():
        raise HierlearnError(
            f"rows have several labels, or none, so {arg('strategy')} must be per-class, not "
            f"{head.strategy}"
        )
    last = labels.terminal[1]  # (N,) the most specific class of each row
    terminal = np.asarray(space.is_terminal)
    if head.strategy == "flat":
        place = np.where(terminal, np.cumsum(terminal) - 1, -1)
        yield Group.of_choices(every, np.asarray(space.terminals), place[last], known)
        return
    path = paths_of(labels, space.hierarchy.depth)  # (N, L) the class at each level, or -1
    path = np.concatenate([path, np.full((len(path), 1), -1)], axis=1)
    end_of = {int(parent): len(space) + n for n, parent in enumerate(head.ends.tolist())}
    by_level: dict[int, tuple[Ints, Ints]] = {}
    for parent, members in families(space).items():
        level = 0 if parent == ROOT else int(space.hierarchy.levels[parent])
        if parent == ROOT:
            inside = every
        else:
            if level not in by_level:
                order = np.argsort(path[:, level - 1], kind="stable")
                by_level = {level: (order, path[order, level - 1])}
            order, sorted_classes = by_level[level]
            first, end = np.searchsorted(sorted_classes, [parent, parent + 1])
            inside = order[first:end]
        below = path[inside, level]
        choice = np.where(below >= 0, below, parent)
        counts = (below >= 0) | (parent in end_of)
        inside, choice = inside[counts], choice[counts]
        slots = np.array([end_of[parent] if one == parent else one for one in members.tolist()])
        yield Group.of_choices(inside, slots, np.searchsorted(members, choice))


def entries_of(inputs: Tensor | SparseRows) -> tuple[Matrix, int]:
    """Return rows as offsets, columns and values, and how wide they are."""
    if isinstance(inputs, SparseRows):
        parts = (inputs.offsets, inputs.columns, inputs.values.float())
        offsets, columns, values = (one.cpu().numpy() for one in parts)
        return (offsets, columns, values), inputs.width
    count, width = inputs.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    columns = np.tile(np.arange(width, dtype=np.int64), count)
    return (offsets, columns, inputs.float().cpu().numpy().reshape(-1)), width


def take(x: Matrix, width: int, rows: Ints) -> tuple[Matrix, Ints]:
    """Return some rows whose columns are numbered anew, and the columns that occur in them."""
    from hierlearn.kernels.linear_numba import copy_rows, count_columns

    counts = np.zeros(width, dtype=np.int32)
    entries = count_columns(x[0], x[1], rows, counts)
    used = np.flatnonzero(counts)
    number = np.zeros(width, dtype=np.int32)
    number[used] = np.arange(len(used))
    found = (
        np.empty(len(rows) + 1, dtype=np.int64),
        np.empty(entries, dtype=np.int32),
        np.empty(entries, dtype=np.float32),
    )
    copy_rows(x, rows, number, found)
    return found, used


# ---------------------------------------- the optimum


def fit_head(
    head: SparseLinearHead,
    rows: Rows,
    penalty: float,
    *,
    left_out: Ints | None = None,
    duals: Duals | None = None,
    positive_weight: Floats | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> None:
    """Set the weights of a head to the optimum.

    Args:
        head: whose weights are set.
        rows: the training rows.
        penalty: what m |w|^2 / 2 counts beside the summed loss, see above.
        left_out: the numbers of rows that do not count.
        duals: the dual variables of another fit to these rows, from which to go on; they become
            those of this one. An empty dictionary is filled; None keeps none.
        positive_weight: (S,) factors of the weight of a row where its slot is right.
        tolerance: how far apart the projected gradients of a slot may be at the end.
        seed: of the order in which rows are visited.
    """
    from hierlearn.kernels.linear_numba import LANES, scatter

    x, width = entries_of(rows.inputs)
    counts = np.ones(len(rows)) if rows.weights is None else rows.weights.double().cpu().numpy()
    squares = np.bincount(
        np.repeat(np.arange(len(rows)), np.diff(x[0])), np.square(x[2]), minlength=len(rows)
    )
    square = float(counts @ squares) / max(float(counts.sum()), 1e-30)
    costs = (counts / (penalty * (square or 1.0))).astype(np.float32)
    if left_out is not None:
        costs[left_out] = 0
    found: list[Weights] = []
    workers = torch.get_num_threads()

    def solve_some(group: Group, lanes: Ints, held: tuple[Matrix, Ints] | None = None) -> None:
        """Solve some slots of a group."""
        matrix, used = take(x, width, group.rows) if held is None else held
        first = int(group.slots[lanes[0]])
        state = None if duals is None else duals.get(first)
        if state is None:
            state = np.zeros((len(group.rows), LANES), dtype=np.float32)
        factors = np.ones(len(lanes), dtype=np.float32)
        if positive_weight is not None:
            factors = positive_weight[group.slots[lanes]]
        found.extend(
            solve_lanes(
                group,
                lanes,
                (matrix, used, costs[group.rows]),
                state,
                factors,
                tolerance=tolerance,
                seed=derive(seed, "linear", first),
            )
        )
        if duals is not None:
            duals[first] = state

    pool: Any = ThreadPoolExecutor(workers) if workers > 1 else nullcontext()
    with pool as threads:
        jobs = []
        for group in groups_of(head, rows):
            if not len(group.rows):
                continue
            chunks = np.split(np.arange(len(group.slots)), range(LANES, len(group.slots), LANES))
            held = take(x, width, group.rows) if len(chunks) > 1 else None
            for lanes in chunks:
                if threads is None:
                    solve_some(group, lanes, held)
                else:
                    jobs.append(threads.submit(solve_some, group, lanes, held))
        for job in jobs:
            job.result()

    # The weights of all slots, by column.
    found.sort(key=lambda one: one[0])
    counts = np.zeros(width + 1, dtype=np.int64)
    bias = np.zeros(len(head.bias), dtype=np.float32)
    for slot, columns, _, own in found:
        counts[columns + 1] += 1
        bias[slot] = own
    offsets = np.cumsum(counts)
    slots = np.empty(offsets[-1], dtype=np.int16 if head.slots.dtype == torch.int16 else np.int32)
    values, place = np.empty(offsets[-1], dtype=np.float32), offsets[:-1].copy()
    for slot, columns, own_values, _ in found:
        scatter(columns, own_values, slot, place, slots, values)
    head.set(offsets, slots, values, bias)


def solve_lanes(
    group: Group,
    lanes: Ints,
    held: tuple[Matrix, Ints, Floats],
    state: Floats,
    factors: Floats,
    *,
    tolerance: float,
    seed: int,
) -> list[Weights]:
    """Return the weights of some slots of a group.

    Args:
        group: the rows, and which slot is right.
        lanes: the places of the slots in the group, as many as fit.
        held: the rows, their columns, and the cost of each.
        state: the dual variables, in which those at the optimum are left.
        factors: of the costs of positives.
        tolerance: see ``fit_head``.
        seed: of the order of rows.
    """
    from hierlearn.kernels.linear_numba import LANES, solve

    matrix, used, costs = held
    sides = np.zeros((len(group.rows), LANES), dtype=np.int8)
    sides[:, : len(lanes)] = -1
    for lane, number in enumerate(lanes):
        sides[group.positives[group.bounds[number] : group.bounds[number + 1]], lane] = 1
    if group.known is not None:
        known = group.known[np.ix_(group.rows, group.slots[lanes])]
        sides[:, : len(lanes)][~known] = 0
    # A slot that is always right, or never, needs no weights; two slots are two sides of one.
    counted = costs > 0
    right = [float(costs[(sides[:, lane] > 0) & counted].sum()) for lane in range(len(lanes))]
    wrong = [float(costs[(sides[:, lane] < 0) & counted].sum()) for lane in range(len(lanes))]
    needed = [r > 0 and w > 0 for r, w in zip(right, wrong, strict=True)]
    paired = len(group.slots) == 2 and all(needed) and bool((factors == 1).all())
    paired = paired and np.array_equal(sides[:, 0], -sides[:, 1])
    if paired:
        needed[1] = False
    sides[:, : len(lanes)][:, ~np.array(needed)] = 0
    weights = np.zeros((len(used) + 1, LANES), dtype=np.float32)
    costly = np.ones(LANES, dtype=np.float32)
    costly[: len(lanes)] = factors
    _, unfinished = solve(matrix, sides, costs, costly, state, weights, tolerance, PASSES, seed | 1)
    if unfinished:
        warnings.warn(
            f"linear weights did not converge in {PASSES:,} passes over {len(costs):,} rows; "
            f"standardize the inputs, or raise {arg('l2_penalty')}",
            DataWarning,
            stacklevel=2,
        )
    found: list[Weights] = []
    turned = np.ascontiguousarray(weights[:, : len(lanes)].T)
    for lane, number in enumerate(lanes):
        slot, own = int(group.slots[number]), turned[lane, :-1]
        if not needed[lane]:
            found.append((slot, used[:0], own[:0], 1.0 if right[lane] else -1.0))
            continue
        kept = np.abs(own) > PRUNED * np.linalg.norm(own) / max(len(own), 1) ** 0.5
        found.append((slot, used[kept], own[kept], float(turned[lane, -1])))
    if paired:
        slot, columns, values, own_bias = found[0]
        found[1] = (int(group.slots[lanes[1]]), columns, -values, -own_bias)
    return found


def out_of_fold(
    head: SparseLinearHead,
    rows: Rows,
    folds: Sequence[Ints],
    penalty: float,
    seed: int = 0,
) -> Tensor:
    """Return the scores of rows by weights of the others, and leave a head with those of all.

    Every fit begins with the dual variables of the one before. The slope of the head becomes the
    one under which the rows that were left out are most likely, unless it was given.

    Args:
        head: is set; ``head.logits`` turns scores into logits, which ``head.link`` reads.
        rows: the training rows.
        folds: the numbers of the rows to leave out, fold after fold.
        penalty: see ``fit_head``.
        seed: of the order in which rows are visited.

    Returns:
        (n, S) the scores of the rows of all folds, in their order.
    """
    parts: list[Tensor] = []
    duals: Duals = {}
    for fold in folds:
        fit_head(head, rows, penalty, left_out=fold, duals=duals, seed=seed)
        parts.append(head.scores(rows.take(torch.from_numpy(fold))))
    fit_head(head, rows, penalty, duals=duals, seed=seed)
    scores = torch.cat(parts)
    if head.fits_slope:
        fit_slope(head, scores, rows, np.concatenate(folds))
    return scores


def fit_slope(head: SparseLinearHead, scores: Tensor, rows: Rows, numbers: Ints) -> None:
    """Set the slope under which some rows are most likely, by golden section.

    The loss is convex in the slope. A row tells nothing where no other one has its class.

    Args:
        head: whose slope is set.
        scores: (n, S) of the rows, by weights of others.
        rows: the training rows.
        numbers: (n,) the numbers of the rows.
    """
    labels = rows.labels
    if head.strategy == "per-class":
        index = torch.from_numpy(numbers).to(rows.device)
        targets, mask = rows.targets(index), rows.mask(index)
    else:
        last = labels.terminal[1]
        common = np.bincount(last)[last[numbers]] > np.bincount(last[numbers])[last[numbers]]
        scores = scores[torch.from_numpy(common).to(scores.device)]
        last = last[numbers[common]]
        own = torch.from_numpy(last).to(scores.device)[:, None]
        ends = torch.from_numpy(np.asarray(head.label_space.is_terminal)[last]).to(scores.device)
    if len(scores) < FEW:
        return

    def loss(slope: float) -> float:
        head.slope.fill_(float(np.exp(slope)))
        output = HeadOutput.from_logits(head.logits(scores), head.link)
        if head.strategy == "per-class":
            losses = -torch.where(targets, output.log_p, output.log_not_p)
            return float((losses if mask is None else losses * mask).sum())
        masses = head.link.log_masses(output.float_logits).gather(1, own)
        inside = output.log_p.gather(1, own)
        return -float(torch.where(ends[:, None], masses, inside).double().sum())

    ratio = (5**0.5 - 1) / 2
    left, right = np.log(SLOPES)
    inner = [right - ratio * (right - left), left + ratio * (right - left)]
    values = [loss(one) for one in inner]
    for _ in range(SECTIONS):
        if values[0] <= values[1]:
            right, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = right - ratio * (right - left)
            values[0] = loss(inner[0])
        else:
            left, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = left + ratio * (right - left)
            values[1] = loss(inner[1])
    head.slope.fill_(float(np.exp((left + right) / 2)))


def rows_of_slope(head: SparseLinearHead, rows: Rows, seed: int) -> Ints:
    """Return the rows by which the slope is chosen: a fifth of each class, of many rows fewer."""
    keys = rows.keys
    groups = np.arange(len(rows)) if keys is None else keys.cpu().numpy()
    groups = np.unique(groups, return_inverse=True)[1]
    if int(groups.max()) < FEW:
        return np.arange(0)
    fold = np.flatnonzero(assign_folds(first_class(rows.labels), groups, FOLDS, seed)[groups] == 0)
    most = max(FEW, min(MOST_ROWS, MOST_SCORES // len(head.bias)))
    if len(fold) > most:
        fold = np.sort(np.random.default_rng(seed).choice(fold, most, replace=False))
    return fold


# ---------------------------------------- as a training


class LinearSolver:
    """Solve the weights of a linear head; all members of an ensemble have the same."""

    def steps(self, prepared: Prepared) -> int:
        """Return 1."""
        del prepared
        return 1

    def fit(self, prepared: Prepared, run: Run) -> Fitted:
        """Solve all slots, unless a checkpoint has them."""
        heads = heads_of(prepared.network, SparseLinearHead)
        encoder = encoder_of(prepared)

        def solve() -> None:
            settings = prepared.decision.settings
            first, *others = heads
            rows, seed = copy(prepared.rows), settings.seed
            rows.inputs = encoder.eval()(rows.inputs)
            fold = rows_of_slope(first, rows, seed) if first.fits_slope else np.arange(0)
            if len(fold):
                out_of_fold(first, rows, [fold], settings.l2_penalty, seed)
            else:
                fit_head(first, rows, settings.l2_penalty, seed=seed)
            for head in others:
                head.load_state_dict(first.state_dict())

        return fit_at_once(prepared, run, solve)


def encoder_of(prepared: Prepared) -> nn.Module:
    """Return what inputs go through before they are solved; raise where nothing can be."""
    if prepared.rows.streamed:
        raise HierlearnError("linear reads rows in memory, not streams; use optimizer adamw")
    network: Any = networks_in(prepared.network)[0]
    if not heads_of(prepared.network, SparseLinearHead) or len(network.heads) > 1:
        raise HierlearnError(
            "optimizer linear solves one head of sparse weights alone; use optimizer adamw, or "
            f"{arg('head', 'sparse-linear')}"
        )
    encoder: nn.Module = network.encoder
    if any(True for _ in encoder.parameters()):
        raise HierlearnError(
            f"a head of sparse weights has no gradients to train {type(encoder).__name__}; use "
            f"the network linear or embeddings"
        )
    return encoder
