"""A small study that trains in seconds, and what its tests share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hierlearn.datasets import load_dataset
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.compare import run_study
from hierlearn.lab.protocol import Protocol

SETTINGS = {"epochs": 3, "patience": 2, "batch_size": 64, "learning_rate": 0.01, "device": "cpu"}
NETWORK = {"name": "mlp", "options": {"width": 8}}
WORDS = ("bce", "leaf-ce", "loss:hcl:floor=0.3")
OWN = ("force", "executor", "metadata", "on_step")


def dataset():
    return load_dataset("synthetic", rows=240)


def protocol(**changes):
    """Two seeds of a small network; ``settings`` adds to those of this module."""
    settings = {**SETTINGS, **changes.pop("settings", {})}
    return Protocol(**{"seeds": 2, "network": NETWORK, **changes}, settings=settings)


def run(folder, words=WORDS, *, data=None, **options):
    """Compare; options of ``compare`` itself are told from those of the protocol."""
    own = {name: options.pop(name) for name in OWN if name in options}
    data = dataset() if data is None else data
    return run_study(data, parse_candidates(words), folder, protocol(**options), **own)


def without_seconds(study):
    """Return the runs in order, without the time that they took."""
    runs = [
        {name: value for name, value in run.items() if not name.endswith("seconds")}
        for run in study.runs()
    ]
    return sorted(runs, key=lambda run: (run["candidate"], run["seed"]))


def with_other_test_rows(data):
    """Return the dataset with the inputs of its test rows drawn again."""
    inputs = data.inputs.copy()
    inputs[data.splits["test"]] = np.random.default_rng(7).normal(
        size=inputs[data.splits["test"]].shape
    )
    return replace(data, inputs=inputs)
