"""Models that train in a second, and the rows that they are reported on."""

from dataclasses import replace

import numpy as np
import torch

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset
from hierlearn.decoding import make_decoder
from hierlearn.hierarchy import LabelSpace
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.pipeline import train
from hierlearn.reports import write_model_report
from hierlearn.training.settings import Plan

QUICK = {"epochs": 6, "device": "cpu", "learning_rate": 0.02}


def numbers():
    """Numbers under a ragged tree of three levels, with ids; few rows, so that many are wrong."""
    made = make_synthetic(rows=400, features=6, fan_out=3, ragged=0.2, spread=1.0)
    return replace(made, ids=[f"N{row:04d}" for row in range(len(made))])


def several():
    """Numbers with one or two labels, of a DAG; some rows have none."""
    dag = Hierarchy.from_parents(
        {"a": [], "b": [], "c": ["a"], "d": ["a", "b"], "e": ["b"], "f": ["d"]}
    )
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(200, 4)).astype(np.float32)
    labels = [
        [name for name, cell in zip("cfe", row, strict=False) if cell > 0.2] for row in inputs
    ]
    splits = {"train": range(120), "valid": range(120, 140), "test": range(140, 200)}
    return Dataset(inputs, labels, dag, splits=splits, name="sets")


def linear(dataset):
    plan = Plan(loss="bce", network="mlp", network_options={"width": 8}, settings=QUICK)
    return train(dataset, plan)


def memory(dataset):
    return train(dataset, Plan(recipe="quick", settings={"device": "cpu"}))


class Fixed:
    """What a page needs of a pipeline, with probabilities that are drawn once."""

    def __init__(self, hierarchy, rows):
        draw = np.random.default_rng(1)
        self.label_space = LabelSpace(hierarchy)
        self.hierarchy = hierarchy
        leaf = draw.choice(hierarchy.leaves, rows)
        targets = torch.zeros(rows, len(hierarchy))
        targets[torch.arange(rows), torch.from_numpy(leaf)] = 1
        self.p = hierarchy.sum_up(targets)
        self.network, self.network_spec, self.answer = torch.nn.Identity(), None, "average"
        self.config, self.decoder = {"name": "drawn"}, "leaf"

    def probabilities(self, inputs):
        return self.p

    def make_decoder(self):
        return make_decoder(self.label_space, "leaf")


def page_of_random_decisions(hierarchy, rows, out):
    """Write the page of a model that guesses, for a hierarchy of any size."""
    draw = np.random.default_rng(2)
    labels = [[hierarchy.names[leaf]] for leaf in draw.choice(hierarchy.leaves, rows)]
    return write_model_report(
        Fixed(hierarchy, rows), Dataset(np.zeros((rows, 1), np.float32), labels, hierarchy), out
    )
