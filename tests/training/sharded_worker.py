"""Trainings whose weights are shared out among processes. A script for torchrun.

torchrun --nproc-per-node 2 sharded_worker.py FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from hierlearn import Dataset, Hierarchy, Plan
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from training.datasets import plan, problem

LEAVES = ["fruit/apple", "fruit/pear", "vehicle/car", "vehicle/bus"]
STOP = 13  # steps after which some trainings end; the last checkpoint is of step 12


def titles():
    """Texts of four classes, some of them for validation."""
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 4, 40)
    texts = [f"{draw.choice(['red', 'small', 'a'])} {LEAVES[k].split('/')[1]}" for k in kinds]
    splits = {"train": np.arange(30), "valid": np.arange(30, 40)}
    return Dataset(texts, [[LEAVES[k]] for k in kinds], Hierarchy.from_paths(LEAVES), splits)


def cases(folder):
    """Return dataset and plan of every case; the first needs the backbone in the folder."""
    settings = {"epochs": 3, "batch_size": 7, "learning_rate": 1e-3, "device": "cpu"}
    early = {**settings, "epochs": 6, "patience": 1, "metric": "hit@1", "learning_rate": 0.02}
    bert = {"network": f"hf:{folder / 'bert'}", "network_options": {"tuning": "full"}}
    return {
        "a backbone": (titles, Plan(loss="leaf-ce", settings=settings, **bert)),
        "in parts": (titles, Plan(loss="leaf-ce", settings={**settings, "accumulate": 2}, **bert)),
        "hidden layers, clipped": (problem, plan("hcl", batch_size=7, max_grad_norm=0.05)),
        "stopping early": (titles, Plan(loss="bce", calibration=False, settings=early, **bert)),
        "stopped by one, resumed by two": (problem, plan("bce", batch_size=7, epochs=4)),
        "stopped by two, resumed by one": (problem, plan("bce", batch_size=7, epochs=4)),
    }


class StopError(Exception):
    """The end of a training that is resumed elsewhere."""


def stop(step, steps):
    del steps
    if step == STOP:
        raise StopError


def run(case, folder, out, parallel="fsdp", *, stops=False, resume=False):
    """Train a case into a folder."""
    make, chosen = cases(folder)[case]
    chosen = replace(chosen, settings={**chosen.settings, "parallel": parallel})
    reporting = Reporting(bar=False, on_step=stop if stops else None)
    try:
        return train(make(), chosen, out=out / case, reporting=reporting, resume=resume)
    except StopError:
        return None


def main():
    """Run all cases."""
    folder = Path(sys.argv[1])
    for case in cases(folder):
        run(
            case,
            folder,
            folder / "two",
            stops=case.startswith("stopped by two"),
            resume=case.startswith("stopped by one"),
        )


if __name__ == "__main__":
    main()
