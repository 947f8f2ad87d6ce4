"""What the tests of the integrations need of the other libraries."""

import pytest


@pytest.fixture(autouse=True)
def _no_package_of_datasets(monkeypatch):
    """The folder tests/datasets can be imported, which transformers takes for Hugging Face's."""
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)
