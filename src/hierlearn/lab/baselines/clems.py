"""CLEMS: features become a point, and the nearest label set answers.

Huang and Lin, "Cost-sensitive label embedding for multi-label classification" (2017). The distinct
label sets of the training rows are embedded before training, each as a truth t and as an answer u,
so that |t_i - u_j|^2 is about what answering set j costs where set i is true.
A linear layer regresses features to t, by the loss ``clems``; the answer is the nearest u. The
recipe ``clems`` does all of it.

The loss is the squared distance of an embedding to the point of the true label set.

    l(i) = |z_i - t(y_i)|^2

Of any other output the point of a label set is the set itself, and z the
probabilities of the classes: l(i) = sum over j of (p_ij - y_ij)^2, the Brier score. These points
embed the Hamming cost without any stress.

The cost is the mean height of the lowest common ancestor of each answered class and the nearest
true one, averaged with that of each true class and the nearest answered one. A set is its most
specific classes; equal classes cost nothing, and against a set without any class each costs the
height of the root. For rows with one path it is the HierDist of the metrics with
``correct_cost="zero"``. It is symmetric.

The node probabilities of an embedding between label points:

    w_k = 1/2 [k is nearest] + 1/2 softmax over sets k of -|z - u_k|^2 / temperature
    p   = sum over k of w_k y_k,      1 - p = sum over k of w_k (1 - y_k)

with u_k the point of set k as an answer and y_k its closed targets. Each set also has a point t_k
as the truth: what an embedding is trained towards. p is a convex mixture of
closed label sets: no class is more probable than its parents, in any tree or DAG.
 p exceeds 1/2 for the classes
of the nearest set and for no other: decisions at 1/2, and the most probable leaf of sets with one
path, are those of the nearest point, exactly.

The points are those of the distinct label sets of the training rows:

    |t_i - u_j| ~ sqrt(cost of answering set j where set i is true),    weighted by the rows of i

t_i is the point of set i as the truth and u_i as an answer; pairs within a role have weight 0.
Found by weighted SMACOF. Where there are more sets than points, the most frequent
ones have points, and a row of another trains towards the one that costs it least.

SMACOF (de Leeuw, 1977) between two groups, with weights a_i b_j across and 0 within, which
scikit-learn's has no weights for; so no pseudo-inverse is needed. A step never increases the
stress, the weighted sum of the squared differences of distances. With
r_ij = d_ij / |t_i - u_j|, A = sum a_i and B = sum b_j, a step is

    t_i <- 1 / B sum_j b_j r_ij (t_i - u_j)
    u_j <- mean of the new t, weighted by a, + 1 / A sum_i a_i r_ij (u_j - t_i)

and then all points move so that their mean is 0: three matmuls of K x K x D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from hierlearn.errors import HierlearnError, arg
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.links import Head
from hierlearn.links.output import HALF_PRECISION, HeadOutput, safe_log
from hierlearn.losses.loss import Loss
from hierlearn.memory.store import LabelSets, labels_of, take_rows
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, check_size
from hierlearn.training.recipes import Recipe, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Labels

    Costs = NDArray[np.float32]
    Floats = NDArray[np.float64]


MOST_SETS = 4096  # label sets with points of their own
MOST_ENTRIES = 1 << 26  # of their targets, a matrix of floats
KEYED = 1 << 24  # targets whose keys are computed at once
ITERATIONS = 100
TOLERANCE = 1e-3  # of the stress, in one step
FINER = 32  # so many times smaller chunks than elsewhere: their distances stay in the cache
SMALL = 256  # points up to which all eigenvectors are computed
POWERS = 4  # multiplications that sharpen a random subspace


class CLEMSHead(Head):
    """A linear layer to the space of label points.

    Args:
        features: F, the width of the features.
        label_space: what can be predicted, or a Hierarchy.
        size: D, the dimensions of a point.
        temperature: of the weights of the sets, relative to the mean cost of two training rows.
        sets: how many label sets have points, at most; the most frequent ones are kept. Where the
            head is trained by its name, None is all, up to 4,096; else 1.

    Attributes:
        points: the label sets, which training sets.
    """

    stackable = True

    def __init__(
        self,
        features: int,
        label_space: LabelSpace | Hierarchy,
        *,
        size: int = 64,
        temperature: float = 0.1,
        sets: int | None = None,
    ) -> None:
        super().__init__()
        check_size(size=size, **({} if sets is None else {"sets": sets}))
        if not 0 < temperature < math.inf:
            raise HierlearnError(
                f"{arg('temperature')} must be a number above 0, not {temperature!r}"
            )
        most = most_sets(len(LabelSpace.of(label_space)))
        if sets is not None and sets > most:
            raise HierlearnError(f"at most {most:,} label sets can have points, not {sets:,}")
        self.linear = Dense(features, size)
        self.points = LabelPoints(label_space, size, sets or 1)
        self.temperature = temperature

    def forward(self, features: Tensor | SparseRows) -> EmbeddedOutput:
        """Return the embeddings between the label points."""
        if isinstance(features, SparseRows):
            return EmbeddedOutput(features.times(self.linear), self.points)
        return EmbeddedOutput(self.linear(features), self.points)

    @torch.no_grad()
    def fit_labels(self, labels: Labels, weights: Floats | None, shared: dict[Any, Any]) -> None:
        """Embed the label sets of the training rows; members of an ensemble have the same points.

        Args:
            labels: of the training rows.
            weights: (N,) how much each row counts; None for all alike.
            shared: the points that other heads have found.
        """
        key = ("clems", self.points.size, self.points.truth.shape[-2])
        if key not in shared:
            shared[key] = embed_sets(labels, weights, *key[1:])
        found: Fitted = shared[key]
        device = self.points.factors.device
        chunks = row_chunks(len(found.others), len(found.others.hierarchy))
        keys = [self.points.keys_of(found.others.targets(rows).to(device)) for rows in chunks]
        self.points.set(
            found.truth,
            found.answers,
            found.targets,
            self.temperature * (found.mean_cost or 1.0),
            (torch.cat(keys), found.stand_ins.to(device)),
        )
        bias = self.linear.bias  # begins at the mean of what it is trained towards
        bias.copy_(found.mean.to(bias).expand_as(bias))

    @staticmethod
    def options_from_labels(labels: Labels, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that the training labels determine: how many sets have points.

        Args:
            labels: of the training rows.
            options: those that were given.
        """
        if labels.unlabeled_descendants == "ignore":
            raise HierlearnError(
                f"the head clems compares whole label sets, but {arg('unlabeled_descendants')} "
                "'ignore' "
                "leaves classes unknown; use 'negative', or another head"
            )
        most, asked = most_sets(len(labels.hierarchy)), options.get("sets")
        if asked is not None:
            check_size(sets=asked)
            most = min(most, asked)
        return {"sets": min(most, max(1, len(LabelSets.from_labels(labels).sets)))}


