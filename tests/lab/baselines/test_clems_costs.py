"""Costs of label sets against loops, and against the metrics of the same names."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.baselines.clems import COSTS, find_cost
from hierlearn.metrics import hier_dist, hierarchical_f1
from reference import clems as reference
from tolerances import FLOAT32

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "i"])
DAG = Hierarchy.from_edges(
    [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d"), ("e", "f"), ("d", "g")]
)
LOOPS = {
    "hier-dist": reference.hier_dist,
    "hamming": reference.hamming,
    "hier-f1": reference.hier_f1,
}
each_hierarchy = pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])


def random_sets(hierarchy, count, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 4, count)
    return [[hierarchy.names[c] for c in rng.integers(0, len(hierarchy), n)] for n in sizes]


def numbers(labels):
    offsets, found = labels.terminal
    return [found[a:b].tolist() for a, b in pairwise(offsets)]


@each_hierarchy
@pytest.mark.parametrize("name", COSTS)
def test_costs_by_loops(name, hierarchy):
    truth, answers = (Labels(random_sets(hierarchy, n, n), hierarchy) for n in (9, 7))
    parents = [[int(p) for p in hierarchy.parents(c)] for c in range(len(hierarchy))]
    found = COSTS[name](truth, answers)
    assert found.shape == (9, 7)
    for i, one in enumerate(numbers(truth)):
        for j, other in enumerate(numbers(answers)):
            assert found[i, j] == FLOAT32.approx(LOOPS[name](one, other, parents)), (one, other)


@each_hierarchy
@pytest.mark.parametrize("name", COSTS)
def test_costs_are_symmetric_and_the_truth_costs_nothing(name, hierarchy):
    sets = Labels(random_sets(hierarchy, 12, 0), hierarchy)
    found = COSTS[name](sets, sets)
    assert np.array_equal(found, found.T)
    assert (np.diag(found) == 0).all()
    assert (found >= 0).all()


@each_hierarchy
def test_of_single_classes_it_is_the_metric_hier_dist(hierarchy):
    sets = Labels([[name] for name in hierarchy.names], hierarchy)
    found = COSTS["hier-dist"](sets, sets)
    targets = sets.targets()
    for answer in range(len(hierarchy)):
        scores = torch.zeros(len(hierarchy), len(hierarchy))
        scores[:, answer] = 1
        costs = hier_dist(
            scores, targets, hierarchy, correct_cost="zero", reference="terminal", reduction="none"
        )
        assert found[:, answer].tolist() == costs.tolist()


def test_hier_f1_is_that_of_the_metrics():
    sets = Labels([one or ["i"] for one in random_sets(TREE, 8, 1)], TREE)
    found = COSTS["hier-f1"](sets, sets)
    targets = sets.targets()
    for truth in range(8):
        for answer in range(8):
            f1 = hierarchical_f1(targets[[answer]], targets[[truth]], TREE)
            assert found[truth, answer] == FLOAT32.approx(1 - f1.item())


def test_an_unknown_cost():
    with pytest.raises(HierlearnError, match="unknown cost 'hier_dist'; did you mean 'hier-dist'"):
        find_cost("hier_dist")
