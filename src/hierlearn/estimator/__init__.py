"""Stage 12: the scikit-learn estimator."""

from hierlearn.estimator.classifier import HierarchicalClassifier
from hierlearn.estimator.scoring import Scorer, cross_val_proba, scorer

__all__ = ["HierarchicalClassifier", "Scorer", "cross_val_proba", "scorer"]
