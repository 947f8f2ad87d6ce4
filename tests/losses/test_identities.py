"""Limits in which a loss becomes another one that is known."""

import pytest
import torch
from torch.nn import functional as F

from hierlearn import Hierarchy, LabelSpace
from hierlearn.links import SoftmaxLink
from hierlearn.losses import (
    BCE,
    BCELoss,
    CondSoftmaxLoss,
    Focal,
    FocalLoss,
    HCLLoss,
    HXELoss,
    LCACostLoss,
    LeafCELoss,
    LevelWeightedLoss,
    MCLoss,
    SoftLabelsLoss,
)
from losses.random_batches import random_batch

FLAT = Hierarchy.from_paths(list("abcdef"))
RAGGED = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


def flat_batch():
    torch.manual_seed(0)
    numbers = torch.randint(0, 6, (9,))
    logits = torch.randn(9, 6, dtype=torch.float64)
    return logits, F.one_hot(numbers, 6).bool(), numbers


def leaf_batch(rows=6):
    torch.manual_seed(1)
    leaves = torch.from_numpy(RAGGED.leaves.copy())
    numbers = leaves[torch.randint(0, len(leaves), (rows,))]
    targets = RAGGED.encode([[RAGGED.names[int(c)]] for c in numbers])
    return torch.randn(rows, len(RAGGED), dtype=torch.float64), targets, numbers, leaves


def test_on_one_level_hcl_without_curriculum_is_its_base():
    logits, targets, _ = flat_batch()
    for base, plain in (("bce", BCELoss(FLAT)), ("focal", FocalLoss(FLAT))):
        found = HCLLoss(FLAT, base=base, curriculum=None)(logits, targets)
        torch.testing.assert_close(found, plain(logits, targets))


def test_cross_entropy_is_torchs_and_takes_soft_targets():
    logits, targets, _ = flat_batch()
    soft = torch.rand_like(logits)
    for wanted in (targets, soft):
        expected = F.binary_cross_entropy_with_logits(logits, wanted.double())
        torch.testing.assert_close(BCELoss(FLAT)(logits, wanted), expected)


def test_on_one_level_the_softmax_losses_are_torchs_cross_entropy():
    logits, targets, numbers = flat_batch()
    expected = F.cross_entropy(logits, numbers)
    for loss in (
        LeafCELoss(FLAT),
        CondSoftmaxLoss(FLAT),
        HXELoss(FLAT, alpha=0.7),
        SoftLabelsLoss(FLAT, beta=800.0),
    ):
        torch.testing.assert_close(loss(logits, targets), expected)


def test_hxe_at_alpha_0_is_leaf_cross_entropy_on_ragged_trees():
    # The leaf "h" stands directly under the root.
    logits, targets, numbers, leaves = leaf_batch()
    place = {int(c): i for i, c in enumerate(leaves)}
    expected = F.cross_entropy(logits[:, leaves], torch.tensor([place[int(c)] for c in numbers]))
    for loss in (
        HXELoss(RAGGED, alpha=0.0),
        LeafCELoss(RAGGED),
        SoftLabelsLoss(RAGGED, beta=2000.0),
    ):
        torch.testing.assert_close(loss(logits, targets), expected)


def test_soft_labels_at_beta_0_ask_for_the_uniform_distribution():
    logits, targets, _, leaves = leaf_batch()
    expected = -logits[:, leaves].log_softmax(dim=1).mean()
    torch.testing.assert_close(SoftLabelsLoss(RAGGED, beta=0.0)(logits, targets), expected)


def test_lca_cost_of_certain_answers_is_the_scaled_lca_height():
    _, targets, numbers, leaves = leaf_batch(rows=30)
    torch.manual_seed(2)
    answers = leaves[torch.randint(0, len(leaves), (30,))]
    logits = 1e4 * F.one_hot(answers, len(RAGGED)).double()
    heights = torch.from_numpy(RAGGED.lca_heights(answers.numpy(), numbers.numpy()))
    found = LCACostLoss(RAGGED, reduction="none")(logits, targets)
    torch.testing.assert_close(found, heights.double() / RAGGED.root_height)


