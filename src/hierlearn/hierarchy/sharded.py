"""ShardedHierarchy: maxima and sums along a hierarchy of which this process holds one shard.

Tensors are (..., S), the classes of the shard. What lies above a class is in its shard, so going
down needs nobody else. Going up, every process reduces its classes of each group, all get the
results, and the stand-ins of a shard take those of the other processes: (..., groups) is exchanged.

Where classes of several shards tie in a maximum, those of another shard count as one class, which
may divide the gradient among them otherwise than one process does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.hierarchy import propagate
from hierlearn.hierarchy.exchange import Exchange, agreed, gather, shared
from hierlearn.hierarchy.propagate import add_at, log_zero, select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.label_space import LabelSpace
    from hierlearn.hierarchy.shards import Shard
    from hierlearn.hierarchy.structure import Structure


MOST = 512  # slices of columns up to which they are faster than indices
REDUCE: dict[str, Any] = {"sum": torch.sum, "max": torch.amax, "logsumexp": torch.logsumexp}


class ShardedHierarchy(nn.Module):
    """The classes of one shard, whose sums include what lies in the others.

    Args:
        shard: the classes of this process.
        exchange: the processes, one for each shard.

    Attributes:
        classes: (S,) their numbers in the whole hierarchy.
        counted: (S,) 1.0 for the classes that count here, 0.0 for the top in all but the first.
    """

    classes: Tensor
    counted: Tensor
    top: Tensor
    own: Tensor
    own_groups: Tensor
    stand_ins: Tensor
    order: Tensor
    columns: Tensor

    def __init__(self, shard: Shard, exchange: Exchange) -> None:
        super().__init__()
        self.shard, self.exchange = shard, exchange
        self.groups = len(shard.shards.group_parents)
        own = ~shard.is_top
        real, added = shard.columns
        by_column = np.argsort(added)
        added = added[by_column]
        buffers: dict[str, Any] = {
            "classes": shard.classes,
            "counted": shard.counted.astype("float32"),
            "top": shard.is_top.nonzero()[0],
            "own": own.nonzero()[0],
            "own_groups": shard.groups[own],
            "stand_ins": shard.stand_ins[by_column],
            "order": torch.cat([torch.tensor(real), torch.tensor(added)]).argsort(),
            "columns": real,
        }
        for name, values in buffers.items():
            self.register_buffer(name, torch.as_tensor(values).clone(), persistent=False)
        # In a tree the classes of a group are few stretches of columns, one or so in each level,
        # and slices are many times faster than indices.
        changes = np.flatnonzero(np.diff(shard.groups)) + 1
        self.runs = np.diff([0, *changes, len(shard.groups)]).tolist()
        self.run_groups = shard.groups[[0, *changes]].tolist()
        self.gaps = np.diff([0, *np.searchsorted(real, added), len(real)]).tolist()

    # ------------------------------------------------------------------ as a hierarchy

    @property
    def local(self) -> Hierarchy:
        """The classes of the shard as a hierarchy of their own."""
        return self.shard.hierarchy

    @property
    def extended(self) -> LabelSpace:
        """The classes of the shard with stand-ins."""
        return self.shard.extended

    @property
    def structure(self) -> Structure:
        """The edges among the classes of the shard."""
        return self.local.structure

    @property
    def is_tree(self) -> bool:
        """Whether the whole hierarchy is a tree."""
        return self.shard.shards.label_space.hierarchy.is_tree

    @property
    def depth(self) -> int:
        """The levels of the whole hierarchy."""
        return self.shard.shards.label_space.hierarchy.depth

    def __len__(self) -> int:
        return len(self.shard.classes)

    def max_up(self, x: Tensor) -> Tensor:
        """Give each class the maximum over itself and its descendants, those elsewhere too."""
        return select(self.extended.hierarchy.max_up(self.extend(x, "max")), self.columns)

    def sum_up(self, x: Tensor) -> Tensor:
        """Give each class the sum over itself and its descendants, those elsewhere too."""
        return select(self.extended.hierarchy.sum_up(self.extend(x, "sum")), self.columns)

    def logsumexp_up(self, x: Tensor) -> Tensor:
        """Give each class log(sum(exp)) over itself and its descendants, those elsewhere too."""
        extended = self.extend(x, "logsumexp")
        return select(self.extended.hierarchy.logsumexp_up(extended), self.columns)

    def max_down(self, x: Tensor) -> Tensor:
        """Give each class the maximum over itself and its ancestors."""
        return self.local.max_down(x)

    def sum_down(self, x: Tensor) -> Tensor:
        """Give each class the sum over itself and its ancestors."""
        return self.local.sum_down(x)

    # ------------------------------------------------------------------ between the shards

    def share_top(self, x: Tensor) -> Tensor:
        """Return (N, S) logits whose top, which every process computes, sums its gradients."""
        if not len(self.top):
            return x
        top = shared(self.exchange, select(x, self.top))
        return x.index_copy(-1, self.top, top)

    def agree(self, x: Tensor) -> Tensor:
        """Return (N, S) values whose top is the same in all processes, bit by bit."""
        if not len(self.top):
            return x
        return x.index_copy(-1, self.top, agreed(self.exchange, select(x, self.top)))

    def extend(self, x: Tensor, reduce: str, used: Tensor | None = None) -> Tensor:
        """Return (N, S + K) the values of the classes and of their stand-ins, in their order.

        Args:
            x: (N, S) the values of the classes.
            reduce: what a stand-in is of its classes: "max", "sum" or "logsumexp".
            used: (S,) bool, of which classes; by default of all.
        """
        return self.join(x, self.elsewhere(self.reduced(x, reduce, used), reduce))

    def elsewhere(self, own: Tensor, reduce: str) -> Tensor:
        """Return (N, G) what the other processes have of every group."""
        parts = gather(self.exchange, own)  # (world, N, G)
        others = [parts[rank] for rank in range(self.exchange.world) if rank != self.exchange.rank]
        return others[0] if len(others) == 1 else combined(torch.stack(others), reduce)

    def join(self, x: Tensor, elsewhere: Tensor) -> Tensor:
        """Return (N, S + K) values of classes with those of the groups elsewhere."""
        found = select(elsewhere, self.stand_ins)
        if len(self.gaps) > MOST:
            return select(torch.cat([x, found], dim=-1), self.order)
        pieces = [*torch.split(x, self.gaps, dim=-1)]
        if not found.shape[-1]:  # in the graph all the same: the others wait for its gradient
            pieces.append(found)
        for number in range(found.shape[-1]):
            pieces.insert(2 * number + 1, found[..., number : number + 1])
        return torch.cat(pieces, dim=-1)

    def take_apart(self, wide: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``join`` put together: (N, S) of the classes, and (N, K) of stand-ins."""
        if len(self.gaps) > MOST:
            back = torch.empty_like(self.order)
            back[self.order] = torch.arange(len(self.order), device=back.device)
            joined = select(wide, back)
            return joined[..., : len(self)], joined[..., len(self) :]
        sizes = [size for gap in self.gaps for size in (gap, 1)][:-1]
        pieces = torch.split(wide, sizes, dim=-1)
        added = torch.cat([wide[..., :0], *pieces[1::2]], dim=-1)
        return torch.cat(pieces[::2], dim=-1), added

    def reduced(self, x: Tensor, reduce: str, used: Tensor | None = None) -> Tensor:
        """Return (N, G) what this process has of every group; see ``extend``."""
        if len(self.runs) > MOST:
            if used is not None:
                x = torch.where(used, x, log_zero(x.dtype))
            return into_groups(select(x, self.own), self.own_groups, self.groups, reduce)
        values, groups = [], []
        for part, group, flags in self.stretches(x, used):
            if group >= 0:
                known = part if flags is None else torch.where(flags, part, log_zero(x.dtype))
                values.append(REDUCE[reduce](known, dim=-1))
                groups.append(group)
        if not groups:
            return into_groups(x[..., :0], self.own_groups, self.groups, reduce)
        numbers = torch.tensor(groups, device=x.device)
        return into_groups(torch.stack(values, dim=-1), numbers, self.groups, reduce)

    def stretches(self, x: Tensor, used: Tensor | None) -> Iterator[tuple[Tensor, int, Any]]:
        """Yield columns of one group after another, the group, and which of them are used."""
        parts = torch.split(x, self.runs, dim=-1)
        flags: Any = [None] * len(parts) if used is None else torch.split(used, self.runs)
        yield from zip(parts, self.run_groups, flags, strict=True)

    def spread(self, slope: Tensor, x: Tensor, sums: Tensor, owed: Tensor, used: Tensor) -> None:
        """Add the gradient of ``reduced(x, "logsumexp", used)`` to that of x, in place.

        Args:
            slope: (N, S) the gradient of x so far.
            x: (N, S).
            sums: (N, G) what ``reduced`` returned.
            owed: (N, G) the gradient of that.
            used: (S,) of which classes.
        """
        if len(self.runs) > MOST:
            own, groups = self.own[used[self.own]], self.own_groups[used[self.own]]
            share = (select(x, own) - select(sums, groups)).exp_()
            slope.index_add_(1, own, share.mul_(select(owed, groups)))
            return
        places = zip(self.stretches(x, used), torch.split(slope, self.runs, dim=1), strict=True)
        for (part, group, flags), place in places:
            if group >= 0:
                share = (part - sums[:, group : group + 1]).exp_()
                place.add_(share.mul_(owed[:, group : group + 1]).mul_(flags))

    def sum_of_children(self, values: Tensor) -> Tensor:
        """Return (N, S) the sum over the children of each class; without gradients."""
        structure = self.structure
        child = torch.tensor(structure.edge_children, device=values.device)
        parent = torch.tensor(structure.parent_ids, device=values.device)
        below = select(values * self.counted.to(values.dtype), child)
        found = add_at(torch.zeros_like(values), parent, below)
        if not len(self.top):
            return found
        return found.index_copy(-1, self.top, self.exchange.total(select(found, self.top)))


def into_groups(values: Tensor, groups: Tensor, count: int, reduce: str) -> Tensor:
    """Return (N, count) the values of (N, n) columns, reduced by the group of each column."""
    shape = (*values.shape[:-1], count)
    if reduce == "sum":
        return add_at(values.new_zeros(shape), groups, values)
    nothing = values.new_full(shape, propagate._lowest(values.dtype))
    best = nothing.scatter_reduce(-1, groups.expand(values.shape), values, "amax")
    if reduce == "max":
        return best
    least = log_zero(values.dtype)
    peak = best.detach().clamp_min(least)
    sums = add_at(torch.zeros_like(peak), groups, (values - select(peak, groups)).exp())
    return (peak + sums.log()).clamp_min(least)


def combined(values: Tensor, reduce: str) -> Tensor:
    """Return (N, G) what several processes have of every group, of (P, N, G)."""
    found: Tensor = REDUCE[reduce](values, dim=0)
    return found
