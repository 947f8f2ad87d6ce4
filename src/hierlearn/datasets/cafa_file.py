"""Predictions as CAFA has them: a gene, a term and a score per line, separated by tabs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from hierlearn.errors import DataError
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy

MIN_SCORE = 0.01
MAX_TERMS = 1500  # of a gene, the most that CAFA takes
DIGITS = 3  # after the point


@contextmanager
def cafa_writer(
    path: Path | str,
    hierarchy: Hierarchy,
    *,
    min_score: float = MIN_SCORE,
    max_terms: int = MAX_TERMS,
) -> Iterator[Callable[[Sequence[str], Tensor], int]]:
    """Yield a function that appends the scores of genes, and returns how many lines it wrote.

    It takes n ids and (n, C) probabilities. The terms of a gene come with falling scores, a parent
    before its children where they tie. The file appears when the context ends without an error.

    Args:
        path: the file.
        hierarchy: the taxonomy of the scores.
        min_score: the smallest score that is written.
        max_terms: how many terms of a gene are written, at most.
    """
    if not 0 <= min_score <= 1:
        raise DataError(f"min_score must lie between 0 and 1, not {min_score}")
    if max_terms < 1:
        raise DataError(f"max_terms must be at least 1, not {max_terms}")
    most = min(max_terms, len(hierarchy))
    names = hierarchy.names
    with atomic_write(path) as file:

        def append(ids: Sequence[str], probabilities: Tensor) -> int:
            if tuple(probabilities.shape) != (len(ids), len(hierarchy)):
                raise DataError(
                    f"probabilities {tuple(probabilities.shape)} must be ({len(ids)}, "
                    f"{len(hierarchy)}): one row per id, one column per class"
                )
            lines: list[str] = []
            for gene, row in zip(ids, probabilities.detach().cpu(), strict=True):
                if "\t" in gene or "\n" in gene:
                    raise DataError(f"the id {gene!r} holds a tab or a line end; rename it")
                rounded = (row.double() * 10**DIGITS).round() / 10**DIGITS
                numbers = (row >= min_score).logical_and(rounded > 0).nonzero().squeeze(1)
                # Class numbers ascend by level, so a stable sort puts parents first.
                order = torch.sort(rounded[numbers], descending=True, stable=True).indices
                lines.extend(
                    f"{gene}\t{names[number]}\t{rounded[number]:.{DIGITS}f}\n"
                    for number in numbers[order[:most]].tolist()
                )
            file.writelines(lines)
            return len(lines)

        yield append
