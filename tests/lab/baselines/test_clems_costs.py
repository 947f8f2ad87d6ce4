"""Costs of label sets against loops, and against the metrics of the same names."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.baselines.clems import set_costs
from hierlearn.metrics import hier_dist
from reference import clems as reference
from tolerances import FLOAT32

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "i"])
DAG = Hierarchy.from_edges(
    [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d"), ("e", "f"), ("d", "g")]
)
each_hierarchy = pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])


def random_sets(hierarchy, count, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 4, count)
    return [[hierarchy.names[c] for c in rng.integers(0, len(hierarchy), n)] for n in sizes]


def numbers(labels):
    offsets, found = labels.terminal
    return [found[a:b].tolist() for a, b in pairwise(offsets)]


@each_hierarchy
def test_costs_by_loops(hierarchy):
    truth, answers = (Labels(random_sets(hierarchy, n, n), hierarchy) for n in (9, 7))
    parents = [[int(p) for p in hierarchy.parents(c)] for c in range(len(hierarchy))]
    found = set_costs(truth, answers)
    assert found.shape == (9, 7)
    for i, one in enumerate(numbers(truth)):
        for j, other in enumerate(numbers(answers)):
            assert found[i, j] == FLOAT32.approx(reference.hier_dist(one, other, parents)), (
                one,
                other,
            )


@each_hierarchy
def test_costs_are_symmetric_and_the_truth_costs_nothing(hierarchy):
    sets = Labels(random_sets(hierarchy, 12, 0), hierarchy)
    found = set_costs(sets, sets)
    assert np.array_equal(found, found.T)
    assert (np.diag(found) == 0).all()
    assert (found >= 0).all()


@each_hierarchy
def test_of_single_classes_it_is_the_metric_hier_dist(hierarchy):
    sets = Labels([[name] for name in hierarchy.names], hierarchy)
    found = set_costs(sets, sets)
    targets = sets.targets()
    for answer in range(len(hierarchy)):
        scores = torch.zeros(len(hierarchy), len(hierarchy))
        scores[:, answer] = 1
        costs = hier_dist(
            scores, targets, hierarchy, correct_cost="zero", reference="terminal", reduction="none"
        )
        assert found[:, answer].tolist() == costs.tolist()
