"""HCL: the hierarchical class-based curriculum loss of Goyal and Ghosh (2020).

    l     = base(link(logits), targets)                                    (N, C)
    l_h   = max(l, max over shallower classes of l)                        Corollary 1
    s     = argmin of max(sum_j s_j L_j, C - sum_j s_j + e_h)              equation 12, Algorithm 1
    loss  = sum_ij w_j l_h(i, j),   w_j = 1 where s_j = 1, else floor

with L_j = sum_i l_h(i, j) and e_h the constrained 0-1 errors. Without the curriculum this is
HCL-Hier, without the constraint HCL-CL; with floor 0 it is the paper's HCL to the letter.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError, quoted, unknown_name
from hierlearn.kernels.hcl import Workspace, has_triton
from hierlearn.links import Link, SigmoidLink
from hierlearn.links.link import check_logits
from hierlearn.losses.bases import BCE, Base, make_base, zero_one
from hierlearn.losses.composed import make_link
from hierlearn.losses.hcl.compiled import level_sums
from hierlearn.losses.hcl.constraint import SCOPES, constrain
from hierlearn.losses.hcl.cpu import fused_hcl
from hierlearn.losses.hcl.curriculum import curriculum_value, select_classes
from hierlearn.losses.hcl.triton import again, kernel_hcl, misfit, obstacle
from hierlearn.losses.loss import Loss, Reduction, check_targets, check_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.kernels.hcl import Kernels, LaunchPlan


# What the kernels are made for, beside the hierarchy.
OPTIONS = frozenset(
    ("base", "curriculum", "floor", "fused", "link", "normalize", "reduction", "scope", "threshold")
)


class CollapseWarning(UserWarning):
    """A class went a whole epoch without being selected, so nothing taught it."""


class HCLLoss(Loss):
    """Hierarchical class-based curriculum loss.

    Targets are 0 or 1. A mask leaves entries out: they neither contribute nor bind others.

    Args:
        hierarchy: the taxonomy.
        base: "bce", "bce2", "focal", or a function of (log p, log(1 - p), targets).
        link: "sigmoid", "softmax", "conditional", "max", or a Link.
        scope: what the constraint compares a class with: "levels" (the paper: every shallower
            class), "ancestors", or None for no constraint (HCL-CL).
        curriculum: "batch" (the paper: selected by this batch), "epoch" (by the epoch before; call
            ``end_epoch`` after each), or None for no selection (HCL-Hier).
        floor: what an unselected class keeps, in [0, 1). 0 is the paper, under which classes can
            die out; see docs/theory.md.
        normalize: "sum" (the paper) or "mean": class losses and e_h as sums or means over rows.
        threshold: replaces C + e_h: a number, or a function of the training progress in [0, 1],
            which ``set_progress`` reports.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
        fused: whether Triton kernels do the work. By default they do on a graphics processor where
            they can: link "sigmoid", base "bce", "bce2" or "focal", scope "levels" or None, a
            reduced loss. True insists, False forbids.
    """

    fixed_threshold: Tensor
    selected: Tensor
    ever_selected: Tensor
    epoch_losses: Tensor
    epoch_errors: Tensor
    epoch_rows: Tensor

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        base: str | Base = "bce",
        link: str | Link = "sigmoid",
        scope: Literal["levels", "ancestors"] | None = "levels",
        curriculum: Literal["batch", "epoch"] | None = "batch",
        floor: float = 0.1,
        normalize: Literal["sum", "mean"] = "sum",
        threshold: float | Callable[[float], float] | None = None,
        reduction: Reduction = "mean",
        validate: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(hierarchy, reduction=reduction, validate=validate)
        if scope is not None and scope not in SCOPES:
            raise HierlearnError(unknown_name("scope", str(scope), SCOPES))
        if curriculum not in (None, "batch", "epoch"):
            raise HierlearnError(unknown_name("curriculum", str(curriculum), ("batch", "epoch")))
        if normalize not in ("sum", "mean"):
            raise HierlearnError(unknown_name("normalize", str(normalize), ("sum", "mean")))
        if not 0 <= floor < 1:
            raise HierlearnError(
                f"floor must lie in [0, 1), not {floor}; for no selection pass curriculum=None"
            )
        self.link = make_link(hierarchy, link)
        self.base = make_base(base)
        self.scope = scope
        self.curriculum = curriculum
        self.per_row = curriculum is None
        self.floor = floor
        self.normalize = normalize
        self.threshold = threshold
        self.level_sizes = hierarchy.level_sizes if scope == "levels" else (len(hierarchy),)
        self.row_weights: Tensor | None = None  # (N,) how much the next rows count in a selection
        self.fused = fused
        self.kernels: tuple[bool, Kernels] | None = None  # made at first use
        self.obstacle = obstacle(self)
        if fused and self.obstacle is not None:
            raise HierlearnError(f"fused=True cannot have {self.obstacle}; pass fused=None")
        self._state: tuple[Any, ...] = ()
        self._warned = False
        self._register_statistics(len(hierarchy))
        self.set_progress(0.0)

    def _register_statistics(self, count: int) -> None:
        classes = torch.zeros(count, dtype=torch.bool)
        number = torch.zeros((), dtype=torch.float64)
        # What the epoch curriculum has gathered is state of the training: it is saved.
        gathered = {
            "selected": ~classes,
            "epoch_losses": classes.to(torch.float64),
            "epoch_errors": number,
            "epoch_rows": number,
        }
        for name, values in gathered.items():
            self.register_buffer(name, values.clone(), persistent=self.curriculum == "epoch")
        self.register_buffer("ever_selected", classes, persistent=False)
        self.register_buffer("fixed_threshold", number.clone(), persistent=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in OPTIONS and "obstacle" in self.__dict__:  # an option is set anew
            self.obstacle, self.kernels = obstacle(self), None

    # ------------------------------------------------------------------ the loss

    def forward(self, logits: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see ``Loss.forward``."""
        if self.kernels is not None and not (torch.compiler.is_compiling() or is_distributed()):
            found = again(self, logits, targets, mask)
            if found is not None:
                return found
        if not self.uses_kernels(logits):
            return super().forward(logits, targets, mask)
        check_logits(logits, len(self.hierarchy))  # the kernels read half precision as it is
        check_targets(logits, targets, mask)
        if self.validate:
            check_values(self.hierarchy, targets, mask)
        return kernel_hcl(self, logits, targets, mask, alone=not is_distributed())

    @property
    def may_use_kernels(self) -> bool:
        """Whether the Triton kernels take logits on a graphics processor, of the usual types."""
        return self.fused is not False and self.obstacle is None and has_triton()

    def uses_kernels(self, logits: Tensor) -> bool:
        """Whether the Triton kernels take these logits."""
        if self.fused is False or not (self.fused or logits.is_cuda):
            return False
        if self.obstacle is not None or self.row_weights is not None:
            return False
        reason = misfit(logits)
        if reason is not None and self.fused:
            raise HierlearnError(f"fused=True cannot take {reason}; pass fused=None")
        return reason is None and logits.numel() > 0

    def compute(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Compose link, base, constraint, curriculum and reduction."""
        if not self.is_fast(logits):
            losses, errors = self.constrained(logits, targets, mask)
            counted = losses.detach()
            rows: int | Tensor = len(logits)
            if self.row_weights is not None:
                counted, errors = (one * self.row_weights[:, None] for one in (counted, errors))
                rows = self.row_weights.sum()
            weights = self.weigh(counted.sum(dim=0), errors.sum(), rows)
            return self.reduce(losses if weights is None else losses * weights, mask)
        scale = self.base.scale  # type: ignore[attr-defined]
        if self.reduction == "sum":
            share: float | Tensor = scale
        else:
            known = logits.numel() if mask is None else mask.sum().to(logits.dtype)
            share = scale / at_least_1(known)

        def weigh(sums: Tensor, errors: Tensor) -> Tensor:
            class_losses = sums if scale == 1 else sums * scale
            weights = self.weigh(class_losses, errors, len(logits))
            return torch.ones_like(sums) * share if weights is None else weights * share

        if torch.compiler.is_compiling():
            sums, errors = level_sums(logits, targets, mask, self.level_sizes)
            return (sums * weigh(sums.detach(), errors)).sum()
        return fused_hcl(logits, targets, mask, self.level_sizes, weigh)

    def is_fast(self, logits: Tensor) -> bool:
        """Whether the hand-written pass does for this call.

        A compiler on a graphics processor gets the plain composition: inductor of torch 2.11 fails
        on the functional form, whose row and column reductions it fuses into one broken kernel.
        """
        return (
            self.has_fast_form
            and self.reduction != "none"
            and not (logits.is_cuda and torch.compiler.is_compiling())
        )

    @property
    def has_fast_form(self) -> bool:
        """Whether a hand-written pass covers these choices: sigmoid, bce, scope "levels"."""
        return (
            isinstance(self.link, SigmoidLink)
            and isinstance(self.base, BCE)
            and self.scope != "ancestors"
        )

    def constrained(
        self, logits: Tensor, targets: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return (N, C) l_h, and the errors that e_h sums."""
        log_p, log_not_p = self.link(logits)
        losses = self.base(log_p, log_not_p, targets)
        errors = zero_one(log_p.detach(), log_not_p.detach(), targets)
        if self.scope is not None:
            losses = constrain(losses, self.hierarchy, self.scope, mask)
            errors = constrain(errors, self.hierarchy, self.scope, mask)
        elif mask is not None:
            losses, errors = (torch.where(mask, one, 0.0) for one in (losses, errors))
        return losses, errors

    # ------------------------------------------------------------------ the curriculum

    def weigh(self, class_losses: Tensor, errors: Tensor, rows: int | Tensor) -> Tensor | None:
        """Select classes and return their (C,) weights; None where there is no curriculum."""
        if self.curriculum is None:
            return None
        with torch.no_grad():
            count: int | Tensor = rows
            if is_distributed():
                count = torch.as_tensor(rows).to(errors)
                class_losses, errors, count = all_reduced(class_losses, errors, count)
            if self.curriculum == "epoch":
                self.epoch_losses += class_losses
                self.epoch_errors += errors
                self.epoch_rows += count
                selected = self.selected
            else:
                selected = self.choose(class_losses, errors, count)
            weights = self.weights_of(selected, class_losses.dtype)
            self.note(selected, class_losses, errors, count, weights)
        return weights

    def weights_of(self, selected: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what classes weigh: 1 where selected, else the floor."""
        return selected.to(dtype).mul_(1 - self.floor).add_(self.floor)

    def note(self, selected: Tensor, *others: Any) -> None:
        """Remember a selection with its class losses, errors, rows and weights."""
        if self.floor == 0:
            self.ever_selected |= selected
        self._state = (selected, *others)

    def keep(self, plan: LaunchPlan, block: Tensor) -> None:
        """Keep what the kernels selected, as they left it: most calls are never asked about."""
        if self.floor == 0:
            self.ever_selected |= Workspace(plan, block).array("selected")
        self.__dict__["_state"] = (plan, block)  # a module is slow to set attributes

    def _statistics(self) -> tuple[Any, ...]:
        """Return what ``note`` was told, or would have been; nothing before the first call."""
        if len(self._state) != 2:
            return self._state
        found = Workspace(*self._state)
        names = ("selected", "sums", "weights")
        selected, losses, weights = (found.array(name) for name in names)
        return selected, losses, found.errors, found.plan.rows, weights

    def choose(self, class_losses: Tensor, errors: Tensor, rows: int | Tensor) -> Tensor:
        """Return the classes that Algorithm 1 selects for these statistics, of one or M models."""
        if self.normalize == "mean":
            class_losses, errors = class_losses / at_least_1(rows), errors / at_least_1(rows)
        limit = class_losses.shape[-1] + errors if self.threshold is None else self.fixed_threshold
        return select_classes(class_losses, limit)

    def set_progress(self, progress: float) -> None:
        """Tell a threshold schedule how far the training is, from 0 to 1."""
        if self.threshold is not None:
            value = self.threshold(progress) if callable(self.threshold) else self.threshold
            self.fixed_threshold.fill_(float(value))

    def end_epoch(self) -> None:
        """Close an epoch: the epoch curriculum selects anew, and classes left out are named.

        The literal curriculum (floor 0) can leave a class without any gradient; a class that was
        selected in no batch of the epoch is named in a CollapseWarning, once.
        """
        if self.curriculum is None:
            return
        left_out = ~self.ever_selected
        if self.curriculum == "epoch" and bool(self.epoch_rows > 0):
            self.selected.copy_(self.choose(self.epoch_losses, self.epoch_errors, self.epoch_rows))
            for buffer in (self.epoch_losses, self.epoch_errors, self.epoch_rows):
                buffer.zero_()
            left_out = ~self.selected
        literal = self.floor == 0 and isinstance(self.link, SigmoidLink)
        if literal and not self._warned and bool(left_out.any()):
            self._warned = True
            names = [self.hierarchy.names[int(c)] for c in left_out.nonzero().flatten()]
            warnings.warn(
                f"{len(names)} of {len(self.hierarchy)} classes were not selected for a whole "
                f"epoch and learned nothing: {quoted(names, most=3)}; pass floor=0.1 or a "
                f"coherent link such as 'softmax' to keep them alive",
                CollapseWarning,
                stacklevel=2,
            )
        self.ever_selected.zero_()

    @property
    def selected_now(self) -> Tensor | None:
        """The classes that the last call selected, (C,) bool; None where there is none."""
        return self._statistics()[0] if self._state else None

    @property
    def last(self) -> dict[str, Tensor]:
        """What the last call selected, as detached tensors on the device.

        selected (C,), selected_fraction, selected_by_level (L,), e_h and l_hc; empty before the
        first call and without a curriculum. l_hc is max(sum_j w_j L_j, C - sum_j w_j + e_h) for the
        weights w in {floor, 1}; e_h and l_hc are sums or means over rows as ``normalize`` says.
        """
        if not self._state:
            return {}
        selected, losses, errors, rows, weights = self._statistics()
        if self.normalize == "mean":
            losses, errors = losses / at_least_1(rows), errors / at_least_1(rows)
        chosen = selected.to(losses.dtype)
        levels = torch.split(chosen, list(self.hierarchy.level_sizes))
        return {
            "selected": selected,
            "selected_fraction": chosen.mean(),
            "selected_by_level": torch.stack([level.mean() for level in levels]),
            "e_h": errors,
            "l_hc": curriculum_value(losses, errors, weights),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": (), "kernels": None}

    def extra_repr(self) -> str:
        """Name the choices when the module is printed."""
        return (
            f"{super().extra_repr()}, base={self.base}, scope={self.scope!r}, "
            f"curriculum={self.curriculum!r}, floor={self.floor}"
        )


def at_least_1(rows: int | Tensor) -> int | Tensor:
    """Return the number of rows to divide by."""
    return max(rows, 1) if isinstance(rows, int) else rows.clamp_min(1)


def is_distributed() -> bool:
    """Whether several processes train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def all_reduced(class_losses: Tensor, errors: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """Sum over the processes of torch.distributed, so that the selection is the global batch's."""
    together = torch.cat([class_losses, errors[None], rows[None]])
    torch.distributed.all_reduce(together)
    return together[:-2], together[-2], together[-1]
