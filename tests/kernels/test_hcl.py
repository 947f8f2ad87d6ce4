"""The Triton kernels of HCL against the plain path and against naive loops."""

import pytest
import torch

from hierlearn import Hierarchy
from kernels.kernel_cases import (
    DEVICE,
    INTERPRETED,
    LAYOUTS,
    assert_same_as_plain,
    batch,
    every_layout,
    few_and_many,
    kernel_loss,
    nan_filled_memory,
    on_device,
    tree,
)
from reference.hcl import hcl as naive_hcl
from tolerances import FLOAT32_SUMS

SHAPES = [  # classes of each level, rows
    ((1,), 1),
    ((5,), 3),
    ((3, 1, 2, 13), 5),
    ((1, 1, 1, 1, 1, 1, 1), 4),
    ((2, 17, 3), 9),
    ((4, 28), 8),
]
OPTIONS = [
    {},
    {"floor": 0.0, "reduction": "sum", "base": "bce2"},
    {"normalize": "mean", "base": "bce2"},
    {"threshold": 4.5, "floor": 0.3},
    {"curriculum": None},
    {"curriculum": None, "scope": None},
    {"scope": None, "base": "bce2", "reduction": "sum"},
]


def plain_cases():
    """Every layout, option, shape and mask; on the interpreter, which is slow, each pair of them.

    There every option meets every shape, and every shape every layout, but in one combination.
    """
    for option, options in enumerate(OPTIONS):
        name = ", ".join(f"{key}={value}" for key, value in options.items()) or "defaults"
        for number, layout in enumerate(LAYOUTS):
            turn = option + number
            for shape, (sizes, rows) in enumerate(SHAPES):
                if INTERPRETED and (shape - turn) % 3:
                    continue
                for masked in [(turn + shape) % 2 == 0] if INTERPRETED else (False, True):
                    levels = "/".join(map(str, sizes))
                    yield pytest.param(
                        *(layout, sizes, rows, masked, options, 10 * option + shape),
                        id=f"{layout}-{levels}-{'masked-' if masked else ''}{name}",
                    )


@pytest.mark.parametrize(
    ("layout", "sizes", "rows", "masked", "options", "seed"), [*plain_cases()], indirect=["layout"]
)
def test_the_kernels_agree_with_the_plain_path(layout, sizes, rows, masked, options, seed):
    hierarchy = tree(sizes)
    data = batch(hierarchy, rows, seed, masked=masked)
    assert_same_as_plain(hierarchy, *data, **options)


@every_layout
@pytest.mark.parametrize(
    ("sizes", "masked"), [((10, 50, 140), False), ((85, 310, 3), True)], ids=["known", "masked"]
)
def test_several_levels_with_more_classes_than_the_smallest_tile(sizes, masked, layout):
    hierarchy = tree(sizes)
    assert_same_as_plain(hierarchy, *batch(hierarchy, 2, masked=masked))


@few_and_many
def test_several_losses_on_slices_of_one_tensor_before_one_backward(layout):
    hierarchy = tree((3, 5, 13))  # 3 x 21 entries per model: most slices are not aligned
    members = 3 if INTERPRETED else 10
    stacks = {
        fused: [kernel_loss(hierarchy, fused=fused) for _ in range(members)] for fused in (0, 1)
    }
    generator = torch.Generator().manual_seed(0)
    weight = {fused: torch.zeros(members, 4, 21, requires_grad=True) for fused in (0, 1)}
    for turn, rows in enumerate((3, 3, 2)):  # the last batch is smaller
        inputs = torch.randn(members, rows, 4, generator=generator)
        targets = torch.stack([batch(hierarchy, rows, seed)[1] for seed in range(members)])
        values = {}
        for fused, device in ((0, "cpu"), (1, DEVICE)):
            logits = (inputs @ weight[fused] + turn).to(device)
            losses = [loss.to(device) for loss in stacks[fused]]
            with nan_filled_memory():
                calls = zip(losses, logits, targets.to(device), strict=True)
                total = torch.stack([loss(one, labels) for loss, one, labels in calls])
                weight[fused].grad = None
                total.sum().backward()
            values[fused] = total.detach().cpu()
            with torch.no_grad():
                weight[fused] -= 3 * weight[fused].grad
        FLOAT32_SUMS.assert_close(values[1], values[0])
        FLOAT32_SUMS.assert_close(weight[1].grad, weight[0].grad)


@few_and_many
def test_the_kernels_agree_with_naive_loops(layout):
    hierarchy = Hierarchy.from_edges(
        [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e"), ("d", "f"), (None, "g")]
    )
    parents = [list(hierarchy.parents(c)) for c in range(len(hierarchy))]
    logits, targets, mask = batch(hierarchy, 5, seed=3, masked=True)
    expected = naive_hcl(
        logits.tolist(), targets.int().tolist(), parents, floor=0.1, mask=mask.tolist()
    )
    loss = kernel_loss(hierarchy).to(DEVICE)
    found = loss(*on_device(logits, targets, mask))
    assert found.item() == FLOAT32_SUMS.approx(expected["loss"])
    assert loss.last["selected"].tolist() == expected["selected"]
    assert loss.last["e_h"].item() == expected["e_h"]
    assert loss.last["l_hc"].item() == FLOAT32_SUMS.approx(expected["l_hc"])


@every_layout
@pytest.mark.parametrize("seed", [0, 1])
def test_ties_go_to_the_class_itself_then_to_the_first(seed, layout):
    hierarchy = tree((3, 2, 13))
    data = batch(hierarchy, 3, seed, ties=True)
    assert_same_as_plain(hierarchy, *data, curriculum=None)


@every_layout
def test_a_batch_in_which_all_entries_tie_and_are_errors(layout):
    hierarchy = tree((3, 2, 13))
    zeros = torch.zeros(2, len(hierarchy))
    assert_same_as_plain(hierarchy, zeros, zeros, None)
