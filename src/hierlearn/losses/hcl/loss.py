"""HCL: the hierarchical class-based curriculum loss of Goyal and Ghosh (2020).

    l     = base(log p, log(1 - p), targets)                               (N, C)
    l_h   = max(l, max over shallower classes of l)                        equation 10
    e_h   = the same of the 0-1 errors of equation 1, summed               equation 3
    s     = argmin of max(sum_j s_j L_j, C - sum_j s_j + e_h)              equation 12, Algorithm 1
    loss  = sum_ij w_j l_h(i, j),   w_j = 1 where s_j = 1, else floor

with L_j = sum_i l_h(i, j). Without the curriculum this is HCL-Hier, without the constraint HCL-CL.
``HCLLoss.paper`` is the paper's HCL to the letter; the defaults of ``HCLLoss`` are the best point
that was measured (docs/losses/hcl.md): one path per row, a softmax over the terminal classes.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus

from hierlearn.errors import HierlearnError, quoted, unknown_name
from hierlearn.links import link_kind
from hierlearn.losses.bases import BCE, Base, make_base, zero_one
from hierlearn.losses.checks import in_transform
from hierlearn.losses.hcl import forms
from hierlearn.losses.hcl.functional import (
    SCOPES,
    Normalize,
    Scope,
    bound,
    hcl_loss,
    normalized,
    select_classes,
)
from hierlearn.losses.loss import CommonOptions, ElementwiseLoss, flat_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self, Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput, Link
    from hierlearn.losses.loss import LossOptions


LINEAR = 40.0  # from here on softplus(z) is z, exactly in double precision


class PaperOptions(CommonOptions, total=False):
    """What ``HCLLoss.paper`` takes of HCLLoss beside the choices of the paper."""

    threshold: float | None


class CollapseWarning(UserWarning):
    """A class was not selected for a whole epoch, so it learned nothing."""


class HCLLoss(ElementwiseLoss):
    """Hierarchical class-based curriculum loss.

    ``HCLLoss(h)`` is for rows with one path each: it reads logits as a softmax over the terminal
    classes, of which a row has one. For several labels per row pass ``link="sigmoid"``, and
    ``curriculum=None`` or a floor of 0.5: see docs/losses/hcl.md. ``HCLLoss.paper(h)`` is the loss
    of the paper. An argument changes what it names and nothing else.

    Targets are 0 or 1. A mask leaves entries out: they neither contribute nor bind others. A row
    of weight 2 is as good as two rows, in what the curriculum selects too.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        base: "bce", "bce2", "focal", a loss such as ``FocalLoss(h)``, or a function of
            (log p, log(1 - p), targets).
        link: how plain logits are read: "softmax" (by default), "sigmoid" (the paper),
            "conditional", "max", or a Link.
        scope: what the constraint compares a class with: "ancestors", "levels" (the paper: every
            shallower class), or None for no constraint.
        curriculum: "batch" (selected by each batch), or None for no selection.
        floor: what an unselected class keeps, in [0, 1). 0 is the paper, under which some classes
            stop learning; see docs/theory.md.
        normalize: what the selection compares: class losses and e_h as means over rows ("mean") or
            as sums ("sum", the paper), or the means of class losses with the sum e_h ("losses",
            which drops next to nothing: docs/study.md).
        threshold: replaces C + e_h.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at the first call (None), every call, or never.
    """

    default_link = "softmax"

    function: ClassVar[Any] = staticmethod(hcl_loss)
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"floor": (0.1, 0.3, 0.5)}
    fixed_threshold: Tensor
    ever_selected: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        base: str | Base = "bce",
        scope: Scope | None = "ancestors",
        curriculum: Literal["batch"] | None = "batch",
        floor: float = 0.3,
        normalize: Normalize = "mean",
        threshold: float | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if scope is not None and scope not in SCOPES:
            raise HierlearnError(unknown_name("scope", str(scope), SCOPES))
        if curriculum not in (None, "batch"):
            raise HierlearnError(unknown_name("curriculum", str(curriculum), ("batch",)))
        if normalize not in get_args(Normalize):
            raise HierlearnError(unknown_name("normalize", str(normalize), get_args(Normalize)))
        if not 0 <= floor < 1:
            raise HierlearnError(
                f"floor must lie in [0, 1), not {floor}; for no selection pass curriculum=None"
            )
        self.base = make_base(base)
        self.scope: str | None = scope
        self.curriculum = curriculum
        self.floor: float = floor
        self.normalize: str = normalize
        self.threshold = threshold
        one_level = (len(self.hierarchy),)
        self.level_sizes = self.hierarchy.level_sizes if scope == "levels" else one_level
        self.kernels: dict[Any, Any] = {}  # made at first use
        # What the last call selected: under None, or under the number of each member, in order.
        self._records: dict[int | None, Any] = {}
        self._warned = False
        fixed = torch.tensor(threshold or 0.0, dtype=torch.float64)
        self.register_buffer("fixed_threshold", fixed, persistent=False)
        self.set_members(None)

    @classmethod
    def paper(
        cls,
        label_space: LabelSpace | Hierarchy,
        *,
        base: str | Base = "bce",
        link: str | Link = "sigmoid",
        scope: Scope | None = "levels",
        curriculum: Literal["batch"] | None = "batch",
        floor: float = 0.0,
        normalize: Normalize = "sum",
        **options: Unpack[PaperOptions],
    ) -> Self:
        """Return the loss of the paper: HCL, and with one argument each its other rows.

            HCLLoss.paper(h)                    HCL: equation 12, selected by Algorithm 1
            HCLLoss.paper(h, curriculum=None)   HCL-Hier: equation 10, every class counts
            HCLLoss.paper(h, scope=None)        HCL-CL: equation 12 with l for l_h and e for e_h

        Independent sigmoids, the constraint by levels, sums over the rows of a batch, and nothing
        of a class that is not selected. As everywhere, the loss is the mean over entries;
        ``reduction="sum"`` is the printed sum, and ``base="bce2"`` the base 2 that Theorem 3 needs.
        """
        return cls(
            label_space,
            base=base,
            link=link,
            scope=scope,
            curriculum=curriculum,
            floor=floor,
            normalize=normalize,
            **options,
        )

    def set_members(self, count: int | None) -> None:
        """Begin to note which classes are selected, of ``count`` members or of a network alone."""
        lead = () if count is None else (count,)
        never = torch.zeros(*lead, len(self.hierarchy), dtype=torch.bool)
        never = never.to(self.fixed_threshold.device)
        noted = self.curriculum is not None and self.floor == 0
        self.register_buffer("ever_selected", never, persistent=noted)

    # ------------------------------------------------------------------ the loss

    def compute(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Return the loss by kernels where there are any, for one member after another."""
        fast = forms.fast_loss(self, output, weight)
        if self.ever_selected.shape[:-1] != output.shape[:-2]:
            self.set_members(output.members)  # an ensemble of another size
        if fast is None:
            return self.plain(output, targets, mask, weight)
        if output.members is None:
            return fast(self, output, targets, mask, None)
        values = [
            fast(self, one, targets[k], None if mask is None else mask[k], k)
            for k, one in enumerate(output.unbind())
        ]
        return torch.stack(values)

    def plain(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Base, constraint, curriculum and reduction one after another, of all members at once."""
        losses, errors = self.constrained(output, targets, mask)  # (..., N, C)
        counted = losses.detach()
        rows: int | Tensor = targets.shape[-2]
        if weight is not None:
            counted, errors = (one * weight[..., None] for one in (counted, errors))
            rows = weight.sum(dim=-1)
        weights = self.weigh(counted.sum(dim=-2), errors.sum(dim=(-2, -1)), rows)
        if weights is not None:
            losses = losses * weights[..., None, :]
        return self.reduce(losses, targets, mask, weight)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N, C) l_h, before any selection."""
        return self.constrained(output, targets, mask)[0]

    def constrained(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return l_h, and the errors that e_h sums, of the shape of the output."""
        if output.members is not None:
            flat = flat_rows(targets, mask)
            losses, errors = self.constrained(output.flat(), *flat)
            return losses.view(output.shape), errors.view(output.shape)
        if link_kind(output.link) == "sigmoid" and type(self.base) is BCE:
            # softplus(z) with z = (1 - 2y) x: equal z have equal losses, to the last digit.
            z = torch.where(targets > 0.5, -output.float_logits, output.float_logits)
            losses = softplus(z, threshold=LINEAR) * self.base.scale
            errors = (~(z.detach() < 0)).to(z.dtype)
        else:
            losses = self.base(*output.pair, targets)
            log_p, log_not_p = output.pair
            errors = zero_one(log_p.detach(), log_not_p.detach(), targets)
        return (
            bound(losses, self.scope, self.hierarchy, mask),
            bound(errors, self.scope, self.hierarchy, mask),
        )

    # ------------------------------------------------------------------ the curriculum

    def weigh(
        self,
        class_losses: Tensor,
        errors: Tensor,
        rows: int | Tensor,
        member: int | None = None,
    ) -> Tensor | None:
        """Select classes and return their weights; None where there is no curriculum.

        Args:
            class_losses: (C,) the summed loss of each class, or (M, C) of all members at once.
            errors: () or (M,), e_h.
            rows: how many rows were summed, or their weights.
            member: which member this is, where members are computed one after another.
        """
        if self.curriculum is None:
            return None
        records = torch.compiler.is_compiling() or not in_transform()
        with torch.no_grad():
            count: int | Tensor = rows
            if forms.is_distributed():  # the selection is that of the global batch
                count = torch.as_tensor(rows).to(errors).expand(errors.shape)
                together = torch.cat([class_losses, errors[..., None], count[..., None]], dim=-1)
                torch.distributed.all_reduce(together)
                class_losses, errors, count = (
                    together[..., :-2],
                    together[..., -2],
                    together[..., -1],
                )
            compared, wrong = normalized(class_losses, errors, count, self.normalize)
            limit = compared.shape[-1] + wrong if self.threshold is None else self.fixed_threshold
            selected = select_classes(compared, limit)
            weights = selected.to(class_losses.dtype) * (1 - self.floor) + self.floor
            if records:
                self.record((selected, class_losses, errors, count, weights), member)
        return weights

    def record(self, statistics: Any, member: int | None) -> None:
        """Remember a selection: statistics, or what the kernels left of them."""
        if not member:  # a call begins: alone, or with the first of its members
            self.__dict__["_records"] = {}  # a module is slow to set attributes
        self._records[member] = statistics
        if self.floor == 0:
            ever = self.ever_selected if member is None else self.ever_selected[member]
            ever.logical_or_(forms.statistics_of(statistics)[0])

    def statistics(self) -> tuple[Any, ...]:
        """Return selected, class losses, errors, rows and weights of the last call, if any."""
        if not self._records or None in self._records:
            return forms.statistics_of(self._records[None]) if self._records else ()
        known = [forms.statistics_of(one) for one in self._records.values()]
        rows = [torch.as_tensor(one[3]) for one in known]
        stacked = [torch.stack([one[place] for one in known]) for place in (0, 1, 2, 4)]
        return (*stacked[:3], torch.stack(rows).to(stacked[2]), stacked[3])

    def end_epoch(self) -> None:
        """Name in a CollapseWarning, once, the classes that no batch of the epoch has selected.

        The literal curriculum (floor 0) can leave a class without any gradient.
        """
        left_out = ~self.ever_selected
        literal = self.curriculum is not None and self.floor == 0 and not self.link.coherent
        if literal and not self._warned and bool(left_out.any()):
            self._warned = True
            if left_out.dim() == 2:  # of the first member that has some
                left_out = left_out[int(left_out.any(dim=1).nonzero()[0])]
            names = [self.hierarchy.names[int(c)] for c in left_out.nonzero().flatten()]
            warnings.warn(
                f"{len(names)} of {len(self.hierarchy)} classes were not selected for a whole "
                f"epoch and learned nothing: {quoted(names, most=3)}; pass floor=0.1 or a "
                f"coherent link such as 'softmax' to keep them learning",
                CollapseWarning,
                stacklevel=2,
            )
        self.ever_selected.zero_()

    @property
    def selection(self) -> Tensor | None:
        """The classes that the last call selected, (C,) or (M, C) bool; None without selection."""
        statistics = self.statistics()
        return statistics[0] if statistics else None

    @property
    def last(self) -> dict[str, Tensor]:
        """What the last call selected, as detached tensors on the device.

        selected (C,), selected_fraction, selected_by_level (L,), e_h and l_hc; empty before the
        first call and without a curriculum. l_hc is max(sum_j w_j L_j, C - sum_j w_j + e_h) for the
        weights w in {floor, 1}; L and e_h are sums or means over rows as ``normalize`` says.
        With members, every entry has a leading axis.
        """
        if not self._records:
            return {}
        selected, losses, errors, rows, weights = self.statistics()
        losses, errors = normalized(losses, errors, rows, self.normalize)
        chosen = selected.to(losses.dtype)
        levels = torch.split(chosen, list(self.hierarchy.level_sizes), dim=-1)
        # 0 times the infinite loss of an unselected class is nothing.
        used = torch.where(weights > 0, weights * losses, torch.zeros_like(losses)).sum(dim=-1)
        return {
            "selected": selected,
            "selected_fraction": chosen.mean(dim=-1),
            "selected_by_level": torch.stack([level.mean(dim=-1) for level in levels], dim=-1),
            "e_h": errors,
            # max(sum_j s_j L_j, C - sum_j s_j + e_h)
            "l_hc": torch.maximum(used, weights.shape[-1] - weights.sum(dim=-1) + errors),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_records": {}, "kernels": {}}

    def extra_repr(self) -> str:
        """Name the choices when the module is printed."""
        return (
            f"{super().extra_repr()}, base={self.base}, scope={self.scope!r}, "
            f"curriculum={self.curriculum!r}, floor={self.floor}, normalize={self.normalize!r}"
        )
