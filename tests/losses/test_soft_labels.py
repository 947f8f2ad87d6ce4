"""SoftLabelsLoss against tests/reference/soft_labels.py."""

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.losses import SoftLabelsLoss
from losses.oracle_checks import assert_needs_tree, assert_row_losses, assert_same
from losses.random_batches import RAGGED, leaf_batch, random_batch, random_terminals
from reference.soft_labels import soft_labels


@pytest.mark.parametrize("seed", range(40))
def test_the_reference(seed):
    batch = random_batch(seed, masked=False)
    space, terminals = random_terminals(batch, seed)
    expected = soft_labels(*batch.lists, batch.parents, 5.0, terminals)
    assert_row_losses(SoftLabelsLoss(space, beta=5.0), batch, expected)


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_at_beta_0(seed):
    batch = random_batch(seed, masked=False)
    expected = soft_labels(*batch.lists, batch.parents, 0.0)
    assert_row_losses(SoftLabelsLoss(batch.hierarchy, beta=0.0), batch, expected)


WORDNET = [
    "entity/animal/dog/pug",
    "entity/animal/dog/lab",
    "entity/animal/cat",
    "entity/plant/oak",
]
CHAIN = ["entity/thing/animal/dog", "entity/thing/animal/cat/manx", "entity/thing/plant"]


@pytest.mark.parametrize("paths", [WORDNET, CHAIN, ["a/b/c"], ["a/b", "a/c"]])
@pytest.mark.parametrize("inner", [False, True])
def test_below_one_top_class_distances_are_over_the_largest(paths, inner):
    h = Hierarchy.from_paths(paths)
    space = LabelSpace(h, [h.names[0]] if inner else [])
    parents = [list(h.parents(c)) for c in range(len(h))]
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(h), len(h), dtype=torch.float64, generator=generator)
    targets = h.encode(list(range(len(h))), numbers=True)
    terminals = space.terminals.tolist()
    expected = soft_labels(logits.tolist(), targets.int().tolist(), parents, 5.0, terminals)
    found = SoftLabelsLoss(space, beta=5.0, reduction="none")(logits, targets)
    assert_same(found, expected)


def test_beta_0_asks_for_the_uniform_distribution():
    logits, targets, _, leaves = leaf_batch()
    expected = -logits[:, leaves].log_softmax(dim=1).mean()
    torch.testing.assert_close(SoftLabelsLoss(RAGGED, beta=0.0)(logits, targets), expected)


def test_a_dag_is_refused():
    assert_needs_tree(SoftLabelsLoss)