def most_sets(classes: int) -> int:
    """Return how many label sets can have points, for so many classes."""
    return min(MOST_SETS, max(1, MOST_ENTRIES // classes))


def clems_loss(embeddings: Tensor, points: Tensor) -> Tensor:
    """Return (N,) squared distances of (N, D) embeddings to the points of their label sets."""
    return (embeddings - points).square().sum(dim=-1)


class CLEMSLoss(Loss):
    """The squared distance to the point of the true label set.

    Rows without a label count: the empty set has a point, too. A row whose set has none, which
    only rows outside of the training rows can be, costs nothing.

    Args:
        label_space: what can be predicted, or a Hierarchy; tree or DAG.
        options: ``link``, ``reduction`` and ``validate``.
    """

    function: ClassVar[Any] = staticmethod(clems_loss)
    uses_hierarchy = True
    rows_independent = True

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N,) squared distances."""
        if not isinstance(output, EmbeddedOutput):
            p = output.probabilities
            points = targets.to(p.dtype)
            return clems_loss(p, points if mask is None else torch.where(mask, points, p))
        if mask is not None:
            raise HierlearnError(
                "the points of the head clems are those of whole label sets, but a mask leaves "
                f"classes unknown; use {arg('unlabeled_descendants')} 'negative', or another head"
            )
        if not output.points.is_set:
            raise HierlearnError(
                "the label sets of this head clems have no points yet, so nothing would be "
                "learned; name the head clems, which gives them points, or call its fit_labels"
            )
        points, known = output.points.truth_of(targets)
        values = clems_loss(output.embeddings, points.to(output.embeddings.dtype))
        return torch.where(known, values, 0.0)

    def counted(self, targets: Tensor, mask: Tensor | None) -> Tensor | None:
        """Every row counts of which something is known."""
        del targets
        return None if mask is None else mask.any(dim=-1)

    def size(self, targets: Tensor) -> int:
        """Return the number of rows."""
        return targets.shape[-2]


def set_costs(truth: Labels, answers: Labels) -> Costs:
    """Return (S, K) what answering one set costs where another is true; see above."""
    found: Costs = (mean_heights(truth, answers) + mean_heights(answers, truth).T) * np.float32(0.5)
    return found


def mean_heights(sets: Labels, others: Labels) -> Costs:
    """Return (S, K) the mean height, over the classes of a set, to the nearest of another.

    The lowest common ancestor of a class and a set is the lowest of the class and its ancestors
    that the closed set contains: in a DAG, too, where several are common.
    """
    hierarchy = sets.hierarchy
    own = torch.tensor(hierarchy.heights, dtype=torch.float32)
    heights = torch.where(others.targets(), own, float(hierarchy.root_height))
    heights = -hierarchy.max_down(-heights)  # (K, C)
    offsets, numbers = others.terminal
    rows = np.repeat(np.arange(len(others)), np.diff(offsets))
    heights[torch.from_numpy(rows), torch.from_numpy(numbers)] = 0.0
    sizes = np.diff(sets.terminal[0])
    shares = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
    table = csr_array((shares, sets.terminal[1], sets.terminal[0]), (len(sizes), len(hierarchy)))
    found = np.asarray(table @ heights.numpy().T)
    found[sizes == 0] = np.where(np.diff(offsets) == 0, 0, hierarchy.root_height)
    return found.astype(np.float32)


class LabelPoints(nn.Module):
    """The points of K label sets; of one, the empty set, until ``set`` was called.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        size: D, the dimensions of a point.
        sets: K.

    Attributes:
        truth: (K, D) the points t; with a first axis for the members of an ensemble, who have
            the same ones.
        answers: (K, D) the points u.
        targets: (K, C) bool, the closed label sets.
        temperature: (1,).
        is_set: whether the points were set, or loaded.
    """

    truth: Tensor
    answers: Tensor
    targets: Tensor
    temperature: Tensor
    factors: Tensor
    keys: Tensor
    set_of_key: Tensor

    def __init__(self, label_space: LabelSpace | Hierarchy, size: int, sets: int = 1) -> None:
        super().__init__()
        self.hierarchy = LabelSpace.of(label_space).hierarchy
        self.size = size
        self.members: int | None = None
        self.is_set = False
        classes = len(self.hierarchy)
        self.register_buffer("truth", torch.zeros(sets, size))
        self.register_buffer("answers", torch.zeros(sets, size))
        self.register_buffer("targets", torch.zeros(sets, classes, dtype=torch.bool))
        self.register_buffer("temperature", torch.ones(1))
        draw = torch.Generator().manual_seed(0)
        factors = torch.randint(1 << 62, (classes,), generator=draw, device="cpu")
        self.register_buffer("factors", factors.to(self.truth.device), persistent=False)
        self._set_keys()

    @classmethod
    def stack(cls, several: Sequence[LabelPoints]) -> LabelPoints:
        """Return the points of all members; they are the same."""
        first = several[0]
        new = cls(first.hierarchy, first.size, len(first.truth))
        new.members, new.is_set = len(several), first.is_set
        for name in ("truth", "answers", "targets", "temperature"):
            setattr(new, name, torch.stack([getattr(one, name) for one in several]))
        new._set_keys()
        return new

    @torch.no_grad()
    def set(
        self,
        truth: Tensor,
        answers: Tensor,
        targets: Tensor,
        temperature: float,
        known: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Set the points.

        Args:
            truth: (K, D).
            answers: (K, D).
            targets: (K, C) bool, the closed label sets.
            temperature: what squared distances are divided by.
            known: (S,) the keys of more sets, and (S,) the numbers of the points that stand for
                them in training.
        """
        values = {
            "truth": truth.to(self.truth),
            "answers": answers.to(self.answers),
            "targets": targets.to(self.targets),
            "temperature": torch.full_like(self.temperature.view(-1)[:1], temperature),
        }
        for name, value in values.items():
            if self.members is not None:
                value = value.expand(self.members, *value.shape).clone()
            setattr(self, name, value)
        self.is_set = True
        self._set_keys(known)

    def _first(self, values: Tensor) -> Tensor:
        """Return what all members have in common."""
        return values if self.members is None else values[0]

    @torch.no_grad()
    def _set_keys(self, known: tuple[Tensor, Tensor] | None = None) -> None:
        """Set which point each label set has: those of the points, and then others; see ``set``."""
        keys = self.keys_of(self._first(self.targets))
        numbers = torch.arange(len(keys), device=keys.device)
        if known is not None:
            keys, numbers = torch.cat([keys, known[0]]), torch.cat([numbers, known[1].to(numbers)])
        order = keys.argsort(stable=True)
        self.register_buffer("keys", keys[order], persistent=False)
        self.register_buffer("set_of_key", numbers[order], persistent=False)

    def keys_of(self, targets: Tensor) -> Tensor:
        """Return an integer per row of (..., C) targets; different sets have different ones.

        A sum of random 62-bit numbers, one per class, in integers that wrap around: exact in any
        order. Two of a million sets coincide with a probability of 1e-7.
        """
        parts = torch.split(targets, max(1, KEYED // len(self.factors)), dim=-2)
        return torch.cat([((part > 0) * self.factors).sum(dim=-1) for part in parts], dim=-1)

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        before = self.targets.clone()
        super()._load_from_state_dict(*args, **options)
        self.is_set = True
        same = before.shape == self.targets.shape and not before.is_meta
        if not same or not torch.equal(before, self.targets):  # else stand-ins stay, to train on
            self._set_keys()

    # ------------------------------------------------------------------ the points in use

    def truth_of(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (N, D) the points of rows as the truth, and (N,) whether their set has one.

        Args:
            targets: (N, C) closed multi-hot.
        """
        keys = self.keys_of(targets)
        places = torch.searchsorted(self.keys, keys).clamp_max(len(self.keys) - 1)
        found = self.keys[places] == keys
        return self._first(self.truth)[self.set_of_key[places]], found

    def squared_distances(self, embeddings: Tensor) -> Tensor:
        """Return (..., N, K) the squared distance of each embedding to each answer."""
        u = self._first(self.answers).to(embeddings.dtype)
        own = embeddings.square().sum(dim=-1, keepdim=True)
        return (own - 2 * embeddings @ u.T + u.square().sum(dim=-1)).clamp_min(0.0)

    def weights(self, embeddings: Tensor) -> Tensor:
        """Return (..., N, K) what each set counts; the rows sum to 1."""
        distances = self.squared_distances(embeddings)
        soft = (-distances / self._first(self.temperature).to(distances)).softmax(dim=-1)
        best = distances.argmin(dim=-1, keepdim=True)
        return soft / 2 + torch.zeros_like(soft).scatter(-1, best, 0.5)

    def log_probabilities(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and log(1 - p) of every node, (..., N, C), of (..., N, D) embeddings."""
        weights = self.weights(embeddings)
        targets = self._first(self.targets).to(weights.dtype)
        p, q = weights @ targets, weights @ (1 - targets)
        return safe_log(p / (p + q)), safe_log(q / (p + q))

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"{self.truth.shape[-2]} label sets in {self.size} dimensions"


class EmbeddedOutput(HeadOutput):
    """Node log-probabilities of embeddings between label points, computed where they are read.

    Args:
        embeddings: (N, D) or (M, N, D).
        points: the label sets.
    """

    def __init__(self, embeddings: Tensor, points: LabelPoints) -> None:
        half = embeddings.dtype in HALF_PRECISION
        self.embeddings = embeddings.float() if half else embeddings
        self.points = points
        self._pair = None
        self.logits = None
        self.link = None

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """The pair (log p, log(1 - p))."""
        if self._pair is None:
            self._pair = self.points.log_probabilities(self.embeddings)
        return self._pair

    @property
    def probabilities(self) -> Tensor:
        return self.log_p.exp()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.embeddings,)

    def rebuilt(self, tensors: Sequence[Tensor]) -> EmbeddedOutput:
        """Return the output of other embeddings between the same points."""
        return EmbeddedOutput(tensors[0], self.points)

    @property
    def shape(self) -> torch.Size:
        """(N, C) or (M, N, C)."""
        return torch.Size((*self.embeddings.shape[:-1], len(self.points.hierarchy)))

    @property
    def device(self) -> torch.device:
        """Where the output lives."""
        return self.embeddings.device


@dataclass(frozen=True)
class Fitted:
    """Label sets as points.

    Attributes:
        truth, answers: (K, D).
        targets: (K, C) bool.
        others: the sets without points.
        stand_ins: the number of the point that stands for each of them.
        mean: (D,) of the truth of the training rows.
        mean_cost: of answering the set of one training row to another.
        stress: of the start, and after every step.
    """

    truth: Tensor
    answers: Tensor
    targets: Tensor
    others: Labels
    stand_ins: Tensor
    mean: Tensor
    mean_cost: float
    stress: list[float]


def embed_sets(
    labels: Labels, weights: Floats | None, size: int, count: int, seed: int = 0
) -> Fitted:
    """Return the most frequent label sets as points.

    Args:
        labels: of the training rows.
        weights: (N,) how much each row counts; None for all alike.
        size: D.
        count: K, how many sets have points.
        seed: of where the points begin. It is that of no training, so that members of an ensemble,
            and networks trained alone with their seeds, have the same points.
    """
    sets = LabelSets.from_labels(labels)
    rows = np.bincount(sets.of_row, weights, len(sets.sets)).astype(np.float64)
    order = np.argsort(-rows, kind="stable")
    kept, others = (
        labels_of(take_rows(*sets.sets.terminal, part), sets.sets)
        for part in (order[:count], order[count:])
    )
    costs = torch.from_numpy(set_costs(kept, kept))
    stand_ins = torch.zeros(0, dtype=torch.int64)  # that cost least where the others are true
    for begin in range(0, len(others), count):
        part = take_rows(*others.terminal, np.arange(begin, min(begin + count, len(others))))
        nearest = torch.from_numpy(set_costs(labels_of(part, others), kept)).argmin(dim=1)
        stand_ins = torch.cat([stand_ins, nearest])
    counts = torch.from_numpy(rows[order[:count]]).float()
    counts.index_add_(0, stand_ins, torch.from_numpy(rows[order[count:]]).float())
    start = classical_start(costs, size, seed)
    points, stress = smacof_between(
        costs.sqrt(),
        torch.cat([start, start]),
        (counts, torch.ones(len(counts))),
        iterations=ITERATIONS,
        tolerance=TOLERANCE,
    )
    truth, answers = points[: len(counts)], points[len(counts) :]
    shares = counts / counts.sum()
    return Fitted(
        truth=truth,
        answers=answers,
        targets=kept.targets(),
        others=others,
        stand_ins=stand_ins,
        mean=shares @ truth,
        mean_cost=float(shares @ costs @ shares),
        stress=stress,
    )


def smacof_between(
    distances: Tensor,
    start: Tensor,
    weights: tuple[Tensor, Tensor],
    *,
    iterations: int = 300,
    tolerance: float = 1e-6,
) -> tuple[Tensor, list[float]]:
    """Return K + L points for the distances between two groups, and the stress of every step.

    Args:
        distances: (K, L) from each point of the first group to each of the second, at least 0.
        start: (K + L, D) where the points begin, the first group first.
        weights: a (K,) and b (L,), at least 0; the weight of a pair is their product.
        iterations: steps, at most.
        tolerance: stop where a step lowers the stress by less than this fraction of it.
    """
    count, others = distances.shape
    if len(start) != count + others:
        raise HierlearnError(
            f"distances {tuple(distances.shape)} need a start of {count + others} points, not "
            f"{tuple(start.shape)}"
        )
    a, b = weights[0] / weights[0].sum(), weights[1] / weights[1].sum()
    whole = float(weights[0].sum() * weights[1].sum())

    def step(points: Tensor) -> tuple[float, Tensor]:
        """Return the stress of points, and to where they move."""
        t, u = points[:count], points[count:]
        moved, pulled, sums = torch.empty_like(t), torch.zeros_like(u), torch.zeros_like(b)
        stress = 0.0
        for rows in row_chunks(count, FINER * others):
            lengths = torch.addmm(u.square().sum(dim=1)[None], t[rows], u.T, alpha=-2)
            lengths = lengths.add_(t[rows].square().sum(dim=1)[:, None]).clamp_min_(0.0).sqrt_()
            stress += float(a[rows] @ ((lengths - distances[rows]).square_() @ b))
            coincide = lengths == 0
            ratios = torch.div(distances[rows], lengths, out=lengths).masked_fill_(coincide, 0.0)
            moved[rows] = (ratios @ b)[:, None] * t[rows] - ratios @ (b[:, None] * u)
            ratios *= a[rows, None]
            sums += ratios.sum(dim=0)
            pulled.addmm_(ratios.T, t[rows])
        both = torch.cat([moved, sums[:, None] * u - pulled + a @ moved])
        return stress * whole, both - both.mean(dim=0)

    points = start
    value, moved = step(points)
    stress = [value]
    for _ in range(iterations):
        points = moved
        value, moved = step(points)
        stress.append(value)
        if stress[-2] - value <= tolerance * stress[-2]:
            break
    return points, stress


def classical_start(squared: Tensor, size: int, seed: int, noise: float = 1e-3) -> Tensor:
    """Return (n, D) points by classical scaling, with a little noise.

    The noise breaks ties between groups that begin at the same points, and fills the dimensions
    that have no positive eigenvalue.

    Args:
        squared: (n, n) squared distances; made symmetric.
        size: D.
        seed: of the noise, and of the iteration that finds the eigenvectors.
        noise: relative to the root of the mean squared distance.
    """
    count = len(squared)
    both = (squared + squared.T) / 2
    mean = both.mean(dim=0)
    inner = (both - mean[:, None] - mean + mean.mean()) / -2
    draw = torch.Generator().manual_seed(seed)
    most = min(size, count)
    if count <= SMALL:
        values, vectors = torch.linalg.eigh(inner)
    else:  # of a random subspace that is multiplied by the matrix a few times
        wide = torch.randn(count, 2 * most, generator=draw, dtype=torch.float64)
        basis = torch.linalg.qr(inner @ wide.to(inner))[0]
        for _ in range(POWERS):
            basis = torch.linalg.qr(inner @ basis)[0]
        values, vectors = torch.linalg.eigh(basis.T @ inner @ basis)
        vectors = basis @ vectors
    largest = values.argsort(descending=True)[:most]
    values, vectors = values[largest], vectors[:, largest]
    points = torch.randn(count, size, generator=draw, dtype=torch.float64).to(inner)
    points *= noise * float(both.mean().clamp_min(0.0)) ** 0.5
    points[:, : len(values)] += vectors * values.clamp_min(0.0).sqrt()
    return points


CLEMS = Recipe(
    "clems",
    "CLEMS: label sets as points by the cost of mistakes, the nearest answers (Huang 2017)",
    head="clems",
    # One path per row: the sets are few and can have many dimensions.
    rule=lambda facts: {
        **plain(facts),
        **({"head_options": {"size": 256, "temperature": 0.03}} if facts.one_path else {}),
    },
)
