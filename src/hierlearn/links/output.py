"""Head, and HeadOutput: what it returns, the log-probabilities of every node of N rows.

    log_p, log_not_p   (N, C), or (M, N, C) of the M members of an ensemble

An output that was made of logits carries them with their link, so that fused kernels see them;
its log-probabilities are then computed only where they are read. An output without logits, such as
the average of several heads, is the pair alone. A head needs no logits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import log_zero

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.links.link import Link

HALF_PRECISION = (torch.float16, torch.bfloat16)


def safe_log(p: Tensor) -> Tensor:
    """Return log p, and the finite log of 0 without a NaN in its gradient."""
    positive = p > 0
    return torch.where(positive, torch.where(positive, p, 1.0).log(), log_zero(p.dtype))


class HeadOutput:
    """Node log-probabilities, with the logits behind them where there are any.

    Args:
        log_p: (N, C) or (M, N, C), the log-probability of every node.
        log_not_p: the same shape, log(1 - p), computed on its own and not from ``log_p``.

    Attributes:
        logits: the logits, or None.
        link: how the logits become log-probabilities, or None.
    """

    logits: Tensor | None
    link: Link | None

    def __init__(self, log_p: Tensor, log_not_p: Tensor) -> None:
        if log_p.shape != log_not_p.shape:
            raise HierlearnError(
                f"log_p {tuple(log_p.shape)} must match log_not_p {tuple(log_not_p.shape)}"
            )
        # Finite, so that p = 0 and p = 1 are exact and no difference of two is NaN.
        least = log_zero(log_p.dtype)
        pair = (log_p.clamp_min(least), log_not_p.clamp_min(least))
        self._pair: tuple[Tensor, Tensor] | None = pair
        self.logits = None
        self.link = None

    @classmethod
    def from_logits(cls, logits: Tensor, link: Link) -> HeadOutput:
        """Return the output of logits under a link; nothing is computed yet."""
        new = cls.__new__(cls)
        new._pair = None
        new.logits = logits
        new.link = link
        return new

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """The pair (log p, log(1 - p))."""
        if self._pair is None:
            assert self.logits is not None
            assert self.link is not None
            self._pair = self.link.log_probabilities(self.float_logits)
        return self._pair

    @property
    def log_p(self) -> Tensor:
        """The log-probability of every node."""
        return self.pair[0]

    @property
    def log_not_p(self) -> Tensor:
        """log(1 - p) of every node."""
        return self.pair[1]

    @property
    def probabilities(self) -> Tensor:
        """The probability of every node; log(1 - p) is not computed for it."""
        if self._pair is None and self.link is not None:
            return self.link.log_p(self.float_logits).exp()
        return self.log_p.exp()

    @property
    def values(self) -> Tensor:
        """The logits where there are any, else log p; their shape is that of the output."""
        return self.log_p if self.logits is None else self.logits

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the output is made of: its logits, or the pair."""
        return self.pair if self.logits is None else (self.logits,)

    def rebuilt(self, tensors: Sequence[Tensor]) -> HeadOutput:
        """Return the output of other tensors in the place of ``tensors``."""
        if self.logits is not None and self.link is not None:
            return HeadOutput.from_logits(tensors[0], self.link)
        return HeadOutput(*tensors)

    @property
    def float_logits(self) -> Tensor:
        """The logits; half precision is converted to float32."""
        if self.logits is None:
            raise HierlearnError("this output has no logits; read log_p and log_not_p instead")
        return self.logits.float() if self.logits.dtype in HALF_PRECISION else self.logits

    @property
    def shape(self) -> torch.Size:
        """(N, C) or (M, N, C)."""
        return self.values.shape

    @property
    def device(self) -> torch.device:
        """Where the output lives."""
        return self.values.device

    @property
    def members(self) -> int | None:
        """M where the output is of the members of an ensemble, else None."""
        return self.shape[0] if len(self.shape) == 3 else None

    def read_by(self, link: Link | None) -> HeadOutput:
        """Return the same logits under another link; without logits, or a link, the output."""
        if link is None or self.logits is None or link is self.link:
            return self
        return HeadOutput.from_logits(self.logits, link)

    def map(self, function: Any) -> HeadOutput:
        """Return the output of logits, or of a pair, to which a function was applied."""
        return self.rebuilt([function(one) for one in self.tensors])

    def flat(self) -> HeadOutput:
        """Return the rows of all members one after another, (M N, C)."""
        if self.members is None:
            return self
        return self.map(lambda x: x.flatten(0, 1))

    def member(self, number: int) -> HeadOutput:
        """Return the (N, C) output of one member."""
        return self.map(lambda x: x[number])

    def unbind(self) -> list[HeadOutput]:
        """Return the (N, C) outputs of all members; their gradients are joined at once."""
        return [self.rebuilt(one) for one in zip(*(x.unbind() for x in self.tensors), strict=True)]

    def mean(self) -> HeadOutput:
        """Return the (N, C) average of the members' probabilities, in log space."""
        if self.members is None:
            return self
        log_p, log_not_p = (one.logsumexp(dim=0) - math.log(self.members) for one in self.pair)
        return HeadOutput(log_p, log_not_p)

    @classmethod
    def stack(cls, outputs: Sequence[HeadOutput]) -> HeadOutput:
        """Return the outputs of M members as one, with their axis first."""
        first = outputs[0]
        alike = all((one.logits is None) == (first.logits is None) for one in outputs)
        parts = [one.tensors if alike else one.pair for one in outputs]
        stacked = [torch.stack(list(part)) for part in zip(*parts, strict=True)]
        return first.rebuilt(stacked) if alike else cls(*stacked)

    @classmethod
    def average(
        cls, outputs: Sequence[HeadOutput], weights: Sequence[float] | None = None
    ) -> HeadOutput:
        """Return the average of the probabilities of several outputs, in log space.

        Args:
            outputs: of the same shape.
            weights: what each counts; they sum to 1. By default all count the same.
        """
        pairs = [one.pair for one in outputs]
        shares = [1 / len(outputs)] * len(outputs) if weights is None else weights
        logs = [math.log(share) if share > 0 else -math.inf for share in shares]
        log_p, log_not_p = (
            torch.stack([one + log for one, log in zip(part, logs, strict=True)]).logsumexp(dim=0)
            for part in zip(*pairs, strict=True)
        )
        return cls(log_p, log_not_p)

    def __repr__(self) -> str:
        what = "log-probabilities" if self.link is None else f"logits, {type(self.link).__name__}"
        return f"HeadOutput({tuple(self.shape)} of {what})"


