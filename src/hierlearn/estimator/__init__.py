"""Stage 12: the scikit-learn estimator."""

from hierlearn.estimator.classifier import HierarchicalClassifier
from hierlearn.estimator.cross_validation import cross_val_proba
from hierlearn.estimator.scoring import Scorer, scorer

__all__ = ["HierarchicalClassifier", "Scorer", "cross_val_proba", "scorer"]
