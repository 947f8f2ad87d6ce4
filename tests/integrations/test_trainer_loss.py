"""TrainerLoss: accumulated over small batches, the gradient is that of the whole batch."""

from types import SimpleNamespace

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.integrations.transformers import TrainerLoss
from hierlearn.losses import LOSSES, BCELoss

H = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
NAMES = ["h", "a/b/c", "a/b/d", "a/e", "f/g"]  # in an order of the user's own
# Curricula that select by the batch have no such identity, whoever accumulates.
BATCHWISE = ("hcl", "hcl-cl", "hcl-paper", "sample-curriculum")
BY_ROW = [name for name in LOSSES if name not in BATCHWISE]


def rows():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=draw, dtype=torch.float64)
    return x, torch.randint(0, 5, (12,), generator=draw)


def trained(compute, x, labels, sizes):
    """One step as the Trainer takes it: count all labels, add the losses, never divide."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, len(H), dtype=torch.float64)
    items = sum(part.ne(-100).sum() for part in labels.split(sizes))
    total = 0.0
    for inputs, part in zip(x.split(sizes), labels.split(sizes), strict=True):
        value = compute(SimpleNamespace(logits=model(inputs)), part, num_items_in_batch=items)
        value.backward()
        total += value.item()
    return total, model.weight.grad


@pytest.mark.parametrize("name", BY_ROW)
@pytest.mark.parametrize("multi_hot", [False, True])
def test_small_batches_add_up_to_the_mean_of_all_rows(name, multi_hot):
    x, indices = rows()
    labels = H.encode(NAMES)[indices].double() if multi_hot else indices
    compute = TrainerLoss(LOSSES[name](H), None if multi_hot else NAMES)
    torch.manual_seed(1)
    model = torch.nn.Linear(3, len(H), dtype=torch.float64)
    expected = LOSSES[name](H)(model(x), H.encode([NAMES[i] for i in indices]))
    expected.backward()
    for sizes in ([12], [6, 6], [5, 4, 2, 1]):
        value, gradient = trained(compute, x, labels, sizes)
        assert value == pytest.approx(expected.item())
        torch.testing.assert_close(gradient, model.weight.grad)


def test_the_plain_loss_is_doubled_and_the_adapter_is_not():
    x, labels = rows()
    table, loss = H.encode(NAMES), BCELoss(H)

    def plain(outputs, labels, num_items_in_batch=None):
        return loss(outputs.logits, table[labels])

    whole, _ = trained(plain, x, labels, [12])
    assert trained(plain, x, labels, [6, 6])[0] == pytest.approx(2 * whole)  # what goes wrong
    assert trained(TrainerLoss(loss, NAMES), x, labels, [6, 6])[0] == pytest.approx(whole)


def test_outputs_in_every_form():
    _, labels = rows()
    logits = torch.zeros(12, len(H))
    compute = TrainerLoss(BCELoss(H), NAMES)
    forms = (SimpleNamespace(logits=logits), {"logits": logits}, (logits, None), logits)
    assert len({compute(form, labels).item() for form in forms}) == 1
    with pytest.raises(HierlearnError, match="the outputs hold no logits: tuple"):
        compute(("text",), labels)
    with pytest.raises(HierlearnError, match="needs a loss with reduction 'mean', not 'sum'"):
        TrainerLoss(BCELoss(H, reduction="sum"))
