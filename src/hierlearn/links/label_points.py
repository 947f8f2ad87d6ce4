"""LabelPoints: label sets as points, and the node probabilities of an embedding between them.

    w_k = softmax over sets k of -|z - u_k|^2 / temperature
    p   = sum over k of w_k y_k,      1 - p = sum over k of w_k (1 - y_k)

with u_k the point of set k as an answer and y_k its closed targets. Each set also has a point t_k
as the truth: what an embedding is trained towards, see losses/clems.py. p is a convex mixture of
closed label sets: no class is more probable than its parents, in any tree or DAG.

With ``nearest`` the nearest u_k gets half of the weight, and all share the other half as above: p
exceeds 1/2 for the classes of the nearest set and for no other. Decisions at 1/2, and the most
probable leaf of sets with one path, are then those of the nearest point, exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.hierarchy import LabelSpace
from hierlearn.links.output import HALF_PRECISION, HeadOutput, safe_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy import Hierarchy

BITS = 8  # classes per byte of ``codes``
KEYED = 1 << 24  # targets whose keys are computed at once


class LabelPoints(nn.Module):
    """The points of K label sets; of one, the empty set, until ``set`` was called.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        size: D, the dimensions of a point.
        sets: K.
        nearest: give the nearest set half of the weight.

    Attributes:
        truth: (K, D) the points t; with a first axis for the members of an ensemble, who have
            the same ones.
        answers: (K, D) the points u.
        codes: (K, C / 8) the classes of each set, 8 per byte.
        temperature: (1,).
        is_set: whether the points were set, or loaded.
    """

    truth: Tensor
    answers: Tensor
    codes: Tensor
    temperature: Tensor
    factors: Tensor
    targets: Tensor
    keys: Tensor
    set_of_key: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        size: int,
        sets: int = 1,
        *,
        nearest: bool = True,
    ) -> None:
        super().__init__()
        self.hierarchy = LabelSpace.of(label_space).hierarchy
        self.size = size
        self.nearest = nearest
        self.members: int | None = None
        self.is_set = False
        classes = len(self.hierarchy)
        width = -(-classes // BITS)
        self.register_buffer("truth", torch.zeros(sets, size))
        self.register_buffer("answers", torch.zeros(sets, size))
        self.register_buffer("codes", torch.zeros(sets, width, dtype=torch.uint8))
        self.register_buffer("temperature", torch.ones(1))
        draw = torch.Generator().manual_seed(0)
        factors = torch.randint(1 << 62, (classes,), generator=draw, device="cpu")
        self.register_buffer("factors", factors.to(self.codes.device), persistent=False)
        self._unpack()

    @classmethod
    def stack(cls, several: Sequence[LabelPoints]) -> LabelPoints:
        """Return the points of all members; they are the same."""
        first = several[0]
        new = cls(first.hierarchy, first.size, len(first.truth), nearest=first.nearest)
        new.members, new.is_set = len(several), first.is_set
        for name in ("truth", "answers", "codes", "temperature"):
            setattr(new, name, torch.stack([getattr(one, name) for one in several]))
        new._unpack()
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
        packed = np.packbits(targets.cpu().numpy(), axis=1)
        values = {
            "truth": truth.to(self.truth),
            "answers": answers.to(self.answers),
            "codes": torch.from_numpy(packed).to(self.codes.device),
            "temperature": torch.full_like(self.temperature.view(-1)[:1], temperature),
        }
        for name, value in values.items():
            if self.members is not None:
                value = value.expand(self.members, *value.shape).clone()
            setattr(self, name, value)
        self.is_set = True
        self._unpack()
        if known is not None:
            self._set_keys(
                torch.cat([self.keys_of(targets.to(self.factors.device)), known[0]]), known[1]
            )

    # ------------------------------------------------------------------ what follows from codes

    def _first(self, values: Tensor) -> Tensor:
        """Return what all members have in common."""
        return values if self.members is None else values[0]

    @torch.no_grad()
    def _unpack(self) -> None:
        """Make the targets of the sets, and the keys by which they are found."""
        codes, classes = self._first(self.codes), len(self.hierarchy)
        places = torch.arange(BITS - 1, -1, -1, device=codes.device, dtype=torch.uint8)
        bits = (codes[:, :, None] >> places) & 1
        flags = bits.reshape(len(codes), -1)[:, :classes]
        self.register_buffer("targets", flags.to(self.truth.dtype), persistent=False)
        self._set_keys(self.keys_of(flags), self.factors[:0])

    def _set_keys(self, keys: Tensor, stand_ins: Tensor) -> None:
        """Set which point each label set has: those of the points, and then others."""
        numbers = torch.arange(len(keys) - len(stand_ins), device=keys.device)
        numbers = torch.cat([numbers, stand_ins.to(numbers)])
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
        before = self.codes.clone()
        super()._load_from_state_dict(*args, **options)
        self.is_set = True
        same = before.shape == self.codes.shape and not before.is_meta
        if not same or not torch.equal(before, self.codes):  # else stand-ins stay, to train on
            self._unpack()

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
        if not self.nearest:
            return soft
        best = distances.argmin(dim=-1, keepdim=True)
        return soft / 2 + torch.zeros_like(soft).scatter(-1, best, 0.5)

    def log_probabilities(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and log(1 - p) of every node, (..., N, C), of (..., N, D) embeddings."""
        weights = self.weights(embeddings)
        targets = self.targets.to(weights.dtype)
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
        """The probability of every node."""
        return self.log_p.exp()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The embeddings."""
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
