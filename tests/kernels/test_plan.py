"""Launch plans: tiles, memory, and the shapes that a plan is reused for."""

import pytest
import torch

from hierlearn.kernels import hcl as kernels
from hierlearn.kernels import plan as plans
from hierlearn.kernels.hcl_plan import KernelSpec
from kernels.kernel_cases import DEVICE


@pytest.mark.parametrize("sizes", [(1,), (5, 1, 30), (16, 16), (3, 50, 2)], ids=str)
def test_tiles_cover_every_class_once_in_its_level(sizes):
    pairs = plans.level_tiles(sizes, 16, torch.device("cpu")).tolist()
    begins = [sum(sizes[:level]) for level in range(len(sizes) + 1)]
    covered = [
        column
        for level, tile in pairs
        for column in range(16 * tile, 16 * tile + 16)
        if begins[level] <= column < begins[level + 1]
    ]
    assert covered == list(range(sum(sizes)))


def test_arrays_in_one_block_are_aligned_and_do_not_overlap():
    dtypes = {"flags": (torch.bool, 5), "none": (torch.int32, 0), "numbers": (torch.float64, 3)}
    layout = plans.MemoryLayout(**dtypes)
    block = torch.zeros(layout.size, dtype=torch.uint8)
    for number, (name, (dtype, count)) in enumerate(dtypes.items()):
        array = layout.array(block, name)
        assert (array.dtype, array.shape) == (dtype, (count,))
        assert layout.entries[name][0] % 16 == 0
        array.fill_(number + 1)
    assert layout.array(block, "flags").all()
    assert layout.array(block, "numbers").tolist() == [3, 3, 3]


def kernels_of_two_levels():
    spec = KernelSpec((2, 3), 1.0, mean=True, selection=None)
    return kernels.Kernels(spec)


def test_a_plan_is_reused_for_the_same_shape_and_dtype_only():
    run = kernels_of_two_levels()
    x = torch.zeros(4, 5, device=DEVICE)
    y = x.bool()
    plan = run.prepare(x, y, None)[3]
    assert run.prepare(x.clone(), y.clone(), None)[3] is plan
    for other in ((x[:3], y[:3], None), (x.half(), y, None), (x, y.float(), None), (x, y, y)):
        assert run.prepare(*other)[3] is not plan


def test_plans_of_ever_new_shapes_are_dropped(monkeypatch):
    monkeypatch.setattr(plans, "MAX_PLANS", 3)
    run = kernels_of_two_levels()
    for rows in range(1, 9):
        x = torch.zeros(rows, 5, device=DEVICE)
        run.prepare(x, x.bool(), None)
        assert len(run.plans) <= 3
