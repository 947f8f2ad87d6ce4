"""Stage 14: a study as one self-contained HTML page, and its plots as files for papers."""

from __future__ import annotations

from hierlearn.reports.figures import report_pngs
from hierlearn.reports.page import write_report

__all__ = ["report_pngs", "write_report"]
