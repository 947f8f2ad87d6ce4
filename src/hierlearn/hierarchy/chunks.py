"""Row chunks: (N, C) work done a few rows at a time, so that temporaries stay small for any N."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.hierarchy.hierarchy import Hierarchy

CHUNK = 2**22  # elements of one temporary: 16 MiB in float32


def row_chunks(count: int, width: int) -> Iterator[slice]:
    """Yield slices over ``count`` rows of ``width`` elements; one empty slice for no rows."""
    step = max(1, CHUNK // max(1, width))
    for begin in range(0, max(1, count), step):
        yield slice(begin, min(begin + step, count))


def row_width(hierarchy: Hierarchy) -> int:
    """Return the elements per row of a sum along the hierarchy: C, or the closure of a DAG."""
    if hierarchy.is_tree:
        return len(hierarchy)
    return len(hierarchy.structure.closure[1])
