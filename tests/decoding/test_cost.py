"""The expected cost: limits in which it is another decoder, and what it refuses."""

import re

import pytest
import torch

from decoding.probability_cases import random_case
from hierlearn import Hierarchy, LabelSpace
from hierlearn.decoding import Argmax, Cost, Leaf
from hierlearn.errors import HierlearnError
from hierlearn.links import SoftmaxLink

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


@pytest.mark.parametrize("seed", range(20))
def test_a_cost_of_one_a_miss_is_the_most_probable_end(seed):
    case = random_case(seed, dag=seed % 2 == 1)
    h = case.hierarchy
    logits = torch.randn(20, len(h), generator=torch.Generator().manual_seed(seed))
    p = SoftmaxLink(h).probabilities(logits)
    miss = 1 - torch.eye(len(h))
    assert torch.equal(Cost(h, miss, "leaves")(p), Leaf(h)(p))


def test_on_a_flat_tree_every_cost_is_argmax():
    h = Hierarchy.from_parents([-1] * 6)
    p = torch.rand(50, 6, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    for cost in ("lca-height", "path"):
        assert torch.equal(Cost(h, cost)(p), Argmax(h)(p))


@pytest.mark.parametrize("cost", ["lca-height", "path"])
def test_the_sums_along_the_path_are_the_table(cost):
    """Row c of the table is the cost of answering c, so the formulas equal a matrix product."""
    pairs = torch.cartesian_prod(torch.arange(8), torch.arange(8)).numpy().T
    lca = TREE.lcas(*pairs)
    if cost == "lca-height":
        table = torch.tensor(TREE.lca_heights(*pairs)).reshape(8, 8)
    else:
        level = [*TREE.levels.tolist(), 0]
        edges = [level[a] + level[b] - 2 * level[c] for a, b, c in zip(*pairs, lca, strict=True)]
        table = torch.tensor(edges).reshape(8, 8)
    logits = torch.randn(30, 8, generator=torch.Generator().manual_seed(0)).double()
    p = SoftmaxLink(LabelSpace(TREE, range(8))).probabilities(logits)
    found, expected = Cost(TREE, cost).expected(p), Cost(TREE, table).expected(p)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_coin_flip_between_two_siblings():
    """By edges b lies nearest to both; by height a leaf never costs more than its parent."""
    p = torch.zeros(1, 8)
    for name, value in (("a", 1.0), ("a/b", 0.9), ("a/b/c", 0.45), ("a/b/d", 0.45), ("a/e", 0.1)):
        p[0, TREE.index(name)] = value
    assert Cost(TREE, "path")(p).tolist() == [TREE.index("a/b")]
    assert Cost(TREE, "lca-height")(p).tolist() == [TREE.index("a/b/c")]
    assert Cost(TREE, "path", "leaves")(p).tolist() == [TREE.index("a/b/c")]


def test_arguments_that_do_not_fit():
    for options, message in (
        ({"cost": "pathh"}, "unknown cost 'pathh'; did you mean 'path'? known: lca-height, path"),
        ({"candidates": "leafs"}, "unknown candidates 'leafs'; did you mean 'leaves'? known: all,"),
        ({"cost": torch.ones(8, 7)}, "cost (8, 7) must be (8, 8)"),
        ({"cost": torch.ones(8)}, "cost (8,) must be (8, 8)"),
        (
            {"cost": torch.ones(7, 8), "candidates": "leaves"},
            "cost (7, 8) must be (8, 8) or (5, 8)",
        ),
        ({"cost": torch.ones(8, 8).log() / 0}, "cost[0, 0] is nan; costs must be finite"),
    ):
        with pytest.raises(HierlearnError, match=re.escape(message)):
            Cost(TREE, **options)
    with pytest.raises(HierlearnError, match="a label space is made of a Hierarchy, not list"):
        Cost([8], candidates="terminal")


def test_a_dag_needs_a_tensor():
    dag = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    assert not Cost(dag, torch.ones(4, 4)).needs_tree
    with pytest.raises(HierlearnError, match=r"Cost needs a tree, .* use a cost tensor, or argmax"):
        Cost(dag)


def test_mass_at_the_root():
    """It costs the root's height or the level; a tensor leaves it out."""
    p = torch.zeros(1, 8)
    assert Cost(TREE).expected(p).tolist() == [[3.0] * 8]
    assert Cost(TREE, "path").expected(p).tolist() == [TREE.levels.tolist()]
    assert Cost(TREE, torch.ones(8, 8)).expected(p).tolist() == [[0.0] * 8]
