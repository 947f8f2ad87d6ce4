"""What a taxonomy looks like, where it may not be meant as it was read."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataWarning, HierarchyError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import networkx as nx

SEPS = (" > ", " -> ", " => ", " » ", " › ", " → ", ">", "->", "::", "|", "\\")
SAMPLE = 20_000  # paths that are looked at
FEWEST = 3  # paths with another separator
MOST = 0.5  # the fraction of the paths that another separator must be in
DIRECTIONS = ("parent-to-child", "child-to-parent")


def find_other_sep(paths: Iterable[str], sep: str) -> tuple[str, str] | None:
    """Return what seems to join the names of paths rather than ``sep``, and a path that holds it.

    It is in most of the paths and in twice as many as ``sep``, and paths share what comes before
    it, as those below one class do.
    """
    sample = list(islice(paths, SAMPLE))
    usual = sum(sep in path for path in sample)
    for other in SEPS:
        if other in sep or sep in other:
            continue
        split = {path: path.split(other) for path in sample if other in path}
        holding = [path for path, parts in split.items() if all(map(str.strip, parts))]
        if len(holding) < max(FEWEST, MOST * len(sample), 2 * usual):
            continue
        tops = {path.split(other)[0].strip() for path in holding}
        if len(tops) < len(holding):
            return other, holding[0]
    return None


def warn_of_other_sep(paths: Iterable[str], sep: str) -> None:
    """Point out that paths seem to be joined by something other than ``sep``."""
    found = find_other_sep(paths, sep)
    if found is not None:
        warnings.warn(
            f"labels such as {found[1]!r} look like paths joined by {found[0]!r}, but sep is "
            f"{sep!r}; set sep= to {found[0]!r} to read them as paths",
            DataWarning,
            stacklevel=2,
        )


def parents_of(graph: nx.DiGraph[Any], direction: str | None) -> dict[Any, list[Any]]:
    """Return the parents of each node of a graph.

    Args:
        graph: a directed graph.
        direction: one of DIRECTIONS; None for parent-to-child, which raises if there are more
            nodes without an incoming edge than without an outgoing one.
    """
    if direction is None:
        direction = graph.graph.get("direction")
    if direction is None:
        tops = sum(degree == 0 for _, degree in graph.in_degree())
        leaves = sum(degree == 0 for _, degree in graph.out_degree())
        if tops > leaves:
            raise HierarchyError(
                f"if the edges of the graph ran from parent to child, it would have {tops:,} top "
                f"classes and {leaves:,} leaves; pass direction='child-to-parent' if they run from "
                f"child to parent, as obonet's do, or direction='parent-to-child'"
            )
        direction = DIRECTIONS[0]
    if direction not in DIRECTIONS:
        raise HierarchyError(
            f"direction must be 'parent-to-child' or 'child-to-parent', not {direction!r}"
        )
    above = graph.predecessors if direction == DIRECTIONS[0] else graph.successors
    return {node: list(dict.fromkeys(above(node))) for node in graph.nodes}
