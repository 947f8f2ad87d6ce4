"""Linear solver: the optimum of a linear network, found on all rows at once instead of in batches.

    minimize   sum over rows i of weight_i l(i)  +  l2_penalty / 2 (|W|^2 + |b|^2)

A convex problem that falls apart into blocks, each with the rows and classes that it concerns:

    hinge, cond-softmax   one block per parent: the rows below it and its children
    leaf-ce               one block: the labeled rows and the terminal classes
    bce                   classes, a few at a time, and all rows

A block sees only the columns that occur in its rows. One with few rows is solved in the span of its
rows: with the Cholesky factor L of X X' + 1, X W + b = L V and |W|^2 + |b|^2 = |V|^2.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, embedding_bag

from hierlearn.errors import HierlearnError, arg
from hierlearn.links import link_name
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.linear import encoder_of, only_layer
from hierlearn.training.choose import not_convex
from hierlearn.training.solvers.solver import fit_at_once
from hierlearn.training.stream import ParquetRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.training.prepare import Prepared
    from hierlearn.training.rows import Rows
    from hierlearn.training.solvers.solver import Fitted, Run

    Ints = NDArray[np.int64]
    # From scores, targets and weights, all (n, K), to the summed loss and its gradient.
    Steps = deque[tuple[Tensor, Tensor, float]]
    Objective = Callable[[Tensor, Tensor, Tensor], tuple[float, Tensor]]

FEW = 400  # rows of a block that is solved in their span
WIDTH = 64  # classes of a block of bce
MANY = 1 << 22  # entries of inputs that are worth several threads
MEMORY = 6  # steps from which curvature is known
DECREASE = 1e-4  # of what the slope promises
ROUNDING = 1e-6  # by which a value may rise, relative: sums in single precision
HALVINGS = 16  # of a step, until the function falls enough (Armijo)
JITTER = 1e-5  # on the diagonal of X X', relative: repeated rows make it singular


@dataclass(frozen=True)
class Block:
    """A convex problem on some rows and classes.

    Attributes:
        rows: (n,) the numbers of the rows.
        classes: (K,) the numbers of the classes.
        targets: (n, K) multi-hot, or shares that sum to 1 for a softmax.
        weights: (n, 1) or (n, K), 0 where a target is unknown.
    """

    rows: Ints
    classes: Ints
    targets: NDArray[np.float32]
    weights: NDArray[np.float32]


# ---------------------------------------- objectives


def softmax_objective(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    """Return the summed cross entropy of a softmax, and its gradient."""
    log_p = scores.log_softmax(dim=1)
    value = -float((weights * targets * log_p).sum())
    return value, weights * (log_p.exp() - targets)


def logistic_objective(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    """Return the summed binary cross entropy, and its gradient."""
    losses = binary_cross_entropy_with_logits(scores, targets, reduction="none")
    return float((weights * losses).sum()), weights * (scores.sigmoid() - targets)


def hinge_objective(
    scores: Tensor, targets: Tensor, weights: Tensor, margin: float = 4.0
) -> tuple[float, Tensor]:
    """Return the summed squared hinge, and its gradient."""
    sides = 2 * targets - 1
    short = (margin - sides * scores).clamp_min(0)
    return float((weights * short * short).sum()), -2 * weights * sides * short


OBJECTIVES: dict[str, Objective] = {
    "softmax": softmax_objective,
    "logistic": logistic_objective,
    "hinge": hinge_objective,
}


# ---------------------------------------- blocks


def sibling_blocks(rows: Rows, weights: NDArray[np.float32], *, shares: bool) -> Iterator[Block]:
    """Yield a block for every group of siblings, with the rows that have a positive in it.

    Args:
        rows: the training rows.
        weights: (N,) what each counts.
        shares: whether the positives of a group share its weight, as in a softmax.
    """
    labels = rows.labels
    offsets, found = labels.closed
    parents = np.asarray(labels.hierarchy.structure.first_parents)
    row_of = np.repeat(np.arange(len(labels)), np.diff(offsets))
    group_of = parents[found]
    order = np.argsort(group_of, kind="stable")
    bounds = np.searchsorted(group_of[order], np.unique(group_of))
    by_parent = np.argsort(parents, kind="stable")
    for part in np.split(order, bounds[1:]):
        if not len(part):
            continue
        group = group_of[part[0]]
        first, last = np.searchsorted(parents[by_parent], [group, group + 1])
        classes = np.sort(by_parent[first:last])
        mine, place = np.unique(row_of[part], return_inverse=True)
        targets = np.zeros((len(mine), len(classes)), dtype=np.float32)
        targets[place, np.searchsorted(classes, found[part])] = 1
        if shares:
            targets /= targets.sum(axis=1, keepdims=True)
        yield Block(mine, classes, targets, weights[mine, None])


def terminal_block(rows: Rows, weights: NDArray[np.float32], terminals: Ints) -> Iterator[Block]:
    """Yield the labeled rows and the terminal classes."""
    offsets, found = rows.labels.terminal
    counts = np.diff(offsets)
    mine = np.flatnonzero(counts)
    targets = np.zeros((len(mine), len(terminals)), dtype=np.float32)
    place = np.repeat(np.arange(len(mine)), counts[mine])
    targets[place, np.searchsorted(terminals, found)] = 1 / counts[mine][place]
    yield Block(mine, terminals, targets, weights[mine, None])


def class_blocks(rows: Rows, weights: NDArray[np.float32]) -> Iterator[Block]:
    """Yield all rows with some classes at a time."""
    labels = rows.labels
    every, classes = np.arange(len(labels)), np.arange(len(labels.hierarchy))
    row_of = np.repeat(every, np.diff(labels.closed[0]))
    mask = labels.mask().numpy() if labels.unlabeled_descendants == "ignore" else None
    for begin in range(0, len(classes), WIDTH):
        some = classes[begin : begin + WIDTH]
        targets = np.zeros((len(every), len(some)), dtype=np.float32)
        inside = (labels.closed[1] >= some[0]) & (labels.closed[1] <= some[-1])
        targets[row_of[inside], labels.closed[1][inside] - some[0]] = 1
        known = weights[:, None] if mask is None else weights[:, None] * mask[:, some]
        yield Block(every, some, targets, known.astype(np.float32))


# ---------------------------------------- designs


class Design:
    """The rows of a block as a matrix with a constant column: scores are ``times(v)``.

    Args:
        inputs: (N, D) all rows.
        rows: the numbers of those of the block.

    Attributes:
        columns: (d,) the columns that occur in the rows.
        size: the number of rows of v: d and the bias, or n in the span of few rows.
    """

    def __init__(self, inputs: Tensor | SparseRows, rows: Ints) -> None:
        index = torch.from_numpy(rows)
        self.x: Tensor | SparseRows
        if isinstance(inputs, SparseRows):
            x = inputs.take(index.to(inputs.values.device))
            used = torch.zeros(x.width, dtype=torch.bool, device=x.columns.device)
            used[x.columns] = True
            self.columns = used.nonzero()[:, 0]
            number = (used.cumsum(0) - 1)[x.columns]
            self.x = SparseRows(x.offsets, number, x.values, len(self.columns))
        else:
            self.x = inputs[index.to(inputs.device)]
            self.columns = torch.arange(inputs.shape[1], device=inputs.device)
        self.count = len(rows)
        self.factor: Tensor | None = None  # L, where the rows are few: L L' = X X' + 1
        if self.count <= FEW:
            dense = (self.x.dense() if isinstance(self.x, SparseRows) else self.x).double()
            gram = dense @ dense.T + 1
            gram.diagonal().add_(JITTER * float(gram.diagonal().mean()))
            self.factor = torch.linalg.cholesky(gram).float()
        self.size = self.count if self.factor is not None else len(self.columns) + 1
        self.turned = transposed(self.x) if self.factor is None else None

    def times(self, v: Tensor) -> Tensor:
        """Return (n, K) scores."""
        if self.factor is not None:
            return self.factor @ v
        return product(self.x, v[:-1]).add_(v[-1])

    def transposed_times(self, change: Tensor) -> Tensor:
        """Return (size, K) the gradient by v of scores that change."""
        if self.factor is not None:
            return self.factor.T @ change
        assert self.turned is not None
        return torch.cat([product(self.turned, change), change.sum(dim=0, keepdim=True)])

    def weights(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return (d, K) the weights of the columns, and (K,) the bias."""
        if self.factor is None:
            return v[:-1], v[-1]
        u = torch.linalg.solve_triangular(self.factor.T, v, upper=True)
        return product(transposed(self.x), u), u.sum(dim=0)


