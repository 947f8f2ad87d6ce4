"""Stage 3: preprocessing that is fitted on the training rows."""

from hierlearn.features.numbers import NumericPreprocessor, PiecewiseLinearPreprocessor
from hierlearn.features.preprocessor import Preprocessor
from hierlearn.features.registry import (
    FEATURES,
    from_state,
    make_preprocessor,
    preprocessor_for,
)
from hierlearn.features.table import TablePreprocessor
from hierlearn.features.texts import TextPreprocessor

__all__ = [
    "FEATURES",
    "NumericPreprocessor",
    "PiecewiseLinearPreprocessor",
    "Preprocessor",
    "TablePreprocessor",
    "TextPreprocessor",
    "from_state",
    "make_preprocessor",
    "preprocessor_for",
]
