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

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from hierlearn.errors import HierlearnError
from hierlearn.losses import BCELoss, CondSoftmaxLoss, HingeLoss, LeafCELoss
from hierlearn.networks.ensemble import Ensemble
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.layers import InputNoise
from hierlearn.networks.network import Network
from hierlearn.networks.sparse import SparseRows
from hierlearn.training.lbfgs import minimize
from hierlearn.training.stream import ParquetRows
from hierlearn.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import nn

    from hierlearn.training.rows import Rows

    Floats = NDArray[np.floating]
    Ints = NDArray[np.int64]
    # From scores, targets and weights, all (n, K), to the summed loss and its gradient.
    Objective = Callable[[Floats, Floats, Floats], tuple[float, Floats]]

FEW = 400  # rows of a block that is solved in their span
WIDTH = 16  # classes of a block that can be solved apart, if it has many rows
ENTRIES = 1 << 24  # of the targets of such a block
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
    targets: Floats
    weights: Floats


# ---------------------------------------------------------------------- objectives


def softmax_objective(scores: Floats, targets: Floats, weights: Floats) -> tuple[float, Floats]:
    """Return the summed cross entropy of a softmax, and its gradient."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    p = np.exp(shifted)
    total = p.sum(axis=1, keepdims=True)
    losses = np.log(total) - (targets * shifted).sum(axis=1, keepdims=True)
    return float((weights * losses).sum()), weights * (p / total - targets)


def logistic_objective(scores: Floats, targets: Floats, weights: Floats) -> tuple[float, Floats]:
    """Return the summed binary cross entropy, and its gradient."""
    losses = np.logaddexp(0, scores) - targets * scores
    p = 0.5 * (1 + np.tanh(0.5 * scores))
    return float((weights * losses).sum()), weights * (p - targets)


def hinge_objective(
    scores: Floats, targets: Floats, weights: Floats, margin: float = 4.0
) -> tuple[float, Floats]:
    """Return the summed squared hinge, and its gradient."""
    sides = 2 * targets - 1
    short = np.maximum(margin - sides * scores, 0)
    return float((weights * short * short).sum()), -2 * weights * sides * short


# ---------------------------------------------------------------------- blocks


def sibling_blocks(rows: Rows, weights: Floats, *, shares: bool) -> Iterator[Block]:
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
        own = weights[mine, None]
        if shares:
            yield Block(mine, classes, targets / targets.sum(axis=1, keepdims=True), own)
            continue
        parts = 1 if len(mine) <= FEW else -(-len(classes) // WIDTH)
        width = -(-len(classes) // parts)
        for begin in range(0, len(classes), width):
            some = slice(begin, begin + width)
            yield Block(mine, classes[some], targets[:, some], own)


def terminal_block(rows: Rows, weights: Floats, terminals: Ints) -> Iterator[Block]:
    """Yield the labeled rows and the terminal classes."""
    offsets, found = rows.labels.terminal
    counts = np.diff(offsets)
    mine = np.flatnonzero(counts)
    targets = np.zeros((len(mine), len(terminals)), dtype=np.float32)
    place = np.repeat(np.arange(len(mine)), counts[mine])
    targets[place, np.searchsorted(terminals, found)] = 1 / counts[mine][place]
    yield Block(mine, terminals, targets, weights[mine, None])


def class_blocks(rows: Rows, weights: Floats) -> Iterator[Block]:
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


# ---------------------------------------------------------------------- the optimum


def solve_block(
    inputs: Any, block: Block, objective: Objective, penalty: float, tolerance: float = 1e-3
) -> tuple[Ints, Floats, Floats]:
    """Return the columns that occur, their weights (d, K), and the bias (K,).

    Args:
        inputs: (N, D) all rows, a SciPy CSR matrix or an array.
        block: the problem.
        objective: its loss.
        penalty: what |W|^2 / 2 counts.
        tolerance: of the gradient, see ``minimize``.
    """
    x = inputs[block.rows]
    if isinstance(x, np.ndarray):
        columns = np.arange(x.shape[1])
    else:
        columns = np.unique(x.indices)
        x.indices = np.searchsorted(columns, x.indices).astype(x.indices.dtype)
        x.resize((x.shape[0], len(columns)))
    few = len(block.rows) <= FEW
    left = span(x) if few else x
    right = left.T if isinstance(left, np.ndarray) else left.T.tocsr()

    def function(v: Floats) -> tuple[float, Floats]:
        scores = left @ v[: left.shape[1]]
        if not few:
            scores += v[-1]
        value, change = objective(scores, block.targets, block.weights)
        gradient = penalty * v
        gradient[: left.shape[1]] += right @ change
        if not few:
            gradient[-1] += change.sum(axis=0)
        return value + 0.5 * penalty * float(np.vdot(v, v)), gradient

    size = left.shape[1] + (not few)
    start = np.zeros((size, len(block.classes)), dtype=np.float32)
    v = minimize(function, start, tolerance=tolerance)
    if not few:
        return columns, v[:-1], v[-1]
    from scipy.linalg import solve_triangular

    u = solve_triangular(left, v, lower=True, trans="T").astype(np.float32)
    return columns, x.T @ u, u.sum(axis=0)


def span(x: Any) -> Floats:
    """Return L with L L' = X X' + 1, in single precision."""
    gram = x @ x.T
    gram = (gram if isinstance(gram, np.ndarray) else gram.toarray()).astype(np.float64) + 1
    gram[np.diag_indices(len(gram))] += JITTER * gram.trace() / len(gram)
    found: Floats = np.linalg.cholesky(gram).astype(np.float32)
    return found


def solve_linear(
    loss: Any, rows: Rows, penalty: float, tolerance: float = 1e-3
) -> tuple[Floats, Floats]:
    """Return the weights (D, C) and the bias (C,) of a linear network at the optimum.

    Args:
        loss: a HingeLoss, CondSoftmaxLoss, LeafCELoss or BCELoss.
        rows: the training rows.
        penalty: what |W|^2 / 2 counts beside the summed loss.
        tolerance: of the gradient of every block, see ``minimize``.
    """
    weights = np.ones(len(rows), dtype=np.float32)
    if rows.weights is not None:
        weights = rows.weights.cpu().numpy()
    objective: Objective = softmax_objective
    if isinstance(loss, HingeLoss):
        objective = partial(hinge_objective, margin=loss.margin)
        blocks = sibling_blocks(rows, weights, shares=False)
    elif isinstance(loss, CondSoftmaxLoss):
        blocks = sibling_blocks(rows, weights, shares=True)
    elif isinstance(loss, LeafCELoss):
        blocks = terminal_block(rows, weights, np.flatnonzero(loss.label_space.is_terminal))
    else:
        objective = logistic_objective
        blocks = class_blocks(rows, weights)
    inputs = matrix(rows)
    shape = (inputs.shape[1], len(rows.labels.hierarchy))
    weight, bias = np.zeros(shape, dtype=np.float32), np.zeros(shape[1], dtype=np.float32)

    def solve(block: Block) -> None:
        columns, found, own = solve_block(inputs, block, objective, penalty, tolerance)
        weight[columns[:, None], block.classes] = found
        bias[block.classes] = own

    # Products of large sparse matrices release the interpreter's lock and so run on all cores;
    # small blocks would only wait for it, and for each other's threads.
    small: list[Block] = []
    with threadpool_limits(1), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        waiting = []
        for block in blocks:
            if len(block.rows) <= FEW:
                small.append(block)
            else:
                waiting.append(pool.submit(solve, block))
        for one in waiting:
            one.result()
        for block in small:
            solve(block)
    return weight, bias


def matrix(rows: Rows) -> Any:
    """Return the inputs as a SciPy matrix, or an array."""
    held = rows.inputs
    if not isinstance(held, SparseRows):
        return held.cpu().numpy()
    from scipy.sparse import csr_matrix

    parts = (held.values.cpu().numpy(), held.columns.cpu().numpy(), held.offsets.cpu().numpy())
    return csr_matrix(parts, shape=held.shape)


# ---------------------------------------------------------------------- as a training


def unsupported_reason(network: nn.Module, loss: Any, rows: Rows) -> str | None:
    """Return why a training has no solver, or None."""
    kinds = (HingeLoss, CondSoftmaxLoss, LeafCELoss, BCELoss)
    if type(loss) not in kinds:
        return f"the loss is {type(loss).__name__}; it takes hinge, cond-softmax, leaf-ce and bce"
    if isinstance(loss, BCELoss) and getattr(loss.base, "scale", None) != 1:
        return "bce has a log_base other than e"
    if isinstance(loss, LeafCELoss) and rows.labels.unlabeled_descendants == "ignore":
        return "leaf-ce of rows with unknown descendants is not convex"
    if isinstance(rows, ParquetRows):
        return "the rows are streamed"
    if linear_head(network) is None:
        return "the network is not linear without input_dropout"
    return None


def linear_head(network: nn.Module) -> LinearHead | None:
    """Return the only head of a network that is linear in its inputs; None for other networks."""
    inner = getattr(network, "network", None) if isinstance(network, Ensemble) else network
    if not isinstance(inner, Network) or len(inner.heads) != 1:
        return None
    encoder, (head,) = inner.encoder, inner.heads.values()
    plain = isinstance(encoder, InputNoise) and encoder.p == 0 and encoder.std == 0
    return head if plain and isinstance(head, LinearHead) else None


class LinearSolver(Trainer):
    """A training of one step, to the optimum; the members of an ensemble are equal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        reason = unsupported_reason(self.network, self.loss, self.rows)
        if reason is not None:
            raise HierlearnError(f"lbfgs cannot train this: {reason}; use optimizer='adamw'")
        self.steps_per_epoch = self.steps = 1

    def train(self) -> None:
        """Solve, unless a checkpoint has the solution."""
        if not self.finished:
            self.train_epoch()
        self.stopping.restore()

    def train_epoch(self) -> None:
        """Find the optimum, and report it as one epoch."""
        started = time.perf_counter()
        head = linear_head(self.network)
        assert head is not None
        weight, bias = solve_linear(self.loss, self.rows, self.settings.l2_penalty)
        with torch.no_grad():
            for own, found in ((head.linear.weight, weight), (head.linear.bias, bias)):
                own.copy_(torch.from_numpy(found).to(own).expand_as(own))
        self.step = 1
        record = {
            "epoch": 1,
            "step": 1,
            "learning_rate": 0.0,
            "loss": [self._mean_loss()] * len(self.seeds),
            "seconds": round(time.perf_counter() - started, 4),
        }
        if self.valid is not None:
            record["valid"] = self._validate(0)
        if self.on_step is not None:
            self.on_step(1)
        if self.on_epoch is not None and self.processes.writes:
            self.on_epoch(record)
        self._checkpoint()

    @torch.no_grad()
    def _mean_loss(self) -> float:
        """Return the loss of the first rows, without the penalty."""
        index = torch.arange(min(len(self.rows), 1024), device=self.rows.device)
        x, targets, mask = self.rows.batch(index)
        output = self.network(x)
        if self.is_ensemble:
            output = output.member(0)
        weight = None if self.rows.weights is None else self.rows.weights[index]
        return float(self.loss(output, targets, mask, weight))
