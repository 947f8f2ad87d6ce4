"""Tiny problems for the training tests: rows, plans, and trainings in this process."""

from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hierlearn import Dataset, Hierarchy
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.networks.ensemble import member_state, members_of
from hierlearn.training import Plan
from hierlearn.training.prepare import PrepareOptions, prepare
from hierlearn.training.solvers.gradient import Trainer

CPU = torch.device("cpu")
TREE = Hierarchy.from_paths(["a/b/d", "a/b/e", "a/c", "f/g", "f/h"])  # 8 classes in 3 levels


def problem(rows=60, features=5, seed=0, **options):
    """Return rows around 12 classes in 2 levels, with splits."""
    options = {"depth": 2, "fan_out": 3, **options}
    return make_synthetic(rows=rows, features=features, seed=seed, **options)


def partial_problem(rows=60, seed=0):
    """Return rows of which some end at an inner class, some have two labels and some none."""
    rng = np.random.default_rng(seed)
    names = TREE.names
    labels = [
        [names[n] for n in rng.choice(8, rng.integers(0, 3), replace=False)] for _ in range(rows)
    ]
    inputs = rng.standard_normal((rows, 4)).astype(np.float32)
    splits = {"train": np.arange(rows - 12), "valid": np.arange(rows - 12, rows)}
    return Dataset(inputs, labels, TREE, splits, "partial", tuple("wxyz"))


def texts(rows=24):
    """Return short texts whose words tell their class."""
    words = {"a/b/d": "red fox", "a/b/e": "red bird", "a/c": "red fish", "f/g": "oak", "f/h": "elm"}
    paths = [list(words)[number % 5] for number in range(rows)]
    lines = [f"{words[path]} number{number % 3} seen" for number, path in enumerate(paths)]
    return Dataset(lines, [[path] for path in paths], TREE, name="texts")


def plan(
    loss="bce",
    *,
    dropout=0.0,
    network=None,
    unlabeled_descendants="negative",
    options=None,
    **settings,
):
    """Return a plan for a network of 8 units on the CPU, without dropout unless asked for."""
    plain = network in ("linear", "embeddings", "trees", "estimator")
    network_options = {} if plain else {"width": 8, "dropout": dropout}
    return Plan(
        loss=loss,
        loss_options=options or {},
        network=network,
        network_options=network_options,
        unlabeled_descendants=unlabeled_descendants,
        settings={"epochs": 3, "batch_size": 8, "device": "cpu", **settings},
    )


def neighbor_plan(loss="bce", *, joint=None, answer=None, head=None, **options):
    """Return a plan for a network that answers by neighbors, with few candidates."""
    return replace(
        plan(loss, **options),
        head="neighbors",
        head_options={"size": 6, "candidates": 20, "scale": 4.0, **(head or {})},
        joint=joint or {},
        answer=answer,
    )


def trainer_of(dataset, chosen, weights=None, network=None, processes=None, **callbacks):
    """Return a trainer that is ready to begin; callbacks are on_epoch, on_step and save."""
    ready = prepare(dataset, chosen, CPU, PrepareOptions(weights=weights, network=network))
    trainer = Trainer(
        ready.network,
        ready.loss,
        ready.rows,
        ready.decision.settings,
        valid=ready.valid,
        read=ready.read,
        processes=processes,
    )
    for name, callback in callbacks.items():
        assert name in ("on_epoch", "on_step", "save")
        setattr(trainer, name, callback)
    return trainer


def state(trainer_or_network, member=None):
    """Return a copy of the weights, or of those of one member named as in a network alone."""
    network = getattr(trainer_or_network, "loss", None) and trainer_or_network.network
    network = network or trainer_or_network
    found = network.state_dict() if member is None else member_state(network, member)
    return {name: value.clone() for name, value in found.items()}


def last_layer(network):
    """Return the linear layer of the head."""
    inner = network if members_of(network) is None else network.network
    return inner.heads["main"].linear


def first_layer(network):
    """Return the first layer of the encoder."""
    inner = network if members_of(network) is None else network.network
    return inner.encoder.hidden[0]


def assert_identical(first, second):
    """Compare weights bit by bit."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def without_times(records):
    """Return records without what the clock says."""
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def read_records(folder):
    """Return the log of a training without what the clock says."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return without_times([json.loads(line) for line in lines])


def without_splits(dataset):
    """Return the rows of a dataset as one."""
    return replace(dataset, splits={})


@contextmanager
def largest_file(size):
    """Let the system refuse to write files beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))  # Python ignores the signal
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def environment():
    """Return the environment for a script that imports these tests."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
