"""class_weight and pos_weight: those of torch on one level; who has none refuses them."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F

from hierlearn import Hierarchy, load_dataset
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.hmcn import HMCNLoss
from hierlearn.losses import LOSSES, BCELoss, FocalLoss, MixedLoss
from hierlearn.pipeline import load, train
from hierlearn.registry import parse_pairs
from hierlearn.training import Plan
from losses.random_batches import FLAT, RAGGED, flat_batch

WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.25, 1.5], dtype=torch.float64)
OF_TREE = torch.linspace(0.5, 3.0, len(RAGGED), dtype=torch.float64)
WEIGHED = [name for name, entry in LOSSES.items() if "class_weight" in entry.option_names()]
OF_ROWS = {"hxe", "soft-labels", "leaf-ce", "cond-softmax", "hinge", "lca-cost", "devise", "tsle"}
POSITIVE = [name for name, entry in LOSSES.items() if "pos_weight" in entry.option_names()]
SELECTS_ROWS = {"sample-curriculum"}  # others, with other weights
REDUCTIONS = ("mean", "sum", "none")


def batch(rows=9, seed=0, hierarchy=RAGGED, labels=1):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, len(hierarchy), dtype=torch.float64, generator=generator)
    numbers = torch.randint(0, len(hierarchy), (rows, labels), generator=generator).tolist()
    return logits, hierarchy.encode(numbers, numbers=True), numbers


# ---------------------------------------------------------------------- torch's own, on one level


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["leaf-ce", "cond-softmax", "hxe", "soft-labels"])
def test_softmax_losses_are_cross_entropy_of_torch(name, reduction):
    logits, targets, numbers = flat_batch()
    own = {"hxe": {"alpha": 0.0}, "soft-labels": {"beta": 800.0}}.get(name, {})
    loss = LOSSES[name](FLAT, class_weight=WEIGHTS, reduction=reduction, **own)
    expected = F.cross_entropy(logits, numbers, WEIGHTS.to(logits.dtype), reduction=reduction)
    torch.testing.assert_close(loss(logits, targets), expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_bce_is_that_of_torch(reduction):
    logits, targets, _ = flat_batch()
    weights, positive = WEIGHTS.to(logits.dtype), WEIGHTS.flip(0).to(logits.dtype)
    loss = BCELoss(FLAT, class_weight=weights, pos_weight=positive, reduction=reduction)
    for labels in (targets.to(logits.dtype), 0.9 * targets.to(logits.dtype) + 0.05):
        expected = F.binary_cross_entropy_with_logits(
            logits, labels, weights, reduction=reduction, pos_weight=positive
        )
        torch.testing.assert_close(loss(logits, labels), expected)


def test_focal_without_focus_is_bce():
    logits, targets, _ = flat_batch()
    options = {"class_weight": WEIGHTS, "pos_weight": WEIGHTS.flip(0)}
    found = FocalLoss(FLAT, alpha=None, gamma=0.0, **options)(logits, targets)
    torch.testing.assert_close(found, BCELoss(FLAT, **options)(logits, targets))


# ---------------------------------------------------------------------- every loss that has them


@pytest.mark.parametrize("name", WEIGHED)
def test_weights_multiply_what_the_loss_is_without(name):
    for labels in (1, 2):
        logits, targets, numbers = batch(labels=labels)
        without = LOSSES[name](RAGGED, reduction="none")(logits, targets)
        none, total, mean = (
            LOSSES[name](RAGGED, class_weight=OF_TREE, reduction=r)(logits, targets)
            for r in ("none", "sum", "mean")
        )
        if name in OF_ROWS:
            specific = [
                [c for c in set(row) if not {*RAGGED.descendants(c)} & {*row}] for row in numbers
            ]
            weights = torch.stack([OF_TREE[row].mean() for row in specific])
            count = weights.sum()
        else:
            weights, count = OF_TREE, targets.numel()
        torch.testing.assert_close(none, without * weights)
        torch.testing.assert_close(total, none.sum())
        torch.testing.assert_close(mean, none.sum() / count)


@pytest.mark.parametrize("name", [name for name in POSITIVE if name not in SELECTS_ROWS])
def test_positives_weigh_more(name):
    logits, targets, _ = batch()
    without = LOSSES[name](RAGGED, reduction="none")(logits, targets)
    found = LOSSES[name](RAGGED, pos_weight=OF_TREE, reduction="none")(logits, targets)
    penalty = torch.zeros_like(without)
    if name == "hmcn":  # which is not of the targets
        penalty = without - BCELoss(RAGGED, reduction="none")(logits, targets)
    weights = torch.where(targets, OF_TREE, 1.0)
    torch.testing.assert_close(found, (without - penalty) * weights + penalty)


@pytest.mark.parametrize("name", WEIGHED)
def test_weights_of_1_change_nothing_and_0_leaves_a_class_out(name):
    logits, targets, _ = batch()
    plain = LOSSES[name](RAGGED)(logits, targets)
    ones = LOSSES[name](RAGGED, class_weight={})(logits, targets)
    torch.testing.assert_close(ones, plain)
    zeros = LOSSES[name](RAGGED, class_weight=[0.0] * len(RAGGED))(logits, targets)
    assert float(zeros) == 0
    for twin in (copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))):
        loss = LOSSES[name](RAGGED, class_weight=OF_TREE)
        torch.testing.assert_close(twin(loss)(logits, targets), loss(logits, targets))
        assert "class_weight" not in loss.state_dict()


@pytest.mark.parametrize("name", WEIGHED)
def test_members_masks_and_weights_of_rows(name):
    logits, targets, _ = batch(rows=6)
    mask = torch.rand(targets.shape, generator=torch.Generator().manual_seed(3)) < 0.8
    weight = torch.linspace(0.5, 2.0, 6, dtype=torch.float64)
    loss = LOSSES[name](RAGGED, class_weight=OF_TREE)
    alone = loss(logits, targets, mask, weight)
    many = loss(*(one.expand(2, *one.shape) for one in (logits, targets, mask, weight)))
    torch.testing.assert_close(many, alone.expand(2))
    parts = [
        loss(logits[rows], targets[rows], mask[rows], weight[rows])
        * loss.count(targets[rows], mask[rows], weight[rows])
        for rows in (slice(2), slice(2, 6))
    ]
    if name not in ("tsle", "sample-curriculum"):  # which compare the rows of a batch
        torch.testing.assert_close(sum(parts) / loss.count(targets, mask, weight), alone)


@pytest.mark.parametrize("name", WEIGHED)
def test_large_batches_on_the_cpu_bypass_what_has_no_weights(name):
    h = Hierarchy.from_parents([-1, *[0] * 15, *(1 + k // 8 for k in range(120))])
    weights = torch.linspace(0.5, 2, len(h), dtype=torch.float64)
    logits, targets, _ = batch(rows=60, hierarchy=h)
    for options in ({"class_weight": weights}, {"pos_weight": weights}):
        if next(iter(options)) in LOSSES[name].option_names():
            loss = LOSSES[name](h, **options)
            torch.testing.assert_close(
                loss(logits.float(), targets).double(), loss(logits, targets), rtol=1e-5, atol=1e-6
            )


# ---------------------------------------------------------------------- how they are given


def test_names_stand_for_classes_and_the_others_weigh_1():
    logits, targets, _ = batch()
    by_name = BCELoss(RAGGED, class_weight={"a/b": 3.0, "h": 0.5})
    numbers = torch.ones(len(RAGGED), dtype=torch.float64)
    numbers[RAGGED.index("a/b")], numbers[RAGGED.index("h")] = 3.0, 0.5
    by_number = BCELoss(RAGGED, class_weight=numbers.tolist())
    torch.testing.assert_close(by_name(logits, targets), by_number(logits, targets))


@pytest.mark.parametrize("option", ["class_weight", "pos_weight"])
def test_weights_that_do_not_fit(option):
    with pytest.raises(HierlearnError, match=rf"{option} \(2,\) must have one number for each of"):
        BCELoss(RAGGED, **{option: [1.0, 2.0]})
    with pytest.raises(HierlearnError, match=f"{option} of 'a' must be a number of at least 0"):
        BCELoss(RAGGED, **{option: {"a": -1}})
    with pytest.raises(HierlearnError, match="unknown label 'b/x'"):
        BCELoss(RAGGED, **{option: {"b/x": 2}})


def test_losses_without_weights_say_so():
    assert {*LOSSES} - {*WEIGHED} == {"hcl", "hcl-hier", "hcl-cl", "hcl-paper", "clems"}
    for name in {*LOSSES} - {*WEIGHED}:
        with pytest.raises(HierlearnError, match="takes no class_weight"):
            LOSSES[name](RAGGED, class_weight=OF_TREE)
    with pytest.raises(
        HierlearnError, match=r"HCLLoss takes no class_weight.* weigh rows by weight="
    ):
        MixedLoss(RAGGED, parts={"bce": 1.0, "hcl": 1.0}, class_weight=OF_TREE)
    assert "pos_weight" in HMCNLoss.option_names()


def test_parts_of_a_mixture_of_weighted_rows_are_rows():
    logits, targets, _ = batch()
    with pytest.raises(HierlearnError, match="takes 0 or 1"):
        LOSSES["leaf-ce"](RAGGED, class_weight=OF_TREE)(logits, 0.5 * targets)


# ---------------------------------------------------------------------- through the front doors


def test_a_training_takes_them_as_options_of_the_loss(tmp_path):
    data = load_dataset("synthetic", rows=120, depth=2)
    rare = data.hierarchy.names[-1]
    options = parse_pairs([f'class_weight={{"{rare}": 25}}'], "--loss-option")  # as it is typed
    settings = {"epochs": 3, "device": "cpu"}
    share = {}
    for name, given in (("plain", {}), ("weighted", options)):
        out = tmp_path / name
        train(data, Plan(loss="bce", loss_options=given, settings=settings), out=out)
        pipeline = load(out)
        assert pipeline.config["recipe"]["loss_options"] == given
        share[name] = pipeline.probabilities(data.inputs)[:, data.hierarchy.index(rare)].mean()
    assert abs(share["weighted"] - share["plain"]) > 1e-4
