"""Every loss equals the naive loops of tests/reference, in value, on random trees and DAGs."""

import math
import random

import pytest
import torch

from hierlearn import LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.losses import (
    BCELoss,
    CondSoftmaxLoss,
    FocalLoss,
    HCLLoss,
    HXELoss,
    LCACostLoss,
    LeafCELoss,
    LevelWeightedLoss,
    MCLoss,
    SampleCurriculumLoss,
    SoftLabelsLoss,
)
from hierlearn.losses.hcl import loss as loss_module
from hierlearn.losses.hcl.backends import PLAIN, SUMMED, choose_backend
from losses.random_batches import random_batch
from reference.bases import elementwise
from reference.bce import bce
from reference.cond_softmax import cond_softmax
from reference.focal import focal
from reference.hcl import hcl
from reference.hxe import hxe
from reference.lca_cost import lca_cost
from reference.leaf_ce import leaf_ce
from reference.level_weighted import level_weighted
from reference.links import log_probabilities
from reference.mcloss import mcloss
from reference.sample_curriculum import sample_curriculum
from reference.soft_labels import soft_labels

# Double precision; the sums of a batch have fewer than a hundred terms.
close = {"rtol": 1e-10, "atol": 1e-10}


def assert_same(found, expected):
    expected = torch.tensor(expected, dtype=torch.float64).reshape(found.shape)
    torch.testing.assert_close(found, expected, **close)


def some_terminals(batch, seed):
    """Inner classes to declare terminal, and the full list that the oracle wants."""
    rng = random.Random(seed)
    inner = [c for c in range(len(batch.hierarchy)) if rng.random() < 0.4]
    return inner, sorted({*inner, *batch.hierarchy.leaves.tolist()})


@pytest.mark.parametrize("seed", range(150))
def test_hcl_in_all_its_variants(seed):
    rng = random.Random(seed)
    link = rng.choice(["sigmoid", "sigmoid", "softmax", "conditional", "max"])
    # The softmax link says that every row has a class: a row without one costs infinitely much,
    # and so does a row that ends at an inner class unless that is terminal.
    labels = (1, 2) if link == "softmax" else (0, 2)
    batch = random_batch(seed, dag=seed % 2 == 1, labels=labels)
    everyone = range(len(batch.hierarchy))
    options = {
        "link": link,
        "scope": rng.choice(["levels", "ancestors", None]),
        "curriculum": rng.choice(["batch", "batch", None]),
        "normalize": rng.choice(["sum", "mean"]),
        "floor": rng.choice([0.0, 0.1, 0.5]),
        "threshold": rng.choice([None, None, 3.5]),
        "reduction": rng.choice(["mean", "sum", "none"]),
    }
    base = rng.choice(["bce", "bce2", "focal"])
    loss = HCLLoss(LabelSpace(batch.hierarchy, everyone), base=base, **options)
    expected = hcl(
        *batch.lists,
        batch.parents,
        base=base.removesuffix("2"),
        log_base=2 if base == "bce2" else math.e,
        mask=batch.mask_list,
        terminals=list(everyone),
        **options,
    )
    assert_same(loss(batch.logits, batch.targets, batch.mask), expected["loss"])
    if options["curriculum"] is None:
        assert loss.last == {}
        return
    assert loss.last["selected"].tolist() == expected["selected"]
    assert_same(loss.last["e_h"], expected["e_h"])
    assert_same(loss.last["l_hc"], expected["l_hc"])
    assert_same(loss.last["selected_fraction"], sum(expected["selected"]) / len(batch.hierarchy))


@pytest.mark.parametrize("seed", range(40))
def test_the_fast_pass_is_the_composition(seed, monkeypatch):
    batch = random_batch(seed, dag=seed % 2 == 1)
    loss = HCLLoss(batch.hierarchy, scope=[None, "levels"][seed % 3 > 0], floor=0.2)
    assert choose_backend(loss, loss.read(batch.logits), None) is SUMMED
    gradients, values = [], []
    for backend in (SUMMED, PLAIN):
        monkeypatch.setattr(loss_module, "choose_backend", lambda *_, backend=backend: backend)
        logits = batch.logits.clone().requires_grad_()
        value = loss(logits, batch.targets, batch.mask)
        (1.7 * value).backward()
        gradients.append(logits.grad)
        values.append(value.detach())
    torch.testing.assert_close(*values, **close)
    torch.testing.assert_close(*gradients, **close)


