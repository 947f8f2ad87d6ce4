"""Scorers: metrics by name for ``scoring=`` of GridSearchCV, cross_val_score and the like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hierlearn.errors import HierlearnError
from hierlearn.metrics.registry import find_metric


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
