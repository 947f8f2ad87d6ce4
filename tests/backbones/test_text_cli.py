"""``hierlearn train --network hf:FOLDER`` in a process of its own, on real files."""

from __future__ import annotations

import csv
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import warm
from backbones.text_models import dataset

if TYPE_CHECKING:
    from pathlib import Path


def hierlearn(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*warm.python(), "-m", "hierlearn", *map(str, words)],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def write(path: Path) -> None:
    data = dataset(40, 0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["title", "label"])
        texts = ["", "red apple " * 10_000, "\U0001f34e", *data.inputs[3:]]
        rows.writerows(zip(texts, [one for (one,) in data.labels], strict=True))


@pytest.mark.slow
def test_a_column_of_texts_through_an_adapted_encoder(bert: Path, tmp_path: Path) -> None:
    write(tmp_path / "rows.csv")
    words = ["train", "rows.csv", "--text", "title", "--label", "label", "--out", "model"]
    own = ["--network-option", "tuning=lora", "--network-option", "lora_rank=2"]
    cost = ["--accumulate", "4", "--epochs", "1", "--device", "cpu"]
    done = hierlearn(tmp_path, *words, "--network", f"hf:{bert}", *own, *cost)
    assert done.returncode == 0, done.stderr
    assert f"encoder: hf:{bert}; " in done.stdout + done.stderr
    assert "weights are trained" in done.stdout + done.stderr
    assert "Loading weights" not in done.stderr
    done = hierlearn(tmp_path, "predict", "model", "rows.csv", "--out", "answers.csv")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 41


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv")
    words = ["train", "rows.csv", "--text", "title", "--label", "label", "--out", "model"]
    done = hierlearn(tmp_path, *words, "--network", "hf:nobody/nothing")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("hierlearn: nobody/nothing is no folder")
    assert "Traceback" not in done.stderr
