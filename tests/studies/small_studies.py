"""A small study that trains in seconds, and what its tests share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hierlearn.datasets import load_dataset
from hierlearn.studies.candidates import parse_candidates
from hierlearn.studies.compare import compare

SETTINGS = {"epochs": 3, "patience": 2, "batch_size": 64, "learning_rate": 0.01, "device": "cpu"}
NETWORK = {"name": "mlp", "options": {"width": 8}}
WORDS = ("bce", "leaf-ce", "hcl:floor=0.3")


def dataset():
    return load_dataset("synthetic", rows=240)


def run(folder, words=WORDS, *, data=None, seeds=2, **options):
    return compare(
        dataset() if data is None else data,
        parse_candidates(words),
        folder,
        seeds=seeds,
        settings={**SETTINGS, **options.pop("settings", {})},
        network=NETWORK,
        **options,
    )


def with_other_test_rows(data):
    """Return the dataset with the inputs of its test rows drawn anew."""
    inputs = data.inputs.copy()
    inputs[data.splits["test"]] = np.random.default_rng(7).normal(
        size=inputs[data.splits["test"]].shape
    )
    return replace(data, inputs=inputs)
