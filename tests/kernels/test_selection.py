"""The kernels of the curriculum alone: they select as a sort of the class losses does."""

import math

import pytest
import torch

from hierlearn.kernels import hcl as kernels
from hierlearn.kernels.hcl_plan import KernelSpec, LaunchPlan, SelectionOptions
from hierlearn.losses import select_classes
from kernels.kernel_cases import DEVICE, few_and_many
from tolerances import FLOAT32


def select(sums, errors, *, floor=0.0, threshold=None):
    """Return what the kernels select for these class sums and errors, and the loss."""
    count = len(sums)
    selection = SelectionOptions(floor, False, threshold is not None)
    spec = KernelSpec((count,), 1.0, mean=False, selection=selection)
    x = torch.zeros(1, count, device=DEVICE)
    plan = LaunchPlan(spec, x, x.byte(), None)
    block = torch.zeros(plan.memory.size, dtype=torch.uint8, device=DEVICE)
    plan.memory.array(block, "partials")[:count] = sums.to(DEVICE)
    plan.memory.array(block, "counts")[0] = errors
    loss = torch.empty((), device=DEVICE)
    limit = torch.tensor(threshold or 0.0, dtype=torch.float64, device=DEVICE)
    plan.run(("select", "threshold", "loss"), block, (limit, loss))
    return kernels.Workspace(plan, block).array("selected").cpu(), loss.item()


def class_sums(kind, count):
    """Return (C,) class sums of a kind, and a number of errors."""
    sums = 3 * torch.rand(count, generator=torch.Generator().manual_seed(count))
    if kind == "ties":
        sums = sums.round()
    elif kind == "zeros":
        sums.zero_()
    elif kind == "tiny":
        sums *= 1e-9
    elif kind == "infinite":
        sums[::2] = math.inf
    return sums, 1000 if kind == "all fit" else count // 2


@few_and_many
@pytest.mark.parametrize("fixed", [False, True], ids=["C + e_h", "threshold"])
@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("kind", ["random", "ties", "zeros", "tiny", "infinite", "all fit"])
def test_the_selection_is_that_of_a_sort(kind, count, fixed, layout):
    sums, errors = class_sums(kind, count)
    threshold = (-2.0 if kind == "random" else count / 3) if fixed else None
    selected, loss = select(sums, errors, threshold=threshold)
    limit = threshold if fixed else count + torch.tensor(float(errors))
    assert selected.tolist() == select_classes(sums, limit).tolist()
    assert loss == FLOAT32.approx(sums[selected].double().sum().item())


@few_and_many
@pytest.mark.parametrize(("threshold", "taken"), [(6.9, 2), (7.0, 3), (9.9, 3), (10.0, 4)])
def test_the_last_tie_that_fits_is_selected(threshold, taken, layout):
    sums = torch.tensor([2.0, 1.0, 2.0, 2.0, 2.0])
    selected, loss = select(sums, 0, threshold=threshold, floor=0.5)
    assert selected.tolist() == select_classes(sums, threshold).tolist()
    assert selected.sum() == taken
    assert loss == FLOAT32.approx(0.5 * 9 + 0.5 * (1 + 2 * (taken - 1)))
