"""HXELoss against tests/reference/hxe.py."""

import math

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.losses import HXELoss
from losses.oracle_checks import CLOSE, assert_needs_tree, assert_row_losses
from losses.random_batches import RAGGED, random_batch, random_terminals
from reference.hxe import hxe, step_weights


@pytest.mark.parametrize("weighting", ["depth", "height"])
@pytest.mark.parametrize("seed", range(40))
def test_the_reference(seed, weighting):
    batch = random_batch(seed, masked=False)
    space, terminals = random_terminals(batch, seed)
    expected = hxe(*batch.lists, batch.parents, 0.3, terminals, weighting)
    assert_row_losses(HXELoss(space, alpha=0.3, weighting=weighting), batch, expected)


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_at_alpha_0(seed):
    batch = random_batch(seed, masked=False)
    expected = hxe(*batch.lists, batch.parents, 0.0)
    assert_row_losses(HXELoss(batch.hierarchy, alpha=0.0), batch, expected)


@pytest.mark.parametrize("seed", range(40))
def test_the_authors_script_is_a_constant_factor_away(seed):
    """It divides the weights by their sum over all nodes, the root's included."""
    batch = random_batch(seed, masked=False)
    weights = HXELoss(batch.hierarchy, alpha=0.5).step_weights
    theirs = torch.tensor(step_weights(batch.parents, 0.5, normalize=True), dtype=torch.float64)
    CLOSE.assert_close(weights / (1 + weights.sum()), theirs)


def test_a_step_weighs_by_the_distance_from_the_root():
    weights = HXELoss(Hierarchy.from_paths(["a/x", "a/y", "b/z", "c"]), alpha=1).step_weights
    top, below = math.exp(-1), math.exp(-2)
    CLOSE.assert_close(weights, torch.tensor([top] * 3 + [below] * 3, dtype=torch.float64))


def test_a_larger_alpha_cares_more_for_coarse_classes():
    """Of two mistakes, the one in the wrong top class becomes the worse one, as alpha grows."""
    targets = RAGGED.encode(["a/b/c"]).expand(2, -1)
    near, far = RAGGED.index("a/b/d"), RAGGED.index("f/g")
    logits = torch.zeros(2, len(RAGGED))
    logits[0, near] = logits[1, far] = 4.0
    ratios = []
    for alpha in (0.0, 0.5, 1.0):
        by_row = HXELoss(RAGGED, alpha=alpha, reduction="none")(logits, targets)
        ratios.append(float(by_row[1] / by_row[0]))
    assert ratios[0] == pytest.approx(1.0)
    assert ratios == sorted(ratios)
    assert ratios[2] > 2


def test_an_unknown_weighting_is_refused():
    with pytest.raises(HierlearnError, match="unknown weighting 'depths'; did you mean 'depth'"):
        HXELoss(RAGGED, weighting="depths")


def test_a_dag_is_refused():
    assert_needs_tree(HXELoss)
