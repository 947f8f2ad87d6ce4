"""The studies that the pages of models are tested with, too."""

from reports.conftest import (  # noqa: F401
    hostile,
    hostile_page,
    memory_page,
    memory_study,
    one_thread,
    page,
    study,
)
