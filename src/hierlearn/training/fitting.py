"""Fit preprocessing to rows that stay in their files: one process reads them for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import distributed

from hierlearn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hierlearn.features.preprocessor import Preprocessor


def fit_once(
    preprocessor: Preprocessor[Any, Any], parts: Callable[[], Iterable[Any]]
) -> Preprocessor[Any, Any]:
    """Return the preprocessor, fitted by the first process of a training.

    All processes must call this. An error of the first one is raised by all.

    Args:
        preprocessor: not fitted.
        parts: returns the training rows, one part after another.
    """
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return preprocessor.fit_parts(parts)
    found: list[Any] = [None, None]  # the state, and what went wrong
    if distributed.get_rank() == 0:
        try:
            found[0] = preprocessor.fit_parts(parts).state()
        except Exception as error:
            found[1] = str(error)
            distributed.broadcast_object_list(found)
            raise
    distributed.broadcast_object_list(found)
    if found[1] is not None:
        raise DataError(found[1])
    if distributed.get_rank() == 0:
        return preprocessor
    return type(preprocessor).from_state(*found[0])
