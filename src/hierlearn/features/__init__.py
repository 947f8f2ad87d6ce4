"""Stage 3: preprocessing that is fitted on the training rows."""

from hierlearn.features.preprocessing import NumericPreprocessor, TextPreprocessor

__all__ = ["NumericPreprocessor", "TextPreprocessor"]
