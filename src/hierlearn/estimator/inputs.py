"""Inputs and weights as given, recognized and checked."""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hierlearn.datasets.tables.table import PLAIN, table_from_frame
from hierlearn.errors import DataError, HierlearnError, arg
from hierlearn.features import FEATURES
from hierlearn.hierarchy.names import is_frame, is_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.datasets.tables.table import Table
    from hierlearn.pipeline import Pipeline

NUMERIC = "biufc"  # kinds of NumPy's numbers


def as_texts(X: Any) -> list[str] | None:
    """Return inputs of texts, (N,) or (N, 1), as a list; None for anything else."""
    if isinstance(X, (str, bytes)):
        raise DataError("inputs are a single text; give a list of texts")
    if not isinstance(X, (list, tuple)):
        kind = getattr(getattr(X, "dtype", None), "kind", "O")
        shape = getattr(X, "shape", ())
        # An array may be (N, 1), such as the one text column of a frame.
        is_column = isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1
        if kind in NUMERIC or not (len(shape) == 1 or is_column):
            return None
        X = X.ravel() if len(shape) == 2 else X
    rows = list(X)
    return rows if any(isinstance(row, str) for row in rows) else None


def as_csr(X: Any) -> Any:
    """Return sparse rows as float32; raise on what does not fit."""
    with np.errstate(over="ignore"):  # the result is checked below
        rows = X.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(rows.data))
    if len(wrong):
        row = int(np.searchsorted(X.indptr, wrong[0], side="right")) - 1
        raise DataError(
            f"row {row}, column {X.indices[wrong[0]]} (counted from 0): {X.data[wrong[0]]} does "
            f"not fit float32; scale the column"
        )
    return rows


def read_frame(classifier: Any, X: Any, *, reset: bool) -> Table | None:
    """Return a frame with columns of different kinds as a table; None for any other inputs.

    Args:
        classifier: whose attributes ``n_features_in_`` and ``feature_names_in_`` are set.
        X: the inputs.
        reset: whether these are training rows; others are read as those were.
    """
    if reset:
        from sklearn.utils.validation import validate_data

        table = None
        if is_frame(X) and not all(PLAIN.match(str(dtype).lower()) for dtype in list(X.dtypes)):
            table = table_from_frame(X)
        if table is not None:
            validate_data(classifier, X, skip_check_array=True)
        return table
    step: Any = classifier.pipeline_.preprocessor
    if step is None or step.reads != "table":
        return None
    table = step.read(X)
    return cast("Table", table)


def as_trained(X: Any, pipeline: Pipeline) -> Any:
    """Return rows to predict on as dense or sparse as those of the training."""
    from scipy.sparse import csr_array

    sparse = hasattr(X, "tocsr")
    if pipeline.preprocessor is None and not sparse:  # stored values cannot be missing
        wrong: Any = np.argwhere(np.isnan(X)) if X.dtype.kind == "f" else ()
        if len(wrong):
            found: list[int] = wrong[0].tolist()
            raise DataError(
                f"row {found[0]}, column {found[1]} (counted from 0): the value is missing (NaN), "
                f"but the classifier learned from sparse rows, which lack none; fill it in"
            )
    if pipeline.preprocessor is None:  # it was trained on sparse rows
        return as_csr(X if sparse else csr_array(X))
    return X.toarray() if sparse else X


def input_attributes(pipeline: Pipeline) -> dict[str, Any]:
    """Return the attributes of a fitted classifier that describe its inputs."""
    step: Any = pipeline.preprocessor
    reads = None if step is None else step.reads
    found: dict[str, Any] = {"_is_text": reads == "texts"}
    spec = pipeline.network_spec
    columns = (spec and spec.inputs.width) if step is None else step.input_columns
    if columns is not None:
        found["n_features_in_"] = columns
    names = step.order if reads == "table" else pipeline.config.get("feature_names")
    if names and reads != "texts":
        found["feature_names_in_"] = np.asarray(names, dtype=object)
    return found


def parse_weights(weights: ArrayLike | None, count: int) -> NDArray[np.float64]:
    """Return (N,) weights of rows, 1 where none are given."""
    from sklearn.utils import check_array

    if weights is None:
        return np.ones(count)
    if isinstance(weights, Number):
        weights = np.full(count, weights)
    found: NDArray[np.float64] = check_array(
        weights, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if found.shape != (count,):
        raise DataError(f"sample_weight {found.shape} must be ({count},): one weight per row")
    if found.min() < 0:
        row = int(np.argmin(found))
        raise DataError(f"row {row}: sample_weight is {found[row]}, below zero")
    if not found.any():
        raise DataError("sample_weight is zero for every row; give at least one row a weight")
    return found


def check_own_network(ensemble_size: int, dataset: Dataset) -> None:
    """Raise on what only the networks of NETWORKS can do."""
    if ensemble_size != 1:
        raise HierlearnError(
            f"ensemble_size={ensemble_size} needs a network of NETWORKS; a module of your own is "
            f"one network"
        )
    step = FEATURES["table"]
    wide = dataset.kind == "table" and step.produces_for(dataset) == "sparse"
    if dataset.is_text or dataset.is_sparse or wide:
        raise HierlearnError(
            "a module of your own reads dense rows, but X is texts or sparse; make X dense, or "
            "use network='token-bag'"
        )


def parse_groups(groups: Sequence[Any]) -> list[str]:
    """Return the group of each row; raise where a row has none, as the command does."""
    cells = np.asarray(groups, dtype=object)
    if cells.ndim != 1:
        raise DataError(f"groups must have one value per row, (N,), not the shape {cells.shape}")
    for row, cell in enumerate(cells):
        if is_missing(cell):
            raise DataError(f"row {row} has no group; give it one, or leave {arg('groups')} out")
    return list(map(str, cells))
