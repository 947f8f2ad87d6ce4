"""What losses read: the link of the logits, and targets that are fractions; all of LOSSES."""

import re

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.links import LINKS, HeadOutput, MaxLink, SoftmaxLink
from hierlearn.losses import (
    LOSSES,
    BCELoss,
    ComposedLoss,
    CondSoftmaxLoss,
    HingeLoss,
    LeafCELoss,
    MCLoss,
    MixedLoss,
)
from hierlearn.losses.loss import losses_of_fractions

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])
each_loss = pytest.mark.parametrize("name", LOSSES)


def logits_of(targets, seed=0):
    """Logits that are mostly right, so that curricula select all classes."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(targets.shape, dtype=torch.float64, generator=generator)
    return 4.0 * (2 * targets.double() - 1) + noise


def labels_of(hierarchy, numbers):
    return hierarchy.encode([[int(c)] for c in numbers], numbers=True)


# ---------------------------------------------------------------------- links


@each_loss
@pytest.mark.parametrize("link", LINKS)
def test_another_link_changes_the_value_or_is_refused(name, link):
    targets = labels_of(TREE, [3, 4, 5, 6, 7, 2])
    logits = logits_of(targets)
    entry = LOSSES[name]
    own = entry(TREE)(logits, targets)
    reads = entry(TREE).reads
    means_nothing = reads == "scores" or (reads == "masses" and not LINKS[link].normalized)
    means_nothing |= name == "mixed"  # of which a part is mcloss
    if means_nothing and link != entry.default_link:
        with pytest.raises(HierlearnError, match=rf"Loss reads .*{LINKS[link].__name__}"):
            entry(TREE, link=link)
        return
    found = entry(TREE, link=link)(logits, targets)
    if link == entry.default_link:
        torch.testing.assert_close(found, own, rtol=0, atol=0)
    else:
        assert abs(found - own) > 1e-6 * own


@each_loss
@pytest.mark.parametrize("link", LINKS)
def test_a_head_of_another_link_is_read_by_it(name, link):
    """A loss has the same value for a head with logits as for its log-probabilities alone."""
    targets = labels_of(TREE, [3, 4, 5, 6, 7, 2])
    head = LINKS[link](TREE)
    loss = LOSSES[name](TREE)
    reads_masses = loss.reads == "masses" and not head.normalized  # by its own softmax instead
    if reads_masses or (loss.reads == "scores" and loss.reads_as_scores(head)):
        pytest.skip("the loss reads these logits by its own link")
    if name == "mixed" and link in ("sigmoid", "max"):
        pytest.skip("as MCLoss, its part")
    output = head.output(logits_of(targets))
    bare = HeadOutput(*output.pair)
    torch.testing.assert_close(loss(output, targets), loss(bare, targets))


def test_the_link_of_a_mixed_loss_is_that_of_its_parts():
    targets = labels_of(TREE, [3, 4, 5, 6, 7, 2])
    logits = logits_of(targets)
    with pytest.raises(HierlearnError, match="MCLoss reads logits by the link 'sigmoid' alone"):
        MixedLoss(TREE, link="softmax")
    parts = {"bce": 1.0, "focal": 2.0}
    found = MixedLoss(TREE, parts=parts, link="softmax")(logits, targets)
    expected = sum(w * LOSSES[n](TREE, link="softmax")(logits, targets) for n, w in parts.items())
    torch.testing.assert_close(found, expected)


def test_the_max_link_reads_the_scores_of_mcloss():
    """A network that MCLoss trains may have the link by which it is read later."""
    targets = labels_of(TREE, [3, 4, 5])
    logits = logits_of(targets)
    for loss in (MCLoss(TREE), MixedLoss(TREE)):
        output = MaxLink(TREE).output(logits)
        torch.testing.assert_close(loss(output, targets), loss(logits, targets))
    with pytest.raises(HierlearnError, match="leave link out"):
        MCLoss(TREE, link="max")


def test_losses_of_masses_name_the_links_that_have_them():
    message = "LeafCELoss reads masses .* those of SigmoidLink do not; use softmax, siblings"
    with pytest.raises(HierlearnError, match=message):
        LeafCELoss(TREE, link="sigmoid")


def test_the_scores_of_a_softmax_head_are_conditional_probabilities():
    targets = labels_of(TREE, [3, 4, 5, 6, 7, 2])
    output = SoftmaxLink(TREE).output(logits_of(targets))
    # The product of the conditional probabilities down the path is the mass of the label.
    found = CondSoftmaxLoss(TREE, reduction="none")(output, targets)
    torch.testing.assert_close(found, LeafCELoss(TREE, reduction="none")(output, targets))


# ---------------------------------------------------------------------- fractions


def mixtures(hierarchy, part=0.3):
    """Targets of one class each, of others, and their mixture."""
    classes = torch.arange(len(hierarchy))
    one, other = labels_of(hierarchy, classes), labels_of(hierarchy, classes.roll(1))
    return one, other, part * one.double() + (1 - part) * other.double()


def assert_linear_or_refused(loss, one, other, mixed, part=0.3):
    logits = logits_of(one, seed=1)
    try:
        found = loss(logits, mixed)
    except HierlearnError as error:
        if not re.match(r"row \d+: .* or use ", str(error)):
            raise
        return False
    expected = part * loss(logits, one) + (1 - part) * loss(logits, other)
    torch.testing.assert_close(found, expected)
    return True


@each_loss
@pytest.mark.parametrize("validate", [None, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("hierarchy", [TREE, DAG, Hierarchy.from_paths(["a", "b", "c"])])
def test_a_mixture_of_targets_is_a_mixture_of_losses_or_refused(
    name, validate, reduction, hierarchy
):
    if LOSSES[name].needs_tree and not hierarchy.is_tree:
        pytest.skip("trees only")
    for terminals in ([], hierarchy.names):
        space = LabelSpace(hierarchy, terminals)
        loss = LOSSES[name](space, reduction=reduction, validate=validate)
        taken = assert_linear_or_refused(loss, *mixtures(hierarchy))
        if hierarchy.is_tree:
            assert taken == (name in losses_of_fractions())


@each_loss
@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_is_taken_right_or_refused(name, seed):
    """Of rows of no label, too; several labels are a mixture already for a loss of rows."""
    generator = torch.Generator().manual_seed(seed)
    for hierarchy in (TREE, DAG):
        if LOSSES[name].needs_tree and not hierarchy.is_tree:
            continue
        pair = []
        for _ in range(2):
            most = 3 if LOSSES[name](hierarchy).size(torch.empty(1, 9)) == 9 else 2
            count = int(torch.randint(0, most, (), generator=generator))
            numbers = torch.randint(0, len(hierarchy), (count,), generator=generator)
            pair.append(hierarchy.encode([numbers.tolist()], numbers=True))
        part = float(torch.rand((), generator=generator))
        mixed = part * pair[0].double() + (1 - part) * pair[1].double()
        loss = LOSSES[name](hierarchy, reduction="sum", validate=True)
        assert_linear_or_refused(loss, *pair, mixed, part)


def test_losses_that_take_fractions():
    assert losses_of_fractions() == [
        "bce", "focal", "hxe", "soft-labels", "leaf-ce", "cond-softmax", "level-weighted",
        "lca-cost", "hmcn", "teacher",
    ]  # fmt: skip
    assert MixedLoss(TREE, parts={"bce": 1, "focal": 1}).is_linear()
    assert not MixedLoss(TREE).is_linear()
    assert not ComposedLoss(TREE, base="zero_one").is_linear()


def test_what_is_refused_is_named_with_the_remedy():
    logits, targets = torch.zeros(2, len(TREE)), labels_of(TREE, [3, 4]).float()
    targets[1] *= 0.5
    message = (
        r"row 1: the target of 'a' is 0\.5, but MCLoss takes 0 or 1, since it is not linear in the "
        r"targets; pass every part of a mixture as a row with its weight.* or use bce, focal, hxe"
    )
    with pytest.raises(HierlearnError, match=message):
        MCLoss(TREE)(logits, targets)
    with pytest.raises(HierlearnError, match="row 1: the targets are fractions, but no mixture"):
        LeafCELoss(TREE)(logits, targets)
    HingeLoss(TREE, validate=False)(logits, targets)  # who forbids the checks knows better
    known = targets == targets.round()
    MCLoss(TREE)(logits, targets, known)  # what is unknown may be anything


@pytest.mark.parametrize("name", ["leaf-ce", "hxe", "soft-labels", "cond-softmax", "bce", "focal"])
def test_kernels_take_mixtures_as_the_plain_path_does(name):
    parents = [-1, *[0] * 15, *(1 + k // 8 for k in range(120))]
    h = Hierarchy.from_parents(parents, [f"n{k}" for k in range(len(parents))])
    one, other, mixed = mixtures(h)
    logits = torch.randn(mixed.shape, generator=torch.Generator().manual_seed(0))
    loss = LOSSES[name](h)
    fast = logits.clone().requires_grad_()
    loss(fast, mixed.float()).backward()
    exact = logits.double().requires_grad_()  # kernels are for float32
    loss(exact, mixed).backward()
    torch.testing.assert_close(fast.grad.double(), exact.grad, rtol=1e-4, atol=1e-7)
    expected = 0.3 * loss(logits, one) + 0.7 * loss(logits, other)
    torch.testing.assert_close(loss(logits, mixed.float()), expected)


def test_mixup_that_begins_later_is_refused():
    """On a CPU every batch is searched for fractions; that targets are closed, the first."""
    logits, targets = torch.zeros(2, len(TREE)), labels_of(TREE, [3, 4])
    loss = MCLoss(TREE)
    loss(logits, targets)
    loss(logits, targets.float())
    with pytest.raises(HierlearnError, match="takes 0 or 1"):
        loss(logits, 0.5 * targets)
    BCELoss(TREE)(logits, 0.5 * targets)  # exact
    loss(logits, torch.eye(2, len(TREE)))  # not closed
    always = MCLoss(TREE, validate=True)
    always(logits, targets)
    with pytest.raises(HierlearnError, match="takes 0 or 1"):
        always(logits, 0.5 * targets)


def test_label_smoothing_is_a_mixture_for_entries():
    targets = labels_of(TREE, [3, 4])
    logits = logits_of(targets)
    smooth = 0.9 * targets.double() + 0.1 * 0.5
    nothing, everything = torch.zeros_like(targets), torch.ones_like(targets)
    loss = BCELoss(TREE)
    expected = 0.9 * loss(logits, targets)
    expected += 0.05 * (loss(logits, nothing) + loss(logits, everything))
    torch.testing.assert_close(loss(logits, smooth), expected)
