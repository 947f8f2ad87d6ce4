"""Score: what a classifier is worth on labeled rows; the figures are those of ``evaluate``.

    one label per row    exact: the fraction of rows that are answered exactly
    several labels       f1: 2 sum |A n T| / sum (|A| + |T|)

A label that the taxonomy lacks is scored at the nearest class above it that it has.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing

from hierlearn.datasets.labels import LabelWarning, is_unknown, unseen_note
from hierlearn.errors import DataError, HierlearnError
from hierlearn.estimator.labels import LabelFormat, as_objects, name_of, parse_labels
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.answers import Answers, exact
from hierlearn.metrics.measure import find_metric
from hierlearn.pipeline.evaluate import known_entries, policy_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.estimator.labels import ParsedLabels
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.pipeline import Pipeline


def known_labels(
    given: ParsedLabels, form: LabelFormat
) -> tuple[list[list[Any]], dict[int, list[str]]]:
    """Return the labels of rows as a taxonomy knows them, and by row those that it lacks.

    Args:
        given: the labels.
        form: the form of the training labels.
    """
    if given.are_numbers and form.numbers:
        return form.names(given), {}
    hierarchy = form.hierarchy
    above: dict[str, tuple[str, ...]] = {}
    named: list[list[Any]] = []
    unseen: dict[int, list[str]] = {}
    for row, labels in enumerate(given.rows):
        texts = [name_of(label) for label in labels] if given.are_numbers else labels
        here: list[Any] = []
        for label in texts:
            new = isinstance(label, str) and label not in above and label not in hierarchy
            if new and is_unknown(label, hierarchy):
                above[label] = hierarchy.nearest_known(label)
            if label in above:
                unseen.setdefault(row, []).append(label)
                here += above[label]
            else:
                here.append(label)
        named.append(here)
    if unseen and not any(named):
        return given.rows if not given.are_numbers else form.names(given), {}  # says which
    return named, unseen


def truth(
    given: ParsedLabels, form: LabelFormat, pipeline: Pipeline
) -> tuple[Labels, Tensor | None]:
    """Return labels, and a mask of what is known of them; warn of those that the taxonomy lacks.

    Args:
        given: the labels.
        form: the form of the training labels.
        pipeline: what was trained on these.
    """
    names, unseen = known_labels(given, form)
    if unseen:
        lost = [row for row in unseen if not names[row]]
        warnings.warn(LabelWarning(unseen_note(unseen, lost)), stacklevel=4)
    labels = Labels(names, form.hierarchy, unlabeled_descendants=policy_of(pipeline))
    return labels, known_entries(labels, unseen)


def weighted_exact(answers: Answers, weights: Tensor) -> float:
    """Return the fraction of rows that are answered exactly, each counted by its weight."""
    rows = exact(answers, reduction="none")
    counted = weights * ~rows.isnan()
    if not bool(counted.any()):
        raise DataError("no row has a label, so there is nothing to score")
    return float((counted * rows.nan_to_num()).sum() / counted.sum())


@dataclass(frozen=True)
class Scorer:
    """What ``scorer`` returns: ``scorer(estimator, X, y)``, larger is better.

    Attributes:
        name: of METRICS.
        level: of a metric that has one value per level, counted from 1.
    """

    name: str
    level: int | None = None

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the metric of a fitted estimator on labeled rows; negative if lower is better."""
        classifier, rows = last_step(estimator, X)
        value = classifier.evaluate(rows, y, [self.name])[self.name]
        if self.level is not None:
            if self.level > len(value):
                raise HierlearnError(
                    f"level {self.level} of {self.name} does not exist: there are {len(value)}"
                )
            value = value[self.level - 1]
        sign = -1.0 if find_metric(self.name).direction == "down" else 1.0
        return float("nan") if value is None else sign * float(value)


def scorer(name: str, *, level: int | None = None) -> Scorer:
    """Return a metric as scikit-learn takes it: ``GridSearchCV(clf, grid, scoring=scorer(...))``.

    Larger is better, as scikit-learn expects: a metric of which less is better is negative. The
    estimator is a HierarchicalClassifier, or a pipeline or a search that ends in one.

    Args:
        name: a name of METRICS, such as "f1".
        level: for a metric with one value per level, such as "accuracy": which, from 1.

    Example:
        >>> scorer("f1")
        Scorer(name='f1', level=None)
    """
    metric = find_metric(name)
    if metric.direction == "none":
        raise HierlearnError(f"{name} is no score: neither more nor less of it is better")
    if metric.by_level and level is None:
        raise HierlearnError(f"{name} has one value per level; choose one with level=")
    if level is not None and (not metric.by_level or level < 1):
        reason = "levels count from 1" if metric.by_level else f"{name} is one number"
        raise HierlearnError(f"level={level} cannot be scored: {reason}")
    return Scorer(name, level)


def last_step(estimator: Any, X: Any, *, transform: bool = True) -> tuple[Any, Any]:
    """Return the classifier at the end of pipelines and searches, and the rows that reach it.

    Args:
        estimator: fitted, if rows are to be transformed.
        X: the rows.
        transform: whether to take them through the steps before the classifier.
    """
    while not hasattr(estimator, "evaluate"):
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            if transform and len(estimator.steps) > 1:
                X = estimator[:-1].transform(X)
            estimator = estimator.steps[-1][1]
        else:
            raise HierlearnError(
                f"a HierarchicalClassifier is needed, or a pipeline that ends in one, not "
                f"{type(estimator).__name__}"
            )
    return estimator, X


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
