"""Trainings of a text encoder that several processes share. A script for torchrun.

    torchrun --nproc-per-node 2 text_worker.py FOLDER

FOLDER/source is the encoder; each case is trained into a folder of its own beside it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from backbones.text_models import dataset
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan

# 40 rows in batches of 13: the last has one row, and the second process none.
CASES = {f"{tuning} in {parts}": (tuning, parts) for tuning in ("full", "lora") for parts in (1, 3)}


def run(source: Path, out: Path) -> None:
    """Train all cases."""
    for name, (tuning, parts) in CASES.items():
        settings = {"device": "cpu", "epochs": 2, "batch_size": 13, "accumulate": parts}
        plan = Plan(
            network=f"hf:{source}",
            network_options={"tuning": tuning},
            loss="leaf-ce",
            settings=settings,
        )
        train(dataset(50, 10), plan, out=out / name, reporting=Reporting(bar=False))


if __name__ == "__main__":
    run(Path(sys.argv[1]) / "source", Path(sys.argv[1]) / "two")
