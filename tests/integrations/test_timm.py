"""timm: losses of class indices and of mixup targets, in a loop as timm's train.py has it."""

import doctest
import re

import pytest
import timm
import torch
from timm.data import Mixup

from hierlearn.errors import HierlearnError
from hierlearn.integrations import timm as integration
from hierlearn.integrations.timm import TimmLoss
from hierlearn.losses import LOSSES, BCELoss, HCLLoss
from hierlearn.losses.loss import losses_of_fractions
from integrations.tiny import NAMES, TREE

DRAW = torch.Generator().manual_seed(0)
LOGITS = torch.randn(8, len(TREE), generator=DRAW, dtype=torch.float64)
INDEX = torch.randint(0, 5, (8,), generator=DRAW)
TARGETS = TREE.encode([NAMES[one] for one in INDEX])
# Rows have no loss of their own where a curriculum selects by the batch.
BY_ROW = [n for n in LOSSES if n not in ("hcl", "hcl-cl", "hcl-paper", "sample-curriculum")]


@pytest.mark.parametrize("name", LOSSES)
def test_class_indices_and_closed_targets(name):
    expected = LOSSES[name](TREE)(LOGITS, TARGETS)
    torch.testing.assert_close(TimmLoss(LOSSES[name](TREE), NAMES)(LOGITS, INDEX), expected)
    torch.testing.assert_close(TimmLoss(LOSSES[name](TREE), NAMES)(LOGITS, TARGETS), expected)


def mixed_targets(count, **options):
    torch.manual_seed(0)
    mixup = Mixup(num_classes=count, **{"label_smoothing": 0.0, "mode": "elem", **options})
    return mixup(torch.zeros(8, 3, 4, 4), INDEX)[1]


@pytest.mark.parametrize("count", [len(NAMES), len(TREE)])
@pytest.mark.parametrize("name", BY_ROW)
def test_mixup_is_the_mixture_of_the_losses(name, count):
    """Row by row, with the weights that timm's Mixup gives."""
    mixed = mixed_targets(count)
    assert ((mixed > 0).sum(dim=1) == 2).any()
    loss = LOSSES[name](TREE)
    expected = 0.0
    for row, weights in zip(LOGITS, mixed, strict=True):
        for index in weights.nonzero().flatten().tolist():
            expected += weights[index] * loss(row[None], TREE.encode([NAMES[index]]))
    torch.testing.assert_close(TimmLoss(loss, NAMES)(LOGITS, mixed.double()), expected / 8)


@pytest.mark.parametrize("name", losses_of_fractions())
def test_label_smoothing_is_the_mixture_of_the_losses_of_all_classes(name):
    smooth = mixed_targets(len(NAMES), label_smoothing=0.1).double()
    assert (smooth > 0).all()
    loss = LOSSES[name](TREE)
    expected = 0.0
    for index, class_name in enumerate(NAMES):
        by_row = LOSSES[name](TREE, reduction="none")(LOGITS, TREE.encode([class_name] * 8))
        by_row = by_row if by_row.dim() == 1 else by_row.mean(dim=1)
        expected += (smooth[:, index] * by_row).mean()
    torch.testing.assert_close(TimmLoss(loss, NAMES)(LOGITS, smooth), expected)


def test_rows_that_are_not_mixed_are_plain_rows():
    plain = torch.nn.functional.one_hot(INDEX, len(NAMES)).double()
    for name in LOSSES.keys() - {"sample-curriculum"}:  # which selects rows whatever they weigh
        criterion = TimmLoss(LOSSES[name](TREE), NAMES)
        torch.testing.assert_close(criterion(LOGITS, plain), criterion(LOGITS, INDEX))


def test_gradients_and_half_precision():
    logits = LOGITS.float().requires_grad_()
    mixed = mixed_targets(len(NAMES))
    TimmLoss(HCLLoss(TREE), NAMES)(logits, mixed).backward()
    assert logits.grad.isfinite().all()
    half = TimmLoss(BCELoss(TREE), NAMES)(LOGITS.bfloat16(), mixed.half())
    torch.testing.assert_close(
        half.double(), TimmLoss(BCELoss(TREE), NAMES)(LOGITS, mixed.double()), rtol=0.02, atol=0
    )


def test_what_cannot_be_is_said():
    criterion = TimmLoss(BCELoss(TREE), NAMES)
    message = (
        "targets are smoothed over more classes than two, which HCLLoss cannot take, since it is "
        "not linear in the targets; pass label_smoothing=0 to Mixup (--smoothing 0), or use b"
    )
    with pytest.raises(HierlearnError, match=re.escape(message)):
        TimmLoss(HCLLoss(TREE), NAMES)(
            LOGITS, mixed_targets(len(NAMES), label_smoothing=0.1).double()
        )
    with pytest.raises(HierlearnError, match="must sum to 1 in every row"):
        criterion(LOGITS, torch.full((8, len(NAMES)), 0.5).double())
    message = (
        "targets (8, 3) of mixup must be (N, K) with K of at least 5, the number of class names; "
        "pass num_classes=5 to Mixup"
    )
    with pytest.raises(HierlearnError, match=re.escape(message)):
        criterion(LOGITS, torch.zeros(8, 3))
    with pytest.raises(HierlearnError, match="targets name class index 7, but there are 5 class"):
        criterion(LOGITS, torch.nn.functional.one_hot(torch.full((8,), 7), 8).double())
    with pytest.raises(HierlearnError, match="needs a loss with reduction 'mean', not 'none'"):
        TimmLoss(BCELoss(TREE, reduction="none"), NAMES)
    with pytest.raises(HierlearnError, match=r"class index 5 is outside 0\.\.4, of 5 class"):
        criterion(LOGITS, torch.full((8,), 5))


def test_a_tiny_model_learns():
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=24, depth=1, num_heads=2,
        num_classes=len(TREE),
    )  # fmt: skip
    images = torch.zeros(40, 3, 16, 16)
    index = torch.arange(40) % 5
    images[torch.arange(40), 0, index * 3] = 3.0
    mixup = Mixup(mixup_alpha=0.2, label_smoothing=0.0, num_classes=len(NAMES))
    criterion = TimmLoss(HCLLoss(TREE), NAMES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    before = criterion(model(images), index).item()
    for step in range(30):
        batch, targets = mixup(images.clone(), index) if step % 2 else (images, index)
        optimizer.zero_grad()
        criterion(model(batch), targets).backward()
        optimizer.step()
    assert criterion(model(images), index).item() < before / 2


def test_examples_hold():
    assert doctest.testmod(integration).failed == 0