def test_focal_at_gamma_0_is_cross_entropy():
    logits, targets, _ = flat_batch()
    found = FocalLoss(FLAT, alpha=None, gamma=0.0)(logits, targets)
    torch.testing.assert_close(found, BCELoss(FLAT)(logits, targets))


def test_level_weights_of_one_are_cross_entropy_and_decay_falls_by_level():
    logits, targets, _, _ = leaf_batch()
    found = LevelWeightedLoss(RAGGED, decay=1.0)(logits, targets)
    torch.testing.assert_close(found, BCELoss(RAGGED)(logits, targets))
    weights = LevelWeightedLoss(RAGGED, decay=0.5).class_weights
    assert weights.tolist() == [0.5 ** (level - 1) for level in RAGGED.levels.tolist()]


def test_mcloss_is_cross_entropy_where_logits_are_coherent():
    _, targets, _, _ = leaf_batch()
    torch.manual_seed(3)
    logits = RAGGED.max_up(torch.randn(len(targets), len(RAGGED), dtype=torch.float64))
    negative = MCLoss(RAGGED, reduction="none")(logits, targets)
    plain = BCELoss(RAGGED, reduction="none")(logits, targets)
    torch.testing.assert_close(negative[~targets], plain[~targets])
    flat_logits, flat_targets, _ = flat_batch()
    torch.testing.assert_close(
        MCLoss(FLAT)(flat_logits, flat_targets), BCELoss(FLAT)(flat_logits, flat_targets)
    )


def test_mcloss_is_the_dense_formula_of_its_authors():
    logits, targets, _, _ = leaf_batch()
    count = len(RAGGED)
    is_below = torch.tensor(
        [[b == a or b in RAGGED.descendants(a) for b in range(count)] for a in range(count)]
    )
    h = logits.sigmoid()
    y = targets.double()
    spread = (h[:, None, :] * is_below).amax(dim=2)
    positive = ((h * y)[:, None, :] * is_below).amax(dim=2)
    expected = F.binary_cross_entropy(torch.where(targets, positive, spread), y)
    torch.testing.assert_close(MCLoss(RAGGED)(logits, targets), expected)


@pytest.mark.parametrize("seed", range(10))
def test_coherent_probabilities_satisfy_the_constraint_on_the_positive_path(seed):
    """With coherent p the losses of positive classes never fall down the path."""
    batch = random_batch(seed, labels=(1, 1), masked=False)
    for link in ("max", "conditional"):
        loss = HCLLoss(
            batch.hierarchy, link=link, scope="ancestors", curriculum=None, reduction="none"
        )
        plain = BCELoss(batch.hierarchy, link=link, reduction="none")
        bound = loss(batch.logits, batch.targets)[batch.targets]
        torch.testing.assert_close(bound, plain(batch.logits, batch.targets)[batch.targets])


def test_bases_and_links_may_be_passed_as_objects():
    logits, targets, _, _ = leaf_batch()
    inner = [RAGGED.names.index("a")]
    pairs = [
        ({"base": "focal"}, {"base": Focal()}),
        ({"base": "focal"}, {"base": FocalLoss(RAGGED, reduction="none")}),
        ({"base": "bce2"}, {"base": BCE(2)}),
        ({"link": "softmax"}, {"link": SoftmaxLink(RAGGED)}),
    ]
    for by_name, by_object in pairs:
        found = [HCLLoss(RAGGED, **options)(logits, targets) for options in (by_name, by_object)]
        torch.testing.assert_close(*found)
    # The label space says what the softmax is over, however the link is given.
    space = LabelSpace(RAGGED, inner)
    with_inner = HCLLoss(space, link="softmax")(logits, targets)
    assert with_inner == HCLLoss(space, link=SoftmaxLink(space))(logits, targets)
    assert with_inner != HCLLoss(RAGGED, link="softmax")(logits, targets)
