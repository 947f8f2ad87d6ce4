"""Bases: elementwise losses of log p and log(1 - p), and ComposedLoss, a link and a base alone.

    bce        -(y log p + (1 - y) log(1 - p)), natural or base 2
    focal      -alpha_t (1 - p_t)^gamma log p_t,  p_t = p where y = 1, else 1 - p (Lin et al., 2017)
    zero_one   1 unless p lies strictly on y's side of 1/2: the e of the paper, whose sign(0) is
               neither label. Not differentiable

bce in base 2 is at least zero_one, which the bounds of the paper's Theorem 3 need; natural bce is
not (y = 1, logit -0.2: an error, but 0.798 < 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses.checks import PerClass, per_class
from hierlearn.losses.loss import ElementwiseLoss, WeightedOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput


class Base(Protocol):
    """An elementwise loss: ``(log_p, log_not_p, targets) -> (N, C)``."""

    def __call__(self, log_p: Tensor, log_not_p: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every entry."""
        ...


def bce_loss(
    log_p: Tensor, log_not_p: Tensor, targets: Tensor, *, log_base: float = math.e
) -> Tensor:
    """Return -(y log p + (1 - y) log(1 - p)) in a base, of the shape of the targets."""
    return mix(log_p, log_not_p, targets) * (-1.0 / math.log(log_base))


def focal_loss(
    log_p: Tensor,
    log_not_p: Tensor,
    targets: Tensor,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
) -> Tensor:
    """Return -alpha_t (1 - p_t)^gamma log p_t, of the shape of the targets."""
    positive = -(gamma * log_not_p).exp() * log_p
    negative = -(gamma * log_p).exp() * log_not_p
    if alpha is not None:
        positive, negative = alpha * positive, (1 - alpha) * negative
    return mix(positive, negative, targets)


def zero_one(log_p: Tensor, log_not_p: Tensor, targets: Tensor) -> Tensor:
    """Return 1 where p does not lie strictly on the target's side of 1/2, else 0."""
    right = torch.where(targets > 0.5, log_p > log_not_p, log_not_p > log_p)
    return (~right).to(log_p.dtype)


def mix(positive: Tensor, negative: Tensor, targets: Tensor) -> Tensor:
    """Return ``positive`` where the target is 1, ``negative`` where 0, in between a mixture."""
    if targets.dtype == torch.bool:
        return torch.where(targets, positive, negative)
    return torch.lerp(negative, positive, targets.to(positive.dtype))


@dataclass(frozen=True)
class BCE:
    """Binary cross entropy.

    Args:
        log_base: e, or 2 for a bound on the 0-1 loss.
    """

    log_base: float = math.e

    def __post_init__(self) -> None:
        if not self.log_base > 1:
            raise HierlearnError(f"log_base must exceed 1, not {self.log_base}")

    @property
    def scale(self) -> float:
        """The factor on natural bce."""
        return 1.0 / math.log(self.log_base)

    def __call__(self, log_p: Tensor, log_not_p: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every entry."""
        return bce_loss(log_p, log_not_p, targets, log_base=self.log_base)


@dataclass(frozen=True)
class Focal:
    """Focal loss: entries that are right already count less.

    Args:
        alpha: the weight of positives, 1 - alpha that of negatives; None for no weights.
        gamma: how much less; 0 is bce.
    """

    alpha: float | None = 0.25
    gamma: float = 2.0

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise HierlearnError(f"alpha must lie in [0, 1] or be None, not {self.alpha}")
        if self.gamma < 0:
            raise HierlearnError(f"gamma must not be negative, but is {self.gamma}")

    def __call__(self, log_p: Tensor, log_not_p: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every entry."""
        return focal_loss(log_p, log_not_p, targets, alpha=self.alpha, gamma=self.gamma)


BASES: dict[str, Callable[[], Base]] = {
    "bce": BCE,
    "bce2": lambda: BCE(2.0),
    "focal": Focal,
    "zero_one": lambda: zero_one,
}


def make_base(base: str | Base) -> Base:
    """Return the base of a name, of a loss that is one, or the base itself."""
    if isinstance(base, str):
        if base not in BASES:
            raise HierlearnError(unknown_name("base", base, BASES))
        return BASES[base]()
    own = getattr(base, "base", None)  # of a BCELoss or FocalLoss
    if own is not None:
        return make_base(own)
    if isinstance(base, torch.nn.Module):
        raise HierlearnError(
            f"{type(base).__name__} is not a loss of single entries, so it cannot be a base; "
            f"known: {', '.join(BASES)}, or a function of (log p, log(1 - p), targets)"
        )
    if not callable(base):
        raise HierlearnError(f"a base is a name or a function of three tensors, not {base!r}")
    return base


class ComposedOptions(WeightedOptions, total=False):
    """What a loss on a base takes by name; see ComposedLoss."""

    pos_weight: PerClass | None


class ComposedLoss(ElementwiseLoss):
    """Node log-probabilities -> base, elementwise.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        base: a name of BASES, or a function of (log p, log(1 - p), targets).
        pos_weight: what the loss of a positive is multiplied by, C numbers in the hierarchy's
            order, or by name, where the others are 1; as in torch's BCEWithLogitsLoss.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    uses_hierarchy = False
    takes_fractions = True
    weighs_classes = True
    rows_independent = True
    entries_independent = True
    pos_weight: Tensor | None

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        base: str | Base,
        pos_weight: PerClass | None = None,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        weights = per_class("pos_weight", pos_weight, self.hierarchy)
        self.register_buffer("pos_weight", weights, persistent=False)
        self.base = make_base(base)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the base of every entry."""
        del mask
        pair = output.pair
        if self.pos_weight is None:
            return self.base(*pair, targets)
        positive = self.base(*pair, torch.ones_like(targets)) * self.pos_weight.to(pair[0].dtype)
        return mix(positive, self.base(*pair, torch.zeros_like(targets)), targets)

    def is_linear(self) -> bool:
        """Whether the base is; that of errors is not."""
        return self.takes_fractions and self.base is not zero_one

    def formula(self) -> tuple[str, tuple[Any, ...]] | None:
        """Return the name of the kernel of bce or focal, and its numbers."""
        base = self.base
        if self.pos_weight is not None:
            return None
        if type(base) is BCE:
            return "bce", (base.scale,)
        if type(base) is Focal:
            sides = (1.0, 1.0) if base.alpha is None else (base.alpha, 1 - base.alpha)
            return "focal", tuple(map(float, (*sides, base.gamma)))
        return None

    def extra_repr(self) -> str:
        """Name the base when the module is printed."""
        return f"{super().extra_repr()}, base={self.base}"
