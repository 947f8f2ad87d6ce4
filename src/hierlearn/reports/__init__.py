"""Stage 14: a study as one self-contained HTML page, and its plots as files for papers."""

from __future__ import annotations

from hierlearn.reports.figures import report_pngs
from hierlearn.reports.page import write_report
from hierlearn.reports.suite_page import write_suite

__all__ = ["report_pngs", "write_report", "write_suite"]
