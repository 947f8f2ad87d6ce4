"""The pages of studies and suites, and their plots as files."""

from hierlearn.lab.pages.page import write_report
from hierlearn.lab.pages.suite_page import write_suite

__all__ = ["write_report", "write_suite"]
