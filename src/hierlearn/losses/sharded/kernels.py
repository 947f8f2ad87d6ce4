"""HCL of one shard by the CPU kernels of trees: natural bce, softmax or sigmoid, no row weights.

The kernels see the classes of the shard, and with the softmax link its stand-ins, as a tree of
their own. They return class sums, of which those of stand-ins and of a top that counts elsewhere
are left out, and the errors of all columns together. The errors of what does not count here are
found in the outline: the top, with one leaf per group for this shard and one for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hierlearn.hierarchy.propagate import select
from hierlearn.kernels import class_sums as kernels
from hierlearn.kernels import rows
from hierlearn.links import SoftmaxLink
from hierlearn.links.sharded import ShardedSoftmaxLink
from hierlearn.links.sigmoid import SigmoidLink
from hierlearn.losses.bases import BCE, zero_one
from hierlearn.losses.hcl.constraint import constrain

if TYPE_CHECKING:
    from hierlearn.hierarchy import LabelSpace
    from hierlearn.losses.sharded.parts import HCLPart


def can_use(part: HCLPart, logits: Tensor) -> bool:
    """Whether the kernels compute this part of HCL."""
    link, whole = part.link, part.whole
    if not isinstance(whole.base, BCE) or whole.scope == "levels":
        return False
    if not isinstance(link, (ShardedSoftmaxLink, SigmoidLink)) or not part.hierarchy.is_tree:
        return False
    return rows.can_use(logits.detach()) and space_of(part).layout is not None


def space_of(part: HCLPart) -> LabelSpace:
    """Return the tree that the kernels see."""
    shard = part.hierarchy.shard
    return shard.extended if isinstance(part.link, ShardedSoftmaxLink) else shard.label_space


class KernelChunk:
    """Some rows of a batch; see ``Chunk``.

    Args:
        part: what this process computes.
        logits: (n, S), which are changed in place: the top becomes that of the first process.
        targets: (n, S).
        mask: (n, S) or None.
    """

    def __init__(self, part: HCLPart, logits: Tensor, targets: Tensor, mask: Tensor | None) -> None:
        self.part, self.hierarchy = part, part.hierarchy
        self.logits, self.targets, self.mask = logits.detach(), targets, mask
        self.scale: float = part.whole.base.scale  # type: ignore[attr-defined]
        self.parts: tuple[Tensor, Tensor] | None = None  # (n, G) logsumexps: here and elsewhere
        top, link = self.hierarchy.top, part.link
        if len(top):
            agreed = self.hierarchy.exchange.from_first(select(self.logits, top))
            self.logits.index_copy_(1, top, agreed)
        x, flags, known = self.logits, targets, mask
        if isinstance(link, ShardedSoftmaxLink):
            with torch.no_grad():
                own = self.hierarchy.reduced(x, "logsumexp", link.is_terminal)
            own.requires_grad_(torch.is_grad_enabled())
            self.parts = own, self.hierarchy.elsewhere(own, "logsumexp")
            x = self.hierarchy.join(x, self.parts[1].detach())
            flags = self.widened(targets)
            known = None if mask is None else self.widened(mask)
        softmax = self.parts is not None
        constraint = kernels.Constraint(space_of(part).layout, softmax, part.whole.scope)  # type: ignore[arg-type]
        self.job = kernels.job_of(constraint, x.contiguous(), flags, known)

    def widened(self, flags: Tensor) -> Tensor:
        """Return (n, S + K) flags, false for the stand-ins."""
        wide = torch.zeros((len(flags), len(space_of(self.part))), dtype=torch.bool)
        return wide.index_copy_(1, self.hierarchy.columns, flags.bool())

    def sums(self) -> tuple[Tensor, Tensor]:
        """Return (S,) class sums and the errors of what counts here; NaN where logits are not."""
        found = kernels.class_sums(self.job)
        counted = self.hierarchy.counted
        if found is None:
            return torch.full_like(counted, torch.nan), torch.tensor(torch.nan)
        sums = found[0] if self.parts is None else select(found[0], self.hierarchy.columns)
        return sums * counted * self.scale, found[1] - self.errors_elsewhere()

    def errors_elsewhere(self) -> Tensor:
        """Return the errors of the columns that the kernels counted, but which count elsewhere."""
        hierarchy, outline = self.hierarchy, self.hierarchy.shard.shards.outline
        if self.parts is None and not (hierarchy.exchange.rank and len(hierarchy.top)):
            return torch.zeros(())
        columns = [torch.tensor(one) for one in (outline.top, outline.here, outline.elsewhere)]
        count = len(outline.label_space)
        top = select(self.logits, hierarchy.top)
        targets = torch.zeros((len(top), count), dtype=torch.bool)
        known = torch.zeros_like(targets)
        targets[:, columns[0]] = select(self.targets.bool(), hierarchy.top)
        if hierarchy.exchange.rank:
            known[:, columns[0]] = True if self.mask is None else select(self.mask, hierarchy.top)
        binding = torch.ones_like(targets)
        if self.mask is not None:
            binding[:, columns[0]] = select(self.mask, hierarchy.top)
        x = torch.zeros((len(top), count))
        x[:, columns[0]] = top
        if self.parts is None:
            pair = SigmoidLink(outline.label_space).log_probabilities(x)
        else:
            x[:, columns[1]], x[:, columns[2]] = (one.detach() for one in self.parts)
            pair = SoftmaxLink(outline.label_space).plain_log_probabilities(x)
            if self.mask is None:  # else the kernels leave stand-ins out
                known[:, columns[2][hierarchy.stand_ins]] = True
        errors = zero_one(*pair, targets)
        if self.part.whole.scope == "ancestors":
            errors = constrain(errors, outline.label_space.hierarchy, "ancestors", binding)
        return (errors * known).sum()

    def add_to(self, sums: Tensor) -> None:
        """Add class sums and errors."""
        found, errors = self.sums()
        sums[:-1] += found
        sums[-1] += errors

    def learn(self, weights: Tensor | None, *, learns: bool) -> tuple[Tensor, Tensor | None]:
        """Return the summed loss and its gradient."""
        counted = self.hierarchy.counted
        weights = counted if weights is None else weights.float() * counted
        total = (self.sums()[0] * weights).double().sum()
        if not learns:
            return total, None
        given, top = weights * self.scale, self.hierarchy.top
        if self.parts is not None:
            wide = torch.zeros(len(space_of(self.part)))
            given = wide.index_copy_(0, self.hierarchy.columns, given)
        slope = kernels.gradient(self.job, given)
        if self.parts is not None:
            slope = self.through_stand_ins(slope)
        if len(top):
            slope.index_copy_(1, top, self.hierarchy.exchange.total(select(slope, top)))
        return total, slope

    def through_stand_ins(self, wide: Tensor) -> Tensor:
        """Return (n, S) the gradient of the logits, given that of logits and stand-ins.

        What other processes' stand-ins owe to a group goes to its terminal classes by their share.
        """
        assert self.parts is not None
        assert isinstance(self.part.link, ShardedSoftmaxLink)
        hierarchy, (own, elsewhere) = self.hierarchy, self.parts
        slope, added = hierarchy.take_apart(wide)
        due = torch.zeros_like(elsewhere).index_copy_(1, hierarchy.stand_ins, added)
        (owed,) = torch.autograd.grad(elsewhere, own, due)
        hierarchy.spread(slope, self.logits, own.detach(), owed, self.part.link.is_terminal)
        return slope
