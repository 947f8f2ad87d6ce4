"""Stage 13: the page of a model."""

from hierlearn.reports.page import write_model_report

__all__ = ["write_model_report"]