def product(x: Tensor | SparseRows, v: Tensor) -> Tensor:
    """Return x v."""
    if not isinstance(x, SparseRows):
        return x @ v
    return embedding_bag(
        x.columns,
        v.contiguous(),
        x.offsets,
        mode="sum",
        per_sample_weights=x.values,
        include_last_offset=True,
    )


def transposed(x: Tensor | SparseRows) -> Tensor | SparseRows:
    """Return x with rows and columns exchanged."""
    if not isinstance(x, SparseRows):
        return x.T
    order = x.columns.argsort(stable=True)
    counts = x.columns.bincount(minlength=x.width)
    rows = torch.arange(len(x), device=x.columns.device).repeat_interleave(x.offsets.diff())
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return SparseRows(offsets, rows[order], x.values[order], len(x))


# ---------------------------------------- the optimum


def solve_linear(
    loss: Any, rows: Rows, penalty: float, tolerance: float = 1e-3, *, encoder: Any = None
) -> tuple[Tensor, Tensor]:
    """Return the weights (D, C) and the bias (C,) of a linear network at the optimum.

    Args:
        loss: one that is ``convex``.
        rows: the training rows.
        penalty: what |W|^2 / 2 counts beside the summed loss.
        tolerance: of the gradient of every block, see ``minimize``.
        encoder: what inputs go through before the linear layer.
    """
    inputs = rows.inputs if encoder is None else encoder(rows.inputs)
    share = np.ones(len(rows), dtype=np.float32)
    if rows.weights is not None:
        share = rows.weights.cpu().numpy()
    together, name = loss.convex
    objective = OBJECTIVES[name]
    if name == "hinge":
        objective = partial(hinge_objective, margin=loss.margin)
    if together == "siblings":
        blocks = sibling_blocks(rows, share, shares=name == "softmax")
    elif together == "terminal":
        blocks = terminal_block(rows, share, np.flatnonzero(loss.label_space.is_terminal))
    else:
        blocks = class_blocks(rows, share)
    classes = len(rows.labels.hierarchy)
    weight = torch.zeros(inputs.shape[1], classes, device=rows.device)
    bias = torch.zeros(classes, device=rows.device)
    design, of = None, None
    for block in blocks:
        if design is None or of is not block.rows:
            design, of = Design(inputs, block.rows), block.rows
        start = torch.zeros(design.size, len(block.classes), device=rows.device)
        targets, weights = (
            torch.from_numpy(one).to(rows.device) for one in (block.targets, block.weights)
        )
        function = partial(penalized, design, objective, targets, weights, penalty)
        v = minimize(function, start, tolerance=tolerance)
        numbers = torch.from_numpy(block.classes).to(rows.device)
        weight[design.columns[:, None], numbers], bias[numbers] = design.weights(v)
    return weight, bias


