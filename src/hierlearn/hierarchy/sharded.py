"""ShardedHierarchy: maxima and sums along a hierarchy of which this process holds one shard.

Tensors are (..., S), the classes of the shard. What lies above a class is in its shard, so going
down needs nobody else. Going up, every process reduces its classes of each group, all get the
results, and the stand-ins of a shard take those of the other processes: (..., groups) is exchanged.

Where classes of several shards tie in a maximum, those of another shard count as one class, which
may divide the gradient among them otherwise than one process does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hierlearn.hierarchy import propagate
from hierlearn.hierarchy.exchange import Exchange, agreed, gather, shared
from hierlearn.hierarchy.propagate import add_at, log_zero, select

if TYPE_CHECKING:
    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.label_space import LabelSpace
    from hierlearn.hierarchy.shards import Shard
    from hierlearn.hierarchy.structure import Structure


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
        buffers: dict[str, Any] = {
            "classes": shard.classes,
            "counted": shard.counted.astype("float32"),
            "top": shard.is_top.nonzero()[0],
            "own": own.nonzero()[0],
            "own_groups": shard.groups[own],
            "stand_ins": shard.stand_ins,
            "order": torch.cat([torch.tensor(real), torch.tensor(added)]).argsort(),
            "columns": real,
        }
        for name, values in buffers.items():
            self.register_buffer(name, torch.as_tensor(values).clone(), persistent=False)

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
        parts = gather(self.exchange, self.reduced(x, reduce, used))  # (world, N, G)
        others = [parts[rank] for rank in range(self.exchange.world) if rank != self.exchange.rank]
        found = others[0] if len(others) == 1 else combined(torch.stack(others), reduce)
        joined = torch.cat([x, select(found, self.stand_ins)], dim=-1)
        return select(joined, self.order)

    def reduced(self, x: Tensor, reduce: str, used: Tensor | None = None) -> Tensor:
        """Return (N, G) what this process has of every group; see ``extend``."""
        own, groups = self.own, self.own_groups
        if used is not None:
            kept = used[own]
            own, groups = own[kept], groups[kept]
        values = select(x, own)
        shape = (*x.shape[:-1], self.groups)
        if reduce == "sum":
            return add_at(x.new_zeros(shape), groups, values)
        nothing = x.new_full(shape, propagate._lowest(x.dtype))
        best = nothing.scatter_reduce(-1, groups.expand(values.shape), values, "amax")
        if reduce == "max":
            return best
        with torch.no_grad():
            peak = best.clamp_min(log_zero(x.dtype))
        terms = (values - select(peak, groups)).exp()
        sums = add_at(torch.zeros_like(peak), groups, terms)
        return (peak + sums.log()).clamp_min(log_zero(x.dtype))

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


def combined(values: Tensor, reduce: str) -> Tensor:
    """Return (N, G) what several processes have of every group, of (P, N, G)."""
    if reduce == "sum":
        return values.sum(dim=0)
    if reduce == "max":
        return values.amax(dim=0)
    return values.logsumexp(dim=0)
