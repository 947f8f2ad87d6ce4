"""The pages of studies, and their plots as files."""

from hierlearn.lab.pages.page import write_report

__all__ = ["write_report"]
