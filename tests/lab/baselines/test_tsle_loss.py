"""TSLELoss against tests/reference/tsle.py, values and gradients."""

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.tsle import EncodedOutput, TSLELoss, match_loss
from hierlearn.links import make_link
from hierlearn.losses import BCELoss
from losses.oracle_checks import assert_same
from losses.random_batches import RAGGED, leaf_batch, random_batch
from reference.tsle import match, rank


class Coder:
    """Encodes labels by a linear map to length 1, and decodes encodings by another."""

    def __init__(self, hierarchy, width=3):
        generator = torch.Generator().manual_seed(0)
        classes = len(hierarchy)
        self.inner = torch.randn(classes, width, dtype=torch.float64, generator=generator)
        self.outer = torch.randn(width, classes, dtype=torch.float64, generator=generator)
        self.link = make_link(hierarchy, "sigmoid")

    def encode_labels(self, targets):
        return torch.nn.functional.normalize(targets.double() @ self.inner + 1.0, dim=-1)

    def decode(self, encodings):
        return self.link.output(encodings @ self.outer)


def expected(batch, calibration):
    masks = batch.mask_list or [None] * len(batch.logits)
    rows = zip(*batch.lists, masks, strict=True)
    found = [rank(scores, targets, calibration, known) for scores, targets, known in rows]
    known = batch.targets if batch.mask is None else batch.targets & batch.mask
    return [one if any(row) else 0.0 for one, row in zip(found, known.tolist(), strict=True)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("calibration", [0.0, 10.0])
def test_plain_logits_are_ranked(seed, calibration):
    batch = random_batch(seed, dag=seed % 2 == 1, labels=(0, 4))
    loss = TSLELoss(batch.hierarchy, calibration=calibration, reduction="none")
    found = loss(batch.logits, batch.targets, batch.mask)
    assert_same(found, expected(batch, calibration))


def whole_loss(batch, encodings, coder):
    """Return the summed loss by loops."""
    loss = TSLELoss(batch.hierarchy)
    total = sum(expected(batch, loss.calibration))
    known = batch.targets if batch.mask is None else batch.targets & batch.mask
    labels = coder.encode_labels(known)
    scores, sets = (labels @ coder.outer).tolist(), known.int().tolist()
    masks = batch.mask_list or [None] * len(scores)
    for i, row in enumerate(scores):
        if any(sets[i]):
            own = batch.targets[i].int().tolist()
            total += rank(row, own, loss.calibration, masks[i])
            total += loss.weight * match(encodings.tolist(), labels.tolist(), sets, loss.margin, i)
    return total


@pytest.mark.parametrize("seed", range(10))
def test_encodings_are_matched_and_labels_decoded(seed):
    batch = random_batch(seed, labels=(0, 3), rows=(3, 6))
    coder = Coder(batch.hierarchy)
    drawn = torch.randn(len(batch.logits), 3, dtype=torch.float64)
    encodings = torch.nn.functional.normalize(drawn, dim=-1).requires_grad_()
    logits = batch.logits.clone().requires_grad_()
    loss = TSLELoss(batch.hierarchy, reduction="sum")
    output = EncodedOutput.of(logits, coder.link, encodings, coder)
    found = loss(output, batch.targets, batch.mask)
    assert float(found.detach()) == pytest.approx(
        whole_loss(batch, encodings.detach(), coder), abs=1e-9
    )
    found.backward()
    step = 1e-6
    for values in (encodings, logits):
        place = (int(seed) % len(values), int(seed) % values.shape[1])
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                values[place] += sign * step
            batch.logits = logits.detach()
            ends.append(whole_loss(batch, encodings.detach(), coder))
            with torch.no_grad():
                values[place] -= sign * step
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(values.grad[place]) == pytest.approx(slope, abs=1e-5)


def test_members_of_an_ensemble_keep_to_their_own_rows():
    logits, targets, _, _ = leaf_batch()
    coder = Coder(RAGGED)
    encodings = torch.nn.functional.normalize(torch.randn(2, 6, 3).double(), dim=-1)
    both = torch.stack([logits, logits.flip(0)])
    sets = torch.stack([targets, targets.flip(0)])
    loss = TSLELoss(RAGGED)
    found = loss(EncodedOutput.of(both, coder.link, encodings, coder), sets)
    for number in range(2):
        output = EncodedOutput.of(both[number], coder.link, encodings[number], coder)
        torch.testing.assert_close(found[number], loss(output, sets[number]))


def test_rows_with_the_same_labels_are_not_compared():
    encodings = torch.eye(3, dtype=torch.float64)
    targets = torch.tensor([[1, 0], [1, 0], [1, 1]])
    labels = torch.ones(3, 3, dtype=torch.float64)
    wanted = torch.full((3,), 0.2, dtype=torch.float64)
    torch.testing.assert_close(match_loss(encodings, labels, targets, 0.2), wanted)
    assert not match_loss(encodings[:2], labels[:2], targets[:2], 0.2).any()


def test_the_calibration_is_binary_cross_entropy():
    logits, targets, _, _ = leaf_batch()
    both, none = (TSLELoss(RAGGED, calibration=c)(logits, targets) for c in (3.0, 0.0))
    torch.testing.assert_close(both - none, 3 * BCELoss(RAGGED)(logits, targets))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0}, "margin must be a number above 0, not 0"),
        ({"weight": -1}, "weight must be a number of at least 0, not -1"),
        ({"calibration": -1}, "calibration must be a number of at least 0, not -1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(HierlearnError, match=message):
        TSLELoss(RAGGED, **options)
