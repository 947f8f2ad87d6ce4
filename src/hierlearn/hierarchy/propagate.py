"""Maxima and sums along the hierarchy as differentiable tensor operations.

    max_up(x)_c   = max over c and its descendants of x      sum_up:   the sum
    max_down(x)_c = max over c and its ancestors of x        sum_down: the sum
    logsumexp_up(x)_c = log of the sum over c and its descendants of exp(x)

Columns are classes in level order, so a level is a slice of columns. Maxima, and sums on trees, go
level by level and cost O(N * (C + E)). In a DAG a class reached by two paths must count once in a
sum, so sums there go over the pairs of the closure. Where a class ties with what reaches it, its
own value keeps the gradient; others that tie share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.structure import STRUCTURES

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Structure


LOG_ZERO = -1e30  # log(0), but finite: the difference of two of them is not NaN


@dataclass(frozen=True)
class Edges:
    """The edges between two levels; indices count from the first class of their level."""

    upper: int  # level number of the parents, from 0
    lower: int  # level number of the children
    parents: Tensor  # (E',)
    children: Tensor  # (E',)


@dataclass(frozen=True)
class Routes:
    """Index tensors of one hierarchy on one device."""

    sizes: tuple[int, ...]  # classes per level
    edges: tuple[Edges, ...]  # by parent level, then child level
    closure: tuple[Tensor, Tensor] | None  # (descendant, ancestor) pairs; DAG only


def routes_on(hierarchy: Hierarchy, device: torch.device) -> Routes:
    """Return the routes of a hierarchy on a device, made at first use."""
    return routes_by_key(hierarchy.structure.key, device)


def routes_by_key(key: str, device: torch.device) -> Routes:
    """Return the routes of the structure with a key; torch 2.11 takes no objects as constants."""
    structure = STRUCTURES[key]
    found: Routes | None = structure.device_cache.get(device)
    if found is None:
        # Made inside inference_mode they could never take part in training.
        with torch.inference_mode(False):
            found = structure.device_cache[device] = routes(structure, device)
    return found


# A compiled graph takes the routes as constants: they depend on the hierarchy alone. This is what
# torch.compiler.assume_constant_result sets; calling it would import the compiler, 1.6 s.
routes_by_key._dynamo_marked_constant = True  # type: ignore[attr-defined]


def routes(structure: Structure, device: torch.device) -> Routes:
    """Lay out the edges of ``structure`` as index tensors on ``device``."""
    level = structure.levels - 1
    child, parent = structure.edge_children, structure.parent_ids
    group = level[parent] * structure.depth + level[child]
    order = np.argsort(group, kind="stable")
    keys, starts = np.unique(group[order], return_index=True)
    edges = []
    for key, (begin, end) in zip(keys, pairwise([*starts, len(order)]), strict=True):
        part = order[begin:end]
        upper, lower = divmod(int(key), structure.depth)
        up = parent[part] - structure.level_offsets[upper]
        down = child[part] - structure.level_offsets[lower]
        edges.append(
            Edges(upper, lower, torch.tensor(up, device=device), torch.tensor(down, device=device))
        )
    closure = None
    if not structure.is_tree:
        offsets, ids = structure.closure
        below = np.repeat(np.arange(structure.count), np.diff(offsets))
        closure = (torch.tensor(below, device=device), torch.tensor(ids, device=device))
    sizes = tuple(int(size) for size in np.diff(structure.level_offsets))
    return Routes(sizes, tuple(edges), closure)


def check(x: Tensor, count: int) -> None:
    """Raise unless the last dimension of a tensor is the classes."""
    if x.dim() == 0 or x.shape[-1] != count:
        shape = tuple(x.shape)
        raise HierlearnError(f"values {shape} must have a last dimension of {count} classes")


def select(x: Tensor, index: Tensor) -> Tensor:
    """Return the columns ``index`` of ``x``: index_select, with right gradients when compiled.

    The default backend of torch.compile (torch 2.13) adds in place into an input of torch.cat,
    after that input became a part of the result: ``z = zeros(...); cat([x, z]); z.index_add(...)``
    changes what cat returned. The gradient of torch.split is such a cat, and that of index_select
    such an index_add. The gradient of gather is a scatter_add, which copies.
    """
    if torch.compiler.is_dynamo_compiling():
        return x.gather(-1, index.expand(*x.shape[:-1], -1))
    return x.index_select(-1, index)


def add_at(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Add ``values`` to the columns ``index`` of ``x``: index_add, right when compiled too."""
    if torch.compiler.is_dynamo_compiling():
        return x.scatter_add(-1, index.expand(values.shape), values)
    return x.index_add(-1, index, values)


def _reach(x: Tensor, index: Tensor, values: Tensor, reduce: str) -> Tensor:
    """Combine ``values`` into the columns ``index`` of ``x``."""
    if reduce == "sum":
        return add_at(x, index, values)
    lowest: float = False
    if x.dtype != torch.bool:
        lowest = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    best = torch.full_like(x, lowest).scatter_reduce(-1, index.expand(values.shape), values, "amax")
    # torch.maximum would halve the gradient at a tie; the own value keeps it whole.
    higher = best > x
    if x.is_floating_point():
        higher = higher | best.isnan()  # NaN must propagate
    return torch.where(higher, best, x)


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """Return log(exp(a) + exp(b)); unlike torch.logaddexp it has two derivatives at LOG_ZERO."""
    with torch.no_grad():
        peak = torch.maximum(a, b)
    return peak + ((a - peak).exp() + (b - peak).exp()).log()


def log_zero(dtype: torch.dtype) -> float:
    """Return the logarithm of nothing in a floating-point type: finite, and small enough."""
    return max(LOG_ZERO, torch.finfo(dtype).min / 4)


def logsumexp_up(x: Tensor, route: Routes) -> Tensor:
    """Give each class the log of the summed exponentials of itself and its descendants."""
    if not x.is_floating_point():
        raise HierlearnError(f"values must be floating point, not {x.dtype}")
    if route.closure is not None:
        below, above = route.closure
        with torch.no_grad():
            peak = sweep(x, route, "max", upward=True).clamp_min(log_zero(x.dtype))
        terms = (select(x, below) - select(peak, above)).exp()
        return peak + add_at(torch.zeros_like(x), above, terms).log()
    parts = list(torch.split(x, list(route.sizes), dim=-1))
    for edge in reversed(route.edges):
        values, above = select(parts[edge.lower], edge.children), parts[edge.upper]
        with torch.no_grad():
            index = edge.parents.expand(values.shape)
            peak = above.scatter_reduce(-1, index, values, "amax").clamp_min(log_zero(x.dtype))
        terms = (values - select(peak, edge.parents)).exp()
        parts[edge.upper] = peak + add_at((above - peak).exp(), edge.parents, terms).log()
    return torch.cat(parts, dim=-1)


def sweep(x: Tensor, route: Routes, reduce: str, *, upward: bool) -> Tensor:
    """Give each class the ``reduce`` of itself and its descendants, or its ancestors."""
    if reduce == "sum" and route.closure is not None:
        source, target = route.closure if upward else route.closure[::-1]
        return add_at(torch.zeros_like(x), target, select(x, source))
    parts = list(torch.split(x, list(route.sizes), dim=-1))
    for edge in reversed(route.edges) if upward else route.edges:
        lower, upper = (edge.lower, edge.children), (edge.upper, edge.parents)
        (begin, source), (end, target) = (lower, upper) if upward else (upper, lower)
        parts[end] = _reach(parts[end], target, select(parts[begin], source), reduce)
    return torch.cat(parts, dim=-1)
