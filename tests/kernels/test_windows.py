"""How groups of siblings are divided into windows and pieces: every class once, groups whole."""

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.hierarchy import LabelSpace
from hierlearn.kernels import tree_layout, tree_plan
from kernels.kernel_cases import batch, kernel_loss, on_device, tree, value_and_gradient
from kernels.test_trees import TREES, UNEVEN
from tolerances import FLOAT32_SUMS

LONG = tree((2, 600))  # groups of 300: pieces of pieces in windows of 16
ALL = {**TREES, "pieces of pieces": LONG}


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    for module in (tree_layout, tree_plan):
        monkeypatch.setattr(module, "WINDOW", 16)


def reduced(layout):
    """Reduce 1 per class to slots as the kernels do, and return how much reaches each slot."""
    plan = layout.reductions
    found = np.zeros(layout.width)
    groups = np.concatenate([np.full(layout.slots, -1), plan.piece_groups]).astype(int)
    for stage in plan.stages:
        for low, high in plan.windows[stage.first : stage.first + stage.number]:
            assert high - (low - low % tree_layout.ALIGNMENT) <= tree_layout.WINDOW
            for item in range(low, high):
                slot = groups[item] if stage.pieces else plan.class_groups[item]
                assert slot >= 0
                found[slot] += found[item] if stage.pieces else 1
    return found


@pytest.mark.parametrize("hierarchy", ALL.values(), ids=ALL)
def test_every_class_reaches_the_slot_of_its_parent_once(hierarchy):
    layout = LabelSpace(hierarchy).layout
    children = np.zeros(layout.slots)
    numbers = {-1: 0}
    parents = hierarchy.structure.first_parents
    for parent in sorted({int(one) for one in parents if one >= 0}):
        numbers[parent] = len(numbers)
    for parent in parents:
        children[numbers[int(parent)]] += 1
    assert reduced(layout)[: layout.slots].tolist() == children.tolist()


def test_a_window_holds_whole_groups_and_a_stage_ends_before_the_next_reads_it():
    plan = LabelSpace(UNEVEN).layout.reductions
    written: set[int] = set()
    for stage in plan.stages:
        here = set()
        for number in range(stage.first, stage.first + stage.number):
            low, high = plan.windows[number]
            if stage.pieces:
                assert set(range(low, high)) <= written
            slots = {slot for slot, window in plan.window_of.items() if window == number}
            assert sum(plan.children[slot][1] for slot in slots) == high - low
            here |= slots
        assert not here & written
        written |= here
    assert written == set(range(plan.width))


def test_a_group_of_several_hundred_classes():
    assert LabelSpace(LONG).layout.width > LabelSpace(LONG).layout.slots + 2 * (300 // 16)
    logits, targets, _ = batch(LONG, 2)
    losses = [kernel_loss(LONG, fused=f, link="softmax", scope="ancestors") for f in (True, False)]
    found, expected = (
        value_and_gradient(loss.to(device), *tensors)
        for loss, device, tensors in (
            (losses[0], on_device(logits)[0].device, on_device(logits, targets)),
            (losses[1], "cpu", (logits, targets)),
        )
    )
    FLOAT32_SUMS.assert_close(found, expected)


def test_tiles_of_leaves_hold_no_inner_class():
    hierarchy = Hierarchy.from_parents([-1, -1, 0, 0, 0, 0, 1, 1])
    layout = LabelSpace(hierarchy).layout
    device = on_device(batch(hierarchy, 1)[0])[0].device
    leaves, others = layout.tiles(2, device).values()
    assert (leaves.tolist(), others.tolist()) == ([1, 2, 3], [0])
