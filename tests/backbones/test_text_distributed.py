"""Two processes train a text encoder as one does, also in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backbones import text_worker
from backbones.text_models import bert_config, save_model
from training.datasets import read_records
from two_processes import launch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_two_processes_train_a_text_encoder_as_one_does(tmp_path: Path) -> None:
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    source = save_model(tmp_path / "source", bert_config(**still))
    text_worker.run(source, tmp_path / "one")
    done = launch(text_worker.__file__, tmp_path, seconds=240)
    assert done.returncode == 0, done.stderr
    for case in text_worker.CASES:
        alone, together = (
            [record["loss"][0] for record in read_records(tmp_path / count / case)]
            for count in ("one", "two")
        )
        assert together == pytest.approx(alone, abs=1e-5)
