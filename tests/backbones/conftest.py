"""Nothing is downloaded, and features are cached in a folder of each test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything of transformers is imported

from torchvision_operators import declare_operators

declare_operators()

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HIERLEARN_CACHE", str(folder))
    monkeypatch.delenv("HIERLEARN_NO_CACHE", raising=False)
    return folder


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny BERT."""
    pytest.importorskip("transformers")
    from backbones.text_models import bert_config, save_model

    return save_model(tmp_path_factory.mktemp("bert"), bert_config())
