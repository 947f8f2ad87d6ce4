"""Toy data that a network learns in a second, and a classifier that trains fast."""

import numpy as np

from hierlearn import HierarchicalClassifier

FAST = {
    "epochs": 30,
    "learning_rate": 0.05,
    "batch_size": 32,
    "network_options": {"width": 16},
    "random_state": 0,
    "calibration": False,  # a test of its own asks for it
}
LEAVES = np.array(["animal/dog/pug", "animal/dog/bulldog", "animal/cat", "plant/oak", "plant/fern"])
WORDS = ["small flat face", "heavy wide jaw", "purring whiskers", "acorn bark", "green fronds"]


def classifier(**changes):
    return HierarchicalClassifier(**{**FAST, **changes})


def solved(**changes):
    """A linear classifier: all rows at once, to the optimum."""
    given = {"calibration": False, **changes}
    return HierarchicalClassifier(recipe="linear", random_state=0, **given)


def blobs(rows=150, seed=0, groups=5, noise=0.3):
    """(N, 4) rows around the corner of each group, and the group of each row."""
    draw = np.random.default_rng(seed)
    corners = np.random.default_rng(99).normal(size=(groups, 4)) * 3
    group = np.arange(rows) % groups
    return corners[group] + draw.normal(size=(rows, 4)) * noise, group


def texts(rows=100):
    group = np.arange(rows) % 5
    return [f"{WORDS[g]} number {row}" for row, g in enumerate(group)], LEAVES[group]