def penalized(
    design: Design,
    objective: Objective,
    targets: Tensor,
    weights: Tensor,
    penalty: float,
    v: Tensor,
) -> tuple[float, Tensor]:
    """Return the value of a block and its gradient, with the penalty, at v."""
    value, change = objective(design.times(v), targets, weights)
    gradient = design.transposed_times(change).add_(v, alpha=penalty)
    return value + 0.5 * penalty * dot(v, v), gradient


# ---------------------------------------- L-BFGS


def minimize(
    function: Callable[[Tensor], tuple[float, Tensor]],
    start: Tensor,
    *,
    iterations: int = 100,
    tolerance: float = 1e-3,
) -> Tensor:
    """Return where the gradient is small, or what ``iterations`` steps reach.

    By L-BFGS (Liu and Nocedal, 1989); steps are halved until the function falls enough (Armijo).

    Args:
        function: from a matrix to its value and its gradient.
        start: where to begin.
        iterations: steps at most.
        tolerance: the largest entry of the gradient at the end, relative to that at the start.
    """
    x = start
    value, gradient = function(x)
    small = tolerance * largest(gradient)
    steps: Steps = deque(maxlen=MEMORY)
    for _ in range(iterations):
        if largest(gradient) <= small:
            break
        direction = times_inverse_hessian(gradient, steps).neg_()
        slope = dot(gradient, direction)
        size = 1.0
        for _ in range(HALVINGS):
            new = x.add(direction, alpha=size)
            new_value, new_gradient = function(new)
            if new_value <= value + DECREASE * size * slope + ROUNDING * abs(value):
                break
            size /= 2
        else:
            break  # no progress is possible at this precision
        step, change = new - x, new_gradient - gradient
        curvature = dot(step, change)
        if curvature > 1e-10 * dot(change, change):
            steps.append((step, change, 1 / curvature))
        x, value, gradient = new, new_value, new_gradient
    return x


