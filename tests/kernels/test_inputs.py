"""What the kernels accept: dtypes, strides, empty and masked rows, values beyond the usual."""

import math

import pytest
import torch

from hierlearn.errors import HierlearnError
from kernels.kernel_cases import (
    DEVICE,
    assert_same_as_plain,
    batch,
    few_and_many,
    kernel_loss,
    on_device,
    tree,
    value_and_gradient,
)
from tolerances import FLOAT32, FLOAT32_SUMS, HALF_ROUNDED


@pytest.mark.parametrize("masked", [False, True], ids=["all known", "masked"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_logits_are_read_without_a_copy(dtype, masked):
    hierarchy = tree((2, 5, 17))
    logits, targets, mask = batch(hierarchy, 6, masked=masked)
    logits = logits.to(dtype)
    plain, fused = (kernel_loss(hierarchy, fused=f) for f in (False, True))
    value, gradient = value_and_gradient(plain, logits.float(), targets, mask)
    found = value_and_gradient(fused.to(DEVICE), *on_device(logits, targets, mask))
    FLOAT32_SUMS.assert_close(found[0], value)
    HALF_ROUNDED.assert_close(found[1], gradient.to(dtype))
    assert fused.last["selected"].tolist() == plain.last["selected"].tolist()


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int64, torch.float32, torch.float64, torch.bfloat16], ids=str
)
def test_targets_may_have_any_dtype(dtype):
    hierarchy = tree((2, 14))
    logits, targets, _ = on_device(*batch(hierarchy, 3))
    loss = kernel_loss(hierarchy).to(DEVICE)
    expected = value_and_gradient(loss, logits, targets)
    found = value_and_gradient(loss, logits, targets.to(dtype))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


def shifted_logits(logits, targets, mask):
    wide = torch.zeros(len(logits), 24, device=DEVICE)
    wide[:, 2:18] = logits
    return wide[:, 2:18], targets, mask


def shifted_targets(logits, targets, mask):
    wide = torch.zeros(len(logits), 24, dtype=torch.bool, device=DEVICE)
    wide[:, 4:20] = targets
    return logits, wide[:, 4:20], mask


def every_other_column(logits, targets, mask):
    wide = torch.zeros(len(logits), 32, dtype=torch.bool, device=DEVICE)
    wide[:, ::2] = targets
    return logits, wide[:, ::2], mask.t().contiguous().t()


@pytest.mark.parametrize("view", [shifted_logits, shifted_targets, every_other_column])
def test_rows_may_begin_anywhere_and_columns_may_have_strides(view):
    hierarchy = tree((3, 13))
    data = on_device(*batch(hierarchy, 6, masked=True))
    loss = kernel_loss(hierarchy).to(DEVICE)
    expected = value_and_gradient(loss, *data)
    logits, targets, mask = view(*data)
    x = logits.detach().requires_grad_()
    value = loss(x, targets, mask)
    (1.7 * value).backward()
    FLOAT32_SUMS.assert_close((value.detach().cpu(), x.grad.cpu()), expected)


def test_an_empty_batch_has_no_loss():
    hierarchy = tree((2, 3))
    loss = kernel_loss(hierarchy).to(DEVICE)
    x = torch.zeros(0, 5, device=DEVICE, requires_grad=True)
    value = loss(x, torch.zeros(0, 5, dtype=torch.bool, device=DEVICE))
    value.backward()
    assert value.item() == 0
    assert x.grad.shape == (0, 5)


@pytest.mark.parametrize("rows", [1, slice(None)], ids=["one row", "all rows"])
def test_rows_without_a_known_entry(rows):
    hierarchy = tree((2, 9))
    logits, targets, mask = batch(hierarchy, 4, masked=True)
    mask[rows] = False
    assert_same_as_plain(hierarchy, logits, targets, mask)


@few_and_many
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_huge_logits(size, layout):
    hierarchy = tree((2, 3, 12))
    logits, targets, _ = batch(hierarchy, 3)
    logits[1, 3] = size
    assert_same_as_plain(hierarchy, logits, targets, None)


@few_and_many
def test_infinite_logits(layout):
    hierarchy = tree((2, 3, 12))
    logits, targets = torch.zeros(3, 17), torch.zeros(3, 17, dtype=torch.bool)
    loss = kernel_loss(hierarchy, reduction="sum", curriculum=None).to(DEVICE)
    logits[1, 3] = -math.inf  # certain and correct: it costs nothing
    certain = value_and_gradient(loss, *on_device(logits, targets))
    logits[1, 3] = -1e4
    FLOAT32.assert_close(certain, value_and_gradient(loss, *on_device(logits, targets)))
    logits[1, 3] = math.inf  # certain and wrong
    value, gradient = value_and_gradient(loss, *on_device(logits, targets))
    assert value == math.inf
    assert gradient.isfinite().all()


@few_and_many
@pytest.mark.parametrize("column", [0, 16])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_a_nan_logit_shows_in_loss_and_gradient(floor, column, layout):
    hierarchy = tree((2, 3, 12))
    logits, targets, _ = batch(hierarchy, 3)
    logits[1, column] = math.nan
    loss = kernel_loss(hierarchy, floor=floor).to(DEVICE)
    value, gradient = value_and_gradient(loss, *on_device(logits, targets))
    assert value.isnan()
    assert floor == 0.0 or gradient[1, column].isnan()


@pytest.mark.parametrize("curriculum", ["batch", None])
def test_autocast_does_not_lower_the_precision_of_the_loss(curriculum):
    hierarchy = tree((2, 3))
    logits, targets, _ = on_device(*batch(hierarchy, 4))
    loss = kernel_loss(hierarchy, curriculum=curriculum).to(DEVICE)
    expected = loss(logits, targets)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert loss(logits, targets) == expected


def test_a_batch_of_a_known_shape_is_still_checked():
    hierarchy = tree((2, 3))
    logits, targets, _ = on_device(*batch(hierarchy, 4))
    loss = kernel_loss(hierarchy).to(DEVICE)
    expected = loss(logits, targets)
    assert loss(logits, targets) == expected
    with pytest.raises(HierlearnError, match="targets"):
        loss(logits, targets[:3])
    with pytest.raises(HierlearnError, match="mask must be bool"):
        loss(logits, targets, targets.float())
    loss.validate = True
    with pytest.raises(HierlearnError, match="outside"):
        loss(logits, targets.float() + 1)
