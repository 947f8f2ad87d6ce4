"""The softmax link: one terminal class per row, and an inner class is the sum of what lies below.

    q = softmax(x over the terminal classes T),    p(c) = sum over t in T at or below c of q_t

The terminal classes are the leaves, and those inner classes that occur as a most specific label.
An inner class that is terminal has a mass of its own beside that of its descendants.

log p climbs the tree by logsumexp. 1 - p is summed too, never subtracted from 1: outside a class
lie the outside of its parent, its siblings, and its parent's own mass,

    1 - p(c) = (1 - p(parent)) + p(parent without c).

In a DAG two parents share what lies outside both, so there 1 - p is the sum over the terminals that
are not below c, by subtraction from 1 in double precision: accurate down to about 1e-16.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hierlearn.hierarchy.propagate import LOG_ZERO, add_at, log_add, routes_on, select
from hierlearn.kernels import choose, cpu, tree
from hierlearn.links.link import HALF, Link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.hierarchy import Hierarchy, LabelSpace

KEY = ("log p", "softmax", None)  # in the table of kernels
TINY = 1e-16  # the least 1 - p in a DAG


class SoftmaxLink(Link):
    """A softmax over the terminal classes, summed upward; coherent.

    Args:
        label_space: what can be predicted; a Hierarchy means that its leaves are terminal.
    """

    coherent = True
    normalized = True
    terminals: Tensor

    def __init__(self, label_space: LabelSpace | Hierarchy) -> None:
        super().__init__(label_space)
        self.register_buffer("terminals", self.label_space.terminal_ids(), persistent=False)

    def log_masses(self, logits: Tensor) -> Tensor:
        """Return the log mass of each terminal class alone, LOG_ZERO for the others."""
        masses = select(logits, self.terminals).log_softmax(dim=-1)
        empty = torch.full_like(logits, LOG_ZERO)
        return empty.index_copy(-1, self.terminals, masses)

    def prior_logits(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> Tensor:
        """Return the log fraction of the rows of each terminal class, 0 for the others."""
        del counts, rows
        prior = torch.zeros_like(terminal_counts)
        prior[self.terminals] = torch.log(terminal_counts[self.terminals] + HALF)
        prior[self.terminals] -= prior[self.terminals].logsumexp(dim=0)
        return prior

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the mass inside and outside every class; by kernels of a tree."""
        plain, space = self.plain_log_probabilities, self.label_space
        on_gpu = has_gpu_kernels(self, logits)
        if not on_gpu and choose.cpu_kernels(KEY, logits, space) is None:
            return plain(logits)
        assert space.layout is not None
        if on_gpu:
            return tree.softmax_pair(logits, space.layout, plain)
        return cpu.softmax_pair(logits, space.layout, plain)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return the log of the mass inside every class, on a CPU without kernels.

        Predictions then do not depend on whether numba is installed.
        """
        if has_gpu_kernels(self, logits):
            return self.log_probabilities(logits)[0]
        masses = self.log_masses(logits)
        if self.hierarchy.is_tree:
            return self.hierarchy.logsumexp_up(masses)
        return self.hierarchy.logsumexp_up(masses.double()).to(logits.dtype)

    def plain_log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same by operations that can be compiled, and differentiated repeatedly."""
        masses = self.log_masses(logits)
        if self.hierarchy.is_tree:
            inside = self.hierarchy.logsumexp_up(masses)
            return inside, log_outside(self.hierarchy, masses, inside)
        inside = self.hierarchy.logsumexp_up(masses.double())
        outside = (-inside.expm1()).clamp_min(TINY).log()
        return inside.to(logits.dtype), outside.to(logits.dtype)


def has_gpu_kernels(link: SoftmaxLink, logits: Tensor) -> bool:
    """Whether there are kernels for these logits, and they work where they are."""
    return choose.gpu_kernels(KEY, logits, link.label_space) is not None and choose.passes(
        "the softmax link", logits.device, try_kernels
    )


def try_kernels(device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the kernels of a tree compute, with what they must."""
    from hierlearn.hierarchy import Hierarchy

    link = SoftmaxLink(Hierarchy.from_parents(choose.example_parents())).to(device)
    layout, plain = link.label_space.layout, link.plain_log_probabilities
    assert layout is not None
    by_kernels = partial(tree.softmax_pair, layout=layout, plain=plain)
    yield from choose.compare_functions(by_kernels, plain, choose.example_inputs(device))


def log_outside(hierarchy: Hierarchy, masses: Tensor, inside: Tensor) -> Tensor:
    """Return the log mass outside every class of a tree, from the top down.

    Args:
        hierarchy: a tree.
        masses: (N, C) the log mass of each class alone.
        inside: (N, C) the log mass at or below each class.
    """
    route = routes_on(hierarchy, inside.device)
    levels = torch.split(inside, list(route.sizes), dim=-1)
    own = torch.split(masses, list(route.sizes), dim=-1)
    root = inside.new_full((*inside.shape[:-1], 1), LOG_ZERO)  # has no mass of its own, no outside
    every = torch.zeros(route.sizes[0], dtype=torch.long, device=inside.device)
    parts = [log_sum_of_others(levels[0], every, root)]
    for edge in route.edges:
        # In a tree the children of an edge list are the whole level in order.
        others = log_sum_of_others(levels[edge.lower], edge.parents, own[edge.upper])
        parts.append(log_add(others, select(parts[-1], edge.parents)))
    return torch.cat(parts, dim=-1)


def log_sum_of_others(values: Tensor, groups: Tensor, own: Tensor) -> Tensor:
    """Return, for each value, the logsumexp of its group without it.

    Subtracting a value from the sum of its group cancels only where that value alone is most of
    it. So the one largest value of a group is left out and the others summed again; for every
    other value the largest stays in the sum and subtraction is safe.

    Args:
        values: (N, n) logs.
        groups: (n,) the group of each column.
        own: (N, g) one more log in each group, LOG_ZERO for none.
    """
    index = groups.expand(values.shape)
    with torch.no_grad():
        peak = own.scatter_reduce(-1, index, values, "amax")
        peaks = select(peak, groups)
        is_peak = values == peaks
        tops = add_at((own == peak).to(values.dtype), groups, is_peak.to(values.dtype))
        alone = is_peak & (select(tops, groups) == 1)
        second = own.scatter_reduce(-1, index, values.masked_fill(alone, LOG_ZERO), "amax")
        seconds = select(second, groups)
    terms = (values - peaks).exp()
    total = select(add_at((own - peak).exp(), groups, terms), groups)
    usual = peaks + (total - terms.masked_fill(alone, 0.0)).log()
    rest = (values.masked_fill(alone, LOG_ZERO) - seconds).exp()
    left = select(add_at((own - second).exp(), groups, rest), groups)
    return torch.where(alone, seconds + left.log(), usual)