def times_inverse_hessian(gradient: Tensor, steps: Steps) -> Tensor:
    """Return the gradient times what the last steps say of the inverse Hessian."""
    found = gradient.clone()
    if not steps:
        return found.div_(max(dot(gradient, gradient) ** 0.5, 1e-30))
    shares = []
    for step, change, inverse in reversed(steps):
        shares.append(inverse * dot(step, found))
        found.add_(change, alpha=-shares[-1])
    _, last_change, last_inverse = steps[-1]
    found.mul_(1 / (last_inverse * dot(last_change, last_change)))
    for (step, change, inverse), share in zip(steps, reversed(shares), strict=True):
        found.add_(step, alpha=share - inverse * dot(change, found))
    return found


def dot(a: Tensor, b: Tensor) -> float:
    """Return the sum of the products of the entries."""
    return float(a.view(-1).dot(b.view(-1)))


def largest(values: Tensor) -> float:
    """Return the largest absolute value, 0 if there is none."""
    return float(values.abs().max()) if values.numel() else 0.0


# ---------------------------------------- as a training


class LinearSolver:
    """Find the optimum of a linear network; all members of an ensemble have the same."""

    def steps(self, prepared: Prepared) -> int:
        """Return 1."""
        del prepared
        return 1

    def fit(self, prepared: Prepared, run: Run) -> Fitted:
        """Find the optimum, unless a checkpoint has it."""
        network, loss, rows = prepared.network, prepared.loss, prepared.rows
        settings = prepared.decision.settings
        layer = only_layer(network)
        base: Any = getattr(loss, "base", None)
        options = {
            "link": link_name(loss.link),
            "log_base": 2 if getattr(base, "scale", 1) != 1 else np.e,
            "class_weight": getattr(loss, "class_weight", None),
            "pos_weight": getattr(loss, "pos_weight", None),
        }
        reason = not_convex(
            type(loss),
            options,
            linear=layer is not None,
            partial=rows.is_partial,
            streamed=isinstance(rows, ParquetRows),
        )
        if reason is not None or layer is None:
            raise HierlearnError(
                f"lbfgs cannot train this: {reason}; use {arg('optimizer', 'adamw')}"
            )

        @torch.no_grad()
        def solve() -> list[float | None]:
            held, threads = rows.inputs, torch.get_num_threads()
            if (len(held.values) if isinstance(held, SparseRows) else held.numel()) < MANY:
                torch.set_num_threads(1)  # steps are so short that threads would mostly wait
            try:
                found = solve_linear(loss, rows, settings.l2_penalty, encoder=encoder_of(network))
                for own, one in zip((layer.weight, layer.bias), found, strict=True):
                    own.copy_(one.to(own).expand_as(own))
            finally:
                torch.set_num_threads(threads)
            # The loss of the first rows, without the penalty.
            index = torch.arange(min(len(rows), 1024), device=rows.device)
            x, targets, mask = rows.batch(index)
            output = network(x)
            if settings.ensemble_size > 1:
                output = output.member(0)
            weight = None if rows.weights is None else rows.weights[index]
            return [float(loss(output, targets, mask, weight))] * settings.ensemble_size

        return fit_at_once(prepared, run, solve)
