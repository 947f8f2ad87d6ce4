"""Stage 12: the scikit-learn estimator."""

from hierlearn.estimator.classifier import HierarchicalClassifier

__all__ = ["HierarchicalClassifier"]
