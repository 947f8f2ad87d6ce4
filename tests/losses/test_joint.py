"""JointLoss: the weighted sum over heads, and how processes share it."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES
from hierlearn.losses.joint import JointLoss
from hierlearn.training.processes import Processes
from losses.random_batches import random_batch
from tolerances import FLOAT64

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
NAMES = ("bce", "soft-labels", "leaf-ce")


class Alternating(Processes):
    """One of two processes, whose counts are added up by hand."""

    def total(self, count):
        return TOTALS.pop(0) if TOTALS else count


TOTALS: list[torch.Tensor] = []


def joint(hierarchy, weights=None):
    return JointLoss({name: LOSSES[name](hierarchy) for name in NAMES}, weights)


def batch_of(seed, *, masked):
    """A batch of several rows, of which some have no label."""
    batch = random_batch(seed, masked=masked, rows=(7, 7), labels=(1, 2))
    batch.targets[::3] = 0
    outputs = {name: batch.logits * (1 + k) for k, name in enumerate(NAMES)}
    weight = torch.rand(7, dtype=torch.float64) if seed % 2 else None
    return batch, outputs, weight


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_weighted_sum_of_its_parts(seed, masked):
    batch, outputs, weight = batch_of(seed, masked=masked)
    given = {"bce": 1.0, "soft-labels": 3.0, "leaf-ce": 0.5}
    for weights in (None, given):
        loss = joint(batch.hierarchy, weights)
        expected = sum(
            (weights or dict.fromkeys(NAMES, 1 / 3))[name]
            * LOSSES[name](batch.hierarchy)(outputs[name], batch.targets, batch.mask, weight)
            for name in NAMES
        )
        FLOAT64.assert_close(loss(outputs, batch.targets, batch.mask, weight), expected)
        parts = loss.terms(outputs, batch.targets, batch.mask, weight)
        FLOAT64.assert_close(sum(parts), expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_two_processes_with_their_own_counts_give_the_loss_of_all_rows(seed, masked):
    batch, outputs, weight = batch_of(seed, masked=masked)
    loss = joint(batch.hierarchy)
    shares = []
    for rank in range(2):
        here = slice(rank, None, 2)
        own = {name: value[here] for name, value in outputs.items()}
        mask = None if batch.mask is None else batch.mask[here]
        part = None if weight is None else weight[here]
        given = (batch.targets[here], mask, part)
        shares.append([*zip(loss.terms(own, *given), loss.counts(*given), strict=True)])
    counts = [torch.stack([torch.as_tensor(n).double() for _, n in terms]) for terms in shares]
    assert len({tuple((one / one[0]).tolist()) for one in counts}) > 1  # one scale would not do
    values = []
    for rank, terms in enumerate(shares):
        TOTALS.append(counts[0] + counts[1])
        values.append(Alternating(rank, 2, torch.device("cpu")).part_of_mean(terms))
    expected = loss(outputs, batch.targets, batch.mask, weight)
    FLOAT64.assert_close(torch.stack(values).mean(), expected)


def test_the_terms_of_members():
    loss = joint(TREE)
    loss.set_members(2)
    targets = TREE.encode([["a/b"], ["d"], []]).expand(2, -1, -1)
    outputs = {
        name: LOSSES[name](TREE).link.output(torch.randn(2, 3, 4, dtype=torch.float64))
        for name in NAMES
    }
    terms, counts = loss.terms(outputs, targets, None, None), loss.counts(targets, None, None)
    assert [tuple(value.shape) for value in terms] == [(2,)] * 3
    assert [torch.as_tensor(count).tolist() for count in counts] == [12, [2, 2], [2, 2]]
    pairs = [*zip(terms, counts, strict=True)]
    value = Processes(0, 1, torch.device("cpu")).part_of_mean(pairs)
    FLOAT64.assert_close(value, loss(outputs, targets))


def test_a_loss_alone_has_one_term():
    loss, targets = LOSSES["bce"](TREE), TREE.encode([["a/b"], ["d"]])
    logits = torch.randn(2, 4)
    (value,) = loss.terms(logits, targets, None, None)
    assert torch.equal(value, loss(logits, targets))
    assert loss.counts(targets, None, None) == [8]


def test_weights_per_row():
    losses = {"main": LOSSES["bce"](TREE), "soft-labels": LOSSES["soft-labels"](TREE)}
    loss = JointLoss.per_row(losses, {"main": 1.0, "soft-labels": 3.0})
    assert loss.weights == {"main": 1.0, "soft-labels": 3.0 / 4}


def test_every_head_has_a_state_of_its_own():
    loss = JointLoss.same_for_all(LOSSES["hcl"](TREE), ["one", "two"])
    first, second = loss.losses_of_parts
    assert first is not second
    assert loss.names == ["one", "two"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JointLoss({}), "needs at least one head"),
        (
            lambda: JointLoss({"main": LOSSES["bce"](TREE)}, {"other": 1.0}),
            r"weights of \['other'\] do not fit heads \['main'\]",
        ),
        (
            lambda: JointLoss({"main": LOSSES["bce"](TREE)})({"x": None}, TREE.encode([[]])),
            r"the network has heads \['x'\], the loss \['main'\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(HierlearnError, match=message):
        make()