class Head(nn.Module, ABC):
    """Base of the heads: ``forward(features) -> HeadOutput``.

    Attributes:
        stackable: whether several of it can be computed as one, with stacked weights.
        has_memory: whether it compares rows with others that it remembers; ``forward`` then takes
            the features of candidates too, see NeighborHead.
        used_by_loss: whether a loss computes with its weights, outside of ``forward``.
    """

    stackable: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False
    used_by_loss: ClassVar[bool] = False

    @classmethod
    def check_saved(cls, options: Mapping[str, Any]) -> None:
        """Raise on options of a saved head that no training wrote."""

    @property
    def saved_options(self) -> dict[str, Any]:
        """The options that change where a saved head is built again, to be filled with its tensors.

        What an option named a file for is then among the tensors, and the file is not opened.
        """
        return {}

    @abstractmethod
    def forward(self, features: Tensor) -> HeadOutput:
        """Return the node log-probabilities of (N, F) features."""

    def fit_labels(
        self, labels: Labels, weights: NDArray[np.float64] | None, shared: dict[Any, Any]
    ) -> None:
        """Set what the labels of the training rows determine, before training; by default nothing.

        Args:
            labels: of the training rows.
            weights: (N,) how much each row counts; None for all alike.
            shared: what the heads of all members of an ensemble have in common, by a key of theirs.
        """

    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Initialize to the class priors, where the head can.

        Args:
            counts: (C,) the training rows of each class, ancestors counted.
            terminal_counts: (C,) the rows whose most specific label is each class.
            rows: how many rows there are.
        """