@pytest.mark.parametrize("seed", range(30))
def test_cross_entropy_and_focal(seed):
    batch = random_batch(seed, dag=seed % 2 == 1)
    log_p, log_q = log_probabilities(batch.logits.tolist(), batch.parents, "sigmoid")
    targets = batch.targets.int().tolist()
    for loss, base in (
        (BCELoss(batch.hierarchy, reduction="none"), bce),
        (
            BCELoss(batch.hierarchy, log_base=2, reduction="none"),
            lambda p, q, y: bce(p, q, y, 2),
        ),
        (
            FocalLoss(batch.hierarchy, alpha=0.3, gamma=1.5, reduction="none"),
            lambda p, q, y: focal(p, q, y, 0.3, 1.5),
        ),
        (
            FocalLoss(batch.hierarchy, alpha=None, reduction="none"),
            lambda p, q, y: focal(p, q, y, None, 2.0),
        ),
    ):
        expected = torch.tensor(elementwise(base, log_p, log_q, targets), dtype=torch.float64)
        if batch.mask is not None:
            expected[~batch.mask] = 0
        found = loss(batch.logits, batch.targets, batch.mask)
        torch.testing.assert_close(found, expected, **close)
        loss.reduction = "mean"
        known = expected.numel() if batch.mask is None else max(int(batch.mask.sum()), 1)
        assert_same(loss(batch.logits, batch.targets, batch.mask), float(expected.sum()) / known)


@pytest.mark.parametrize("seed", range(40))
def test_row_losses_on_trees(seed):
    batch = random_batch(seed, masked=False)
    inner, terminals = some_terminals(batch, seed)
    h, lists, parents = batch.hierarchy, batch.lists, batch.parents
    space = LabelSpace(h, inner)
    pairs = [
        (HXELoss(space, alpha=0.3), hxe(*lists, parents, 0.3, terminals)),
        (HXELoss(h, alpha=0.0), hxe(*lists, parents, 0.0)),
        (
            SoftLabelsLoss(space, beta=5.0),
            soft_labels(*lists, parents, 5.0, terminals),
        ),
        (SoftLabelsLoss(h, beta=0.0), soft_labels(*lists, parents, 0.0)),
        (LCACostLoss(space), lca_cost(*lists, parents, terminals)),
        (LCACostLoss(h), lca_cost(*lists, parents)),
        (LeafCELoss(space), leaf_ce(*lists, parents, terminals)),
        (CondSoftmaxLoss(h), cond_softmax(*lists, parents)),
    ]
    for loss, expected in pairs:
        loss.reduction = "none"
        assert_same(loss(batch.logits, batch.targets), expected)
        loss.reduction = "mean"
        labeled = max(int(batch.targets.any(dim=1).sum()), 1)
        assert_same(loss(batch.logits, batch.targets), sum(expected) / labeled)


@pytest.mark.parametrize("seed", range(30))
def test_leaf_cross_entropy_mcloss_and_levels_on_dags(seed):
    batch = random_batch(seed, dag=True)
    inner, terminals = some_terminals(batch, seed)
    h, lists, parents = batch.hierarchy, batch.lists, batch.parents
    leaf = LeafCELoss(LabelSpace(h, inner), reduction="none")
    assert_same(leaf(batch.logits, batch.targets), leaf_ce(*lists, parents, terminals))
    found = MCLoss(h, reduction="none")(batch.logits, batch.targets, batch.mask)
    assert_same(found, mcloss(*lists, parents, batch.mask_list))
    weights = [1.0 / (level + 1) for level in range(h.depth)]
    found = LevelWeightedLoss(h, weights=weights, reduction="none")(
        batch.logits, batch.targets, batch.mask
    )
    assert_same(found, level_weighted(*lists, parents, weights, batch.mask_list))


@pytest.mark.parametrize("seed", range(40))
def test_sample_curriculum(seed):
    batch = random_batch(seed, rows=(1, 8))
    found = SampleCurriculumLoss(batch.hierarchy, reduction="sum")(
        batch.logits, batch.targets, batch.mask
    )
    assert_same(found, sample_curriculum(*batch.lists, mask=batch.mask_list)["loss"])


@pytest.mark.parametrize("loss", [HXELoss, SoftLabelsLoss, LCACostLoss, CondSoftmaxLoss])
def test_losses_that_need_a_tree_say_so(loss):
    from hierlearn import Hierarchy

    dag = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    with pytest.raises(HierlearnError, match=rf"{loss.__name__} needs a tree, but a class of this"):
        loss(dag)
