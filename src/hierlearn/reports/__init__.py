"""Stage 15: a study or a model as one self-contained HTML page, and plots as files for papers."""

from __future__ import annotations

from hierlearn.reports.figures import report_pngs
from hierlearn.reports.model_page import write_model_report
from hierlearn.reports.page import write_report
from hierlearn.reports.suite_page import write_suite

__all__ = ["report_pngs", "write_model_report", "write_report", "write_suite"]
