"""Parts of losses: what one process computes of a loss from the (N, S) logits of its classes.

Losses and their gradients are those of one process that has all classes:

    EntryPart   losses of entries; each process has those of its classes
    HCLPart     HCL: the constraint on its classes; class sums go to all, which select alike
    RowPart     losses of rows on terminal masses; each process adds what the labels among its
                classes contribute, of which the losses are linear functions
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.links import HeadOutput
from hierlearn.links.sharded import LOCAL, check_link, sharded_link
from hierlearn.losses.bases import zero_one
from hierlearn.losses.bce import BCELoss
from hierlearn.losses.composed import ComposedLoss
from hierlearn.losses.focal import FocalLoss
from hierlearn.losses.hcl.constraint import constrain
from hierlearn.losses.hcl.loss import HCLLoss
from hierlearn.losses.hxe import HXELoss
from hierlearn.losses.lca_cost import LCACostLoss
from hierlearn.losses.leaf_ce import LeafCELoss
from hierlearn.losses.level_weighted import LevelWeightedLoss
from hierlearn.losses.loss import own_shares
from hierlearn.losses.mcloss import MCLoss
from hierlearn.losses.mixed import MixedLoss
from hierlearn.losses.sharded.levels import by_levels

if TYPE_CHECKING:
    from hierlearn.hierarchy.sharded import ShardedHierarchy
    from hierlearn.links import Link
    from hierlearn.losses.joint import JointLoss
    from hierlearn.losses.loss import Loss
    from hierlearn.losses.softmax_rows import SoftmaxRowLoss

OF_ENTRIES = (BCELoss, ComposedLoss, FocalLoss, LevelWeightedLoss, MCLoss)
OF_ROWS = (LeafCELoss, HXELoss, LCACostLoss)
KNOWN = "bce, focal, level-weighted, mcloss, mixed, hcl and its variants, leaf-ce, hxe or lca-cost"


class EntryPart(nn.Module):
    """Losses of single entries.

    Args:
        loss: of the whole label space.
        hierarchy: the classes of this process.
        link: how logits are read; by default as the loss reads them.

    Attributes:
        whole: the loss of the whole label space.
        local: the same for the classes of this process.
    """

    def __init__(self, loss: Loss, hierarchy: ShardedHierarchy, link: Link | None = None) -> None:
        super().__init__()
        self.whole, self.hierarchy = loss, hierarchy
        self.local: Any = localized(loss, hierarchy)
        self.link = sharded_link(loss.link if link is None else link, hierarchy)

    def values(
        self, logits: Tensor, targets: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return (N, S) losses, or (N,), of what counts here, and the errors that HCL sums."""
        found = self.local.losses(self.output(logits), targets, mask)
        return self.only_counted(found, mask), None

    def output(self, logits: Tensor) -> HeadOutput:
        """Return logits of this process under the link of the loss."""
        return HeadOutput.from_logits(self.hierarchy.share_top(logits), self.link)

    def only_counted(self, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N, S) values that are 0 where an entry is unknown or counts elsewhere."""
        if mask is not None:
            values = torch.where(mask, values, 0.0)
        return values * self.hierarchy.counted.to(values.dtype)

    def count(self, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """Return what the mean divides by, of what counts here."""
        counted = self.hierarchy.counted.double()
        if mask is not None:
            per_row = (mask * counted).sum(dim=1)
        else:
            per_row = counted.sum().expand(len(targets))
        return (per_row if weight is None else per_row * weight).sum()


class HCLPart(EntryPart):
    """HCL: constrained losses; ``whole`` selects classes and keeps the state."""

    whole: HCLLoss

    def values(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (N, S) the constrained losses and errors of what counts here."""
        pair = self.output(logits).pair
        if not isinstance(self.link, LOCAL):  # else equal logits are equal pairs
            pair = (self.hierarchy.agree(pair[0]), self.hierarchy.agree(pair[1]))
        losses = self.constrained(self.whole.base(*pair, targets), mask)
        with torch.no_grad():
            errors = self.constrained(zero_one(*pair, targets), mask)
        return self.only_counted(losses, mask), self.only_counted(errors, mask)

    def constrained(self, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return the smallest values above these that satisfy the constraint."""
        if self.whole.scope is None:
            return values
        if self.whole.scope == "ancestors":
            return constrain(values, self.hierarchy.local, "ancestors", mask)
        known = values if mask is None else values.masked_fill(~mask, -torch.inf)
        return by_levels(known, self.hierarchy)


class RowPart(EntryPart):
    """Losses of rows on the masses of terminal classes."""

    local: SoftmaxRowLoss

    def __init__(self, loss: Loss, hierarchy: ShardedHierarchy, link: Link | None = None) -> None:
        super().__init__(loss, hierarchy, link)
        self.local.sum_of_children = hierarchy.sum_of_children  # type: ignore[method-assign]
        if isinstance(loss, HXELoss):  # steps into the top are the same everywhere
            self.local.step_weights = self.local.step_weights * hierarchy.counted  # type: ignore[operator]

    def values(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, None]:
        """Return (N,) what the labels among the classes of this process contribute."""
        log_masses = self.local.log_masses(self.output(logits))
        with torch.no_grad():
            positive = self.only_counted(targets.to(log_masses.dtype), mask)
            shares = own_shares(positive, self.hierarchy.sum_of_children(positive))
            counts = self.hierarchy.exchange.total(shares.sum(dim=1, keepdim=True))
            labels = shares / counts.clamp_min(1)
        return self.local.row_losses(log_masses, labels, mask), None

    def count(self, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """Return the summed weight of the rows with a known label; in the first process."""
        known = targets > 0 if mask is None else (targets > 0) & mask
        labeled = self.hierarchy.exchange.total(known.any(dim=1).double()) > 0
        if self.hierarchy.exchange.rank:
            labeled = torch.zeros_like(labeled)
        return (labeled if weight is None else labeled * weight).sum().double()


def check_loss(loss: Loss | JointLoss, link: Link | None = None) -> None:
    """Raise where a loss, or the link of the logits, cannot be computed in shards."""
    parts = [loss]
    if isinstance(loss, MixedLoss):
        parts = list(loss.losses_of_parts)
    known = OF_ENTRIES if isinstance(loss, MixedLoss) else (*OF_ENTRIES, *OF_ROWS, HCLLoss)
    for one in parts:
        if type(one) not in known:
            what = "in a mixed loss " * isinstance(loss, MixedLoss)
            raise HierlearnError(
                f"{type(one).__name__} {what}cannot be computed in shards of classes; use {KNOWN}, "
                f"or parallel ddp"
            )
        for option in ("class_weight", "pos_weight"):
            if getattr(one, option, None) is not None:
                raise HierlearnError(
                    f"{option} of {type(one).__name__} cannot be computed in shards of classes; "
                    f"leave it out, or use parallel ddp"
                )
    check_link(loss.link if link is None else link)


def sharded_part(loss: Loss, hierarchy: ShardedHierarchy, link: Link | None = None) -> EntryPart:
    """Return what one process computes of a loss; the arguments are those of EntryPart.

    Raises:
        HierlearnError: where the loss cannot be computed in shards.
    """
    check_loss(loss, link)
    if isinstance(loss, HCLLoss):
        return HCLPart(loss, hierarchy, link)
    return (RowPart if type(loss) in OF_ROWS else EntryPart)(loss, hierarchy, link)


def localized(loss: Loss, hierarchy: ShardedHierarchy) -> Any:
    """Return a loss for the classes of one process; the constants of classes are taken along."""
    whole = len(loss.label_space)
    new: Any = copy.copy(loss)
    new._modules, new._buffers = {}, {}
    new.hierarchy = hierarchy
    new.link = sharded_link(loss.link, hierarchy)
    edges = {
        "child_ids": hierarchy.structure.edge_children,
        "parent_ids": hierarchy.structure.parent_ids,
    }
    for name, value in loss._buffers.items():
        if name in edges:
            value = torch.tensor(edges[name])
        elif value is not None and value.dim() and value.shape[-1] == whole:
            value = value.index_select(-1, hierarchy.classes.to(value.device))
        new.register_buffer(name, value, persistent=False)
    if isinstance(loss, MixedLoss):
        new.parts = nn.ModuleList([localized(one, hierarchy) for one in loss.losses_of_parts])
    return new
