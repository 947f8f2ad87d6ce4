"""cross_val_proba: the probabilities of rows that were left out of training, fold by fold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing

from hierlearn.estimator.label_format import LabelFormat, as_objects, parse_labels
from hierlearn.estimator.scoring import last_step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy


def cross_val_proba(
    estimator: Any, X: Any, y: Any, *, cv: Any = 5, hierarchy: Hierarchy | None = None
) -> NDArray[np.float64]:
    """Return (N, C) node probabilities, of each row by a copy that was not trained on it.

    ``cross_val_predict(method="predict_proba")`` of scikit-learn replaces labels by integers, which
    have no taxonomy; here every fold has the labels, and the same columns.

    Args:
        estimator: a HierarchicalClassifier, or a pipeline that ends in one; it is copied.
        X: the rows.
        y: their labels, as ``fit`` takes them.
        cv: the number of folds, or a splitter of scikit-learn; folds of one label per row are
            stratified.
        hierarchy: the taxonomy; by default the estimator's parameter, else that of all labels.

    Returns:
        Probabilities of rows that no fold left out are NaN; columns are ``hierarchy.names``.
    """
    template, _ = last_step(estimator, None, transform=False)
    hierarchy = template.hierarchy if hierarchy is None else hierarchy
    sep = template.sep if hierarchy is None else hierarchy.sep
    given = parse_labels(y, sep)
    form = LabelFormat.from_labels(given, hierarchy, sep)
    names = form.hierarchy.names
    rows = [[names[form.hierarchy.index(label)] for label in row] for row in form.names(given)]
    single = all(len(row) == 1 for row in rows)
    labels = np.asarray([row[0] for row in rows]) if single else as_objects(rows)
    found = np.full((len(rows), len(names)), np.nan)
    for train, test in check_cv(cv, labels if single else None, classifier=True).split(X, labels):
        copy = clone(estimator)
        last_step(copy, None, transform=False)[0].set_params(hierarchy=form.hierarchy)
        copy.fit(
            _safe_indexing(X, train), labels[train] if single else [set(rows[i]) for i in train]
        )
        fitted, inputs = last_step(copy, _safe_indexing(X, test))
        found[test] = fitted.predict_node_proba(inputs)
    return found
