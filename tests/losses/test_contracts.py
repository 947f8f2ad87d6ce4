"""What every loss of the registry keeps to, whatever it computes."""

import copy
import pickle
import re

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES
from losses.random_batches import random_batch

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
ONE = Hierarchy.from_paths(["only"])
FLAT = Hierarchy.from_paths(["a", "b", "c"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])
TREES_ONLY = {"hxe", "soft-labels", "cond-softmax", "hinge", "lca-cost"}
# What cannot be rebuilt: the scores and choices of a training.
TEACHER = {"seeds", "epoch", "selected", "rewards", "scores", "epoch_losses", "epoch_counts"}
SELECTED = {"ever_selected"}  # without a floor, to warn of classes that learn nothing
STATE = {"teacher": TEACHER, "hcl-cl": SELECTED, "hcl-paper": SELECTED}
ROW_LOSSES = {*TREES_ONLY, "leaf-ce", "clems", "devise", "tsle"}
each_loss = pytest.mark.parametrize("name", LOSSES)


def hierarchies(name):
    return [TREE, ONE, FLAT] if name in TREES_ONLY else [TREE, ONE, FLAT, DAG]


def batch(hierarchy, rows=4, dtype=torch.float64, scale=1.0, seed=0):
    """Logits and the labels of one random class a row, closed."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, len(hierarchy), dtype=torch.float64, generator=generator)
    numbers = torch.randint(0, len(hierarchy), (rows,), generator=generator)
    targets = hierarchy.encode([[hierarchy.names[int(c)]] for c in numbers])
    return logits.to(dtype), targets


@each_loss
def test_gradients_are_right_to_the_last_digit(name):
    for hierarchy in hierarchies(name):
        for reduction in ("mean", "sum", "none"):
            loss = LOSSES[name](hierarchy, reduction=reduction)
            logits, targets = batch(hierarchy, seed=3)
            mask = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.8
            for known in (None, mask):
                logits = logits.detach().requires_grad_()
                assert torch.autograd.gradcheck(
                    lambda x, loss=loss, y=targets, m=known: loss(x, y, m), (logits,)
                )


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_float_type_works_and_half_precision_is_widened(name, dtype):
    for hierarchy in hierarchies(name):
        logits, targets = batch(hierarchy, dtype=dtype)
        logits.requires_grad_()
        # A softmax over leaves gives an inner label no mass of its own, whatever the precision.
        space = LabelSpace(hierarchy, hierarchy.names) if name == "hcl" else hierarchy
        loss = LOSSES[name](space)
        found = loss(logits, targets)
        assert found.dtype == torch.float32
        found.backward()
        assert logits.grad.dtype == dtype
        expected = LOSSES[name](space)(logits.detach().double(), targets)
        # Half-precision logits are exact in float32; what remains is float32 arithmetic.
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@each_loss
def test_targets_of_any_type_say_the_same(name):
    logits, targets = batch(TREE)
    loss = LOSSES[name](TREE)
    expected = loss(logits, targets)
    for dtype in (torch.uint8, torch.int64, torch.float32, torch.float64):
        torch.testing.assert_close(loss(logits, targets.to(dtype)), expected)


@each_loss
def test_an_empty_batch_costs_nothing(name):
    loss = LOSSES[name](TREE)
    logits = torch.zeros(0, len(TREE), requires_grad=True)
    found = loss(logits, torch.zeros(0, len(TREE), dtype=torch.bool))
    assert found.item() == 0
    found.backward()
    assert logits.grad.shape == (0, len(TREE))


@each_loss
def test_rows_without_labels_and_unknown_rows_are_finite(name):
    logits, targets = batch(TREE)
    targets[1] = False
    mask = torch.ones_like(targets)
    mask[2] = False
    logits.requires_grad_()
    found = LOSSES[name](TREE)(logits, targets, mask)
    found.backward()
    assert found.isfinite()
    assert logits.grad.isfinite().all()
    assert (logits.grad[2] == 0).all()
    nothing = LOSSES[name](TREE)(logits, targets, torch.zeros_like(mask))
    assert nothing.item() == 0


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_huge_logits_stay_finite(name, dtype):
    for hierarchy in hierarchies(name):
        for size in (1e4, -1e4):
            logits, targets = batch(hierarchy, dtype=dtype)
            logits = (torch.sign(logits) * size).requires_grad_()
            found = LOSSES[name](hierarchy)(logits, targets)
            found.backward()
            assert found.isfinite(), hierarchy
            assert logits.grad.isfinite().all()


@each_loss
def test_a_masked_entry_does_not_matter(name):
    logits, targets = batch(TREE, rows=3)
    mask = torch.ones_like(targets)
    mask[:, TREE.index("a/b/d")] = False
    loss = LOSSES[name](TREE, reduction="sum")
    if name in {"hxe", "soft-labels", "leaf-ce", "lca-cost", "hcl"}:
        pytest.skip("the softmax spreads its mass over all terminal classes, known or not")
    expected = loss(logits, targets, mask)
    other = logits.clone()
    other[:, TREE.index("a/b/d")] += 100
    torch.testing.assert_close(loss(other, targets, mask), expected)


@each_loss
def test_copies_compute_the_same(name):
    logits, targets = batch(TREE)
    loss = LOSSES[name](TREE)
    expected = loss(logits, targets)
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss), loss.to(torch.float64)):
        torch.testing.assert_close(twin(logits, targets), expected)
    assert type(loss).__name__ in repr(loss)


@each_loss
def test_nothing_that_the_hierarchy_can_rebuild_is_saved(name):
    assert LOSSES[name](TREE).state_dict().keys() == STATE.get(name, set())


@each_loss
def test_reductions_agree(name):
    logits, targets = batch(TREE)
    none, total, mean = (
        LOSSES[name](TREE, reduction=r)(logits, targets) for r in ("none", "sum", "mean")
    )
    assert none.shape == ((4,) if name in ROW_LOSSES else (4, len(TREE)))
    torch.testing.assert_close(none.sum(), total)
    torch.testing.assert_close(none.mean(), mean)


@each_loss
def test_batches_may_be_split(name):
    if name in {"hcl", "hcl-cl", "hcl-paper", "sample-curriculum"}:
        pytest.skip("the selection depends on the batch")
    logits, targets = batch(TREE, rows=6)
    loss = LOSSES[name](TREE, reduction="none")
    parts = [loss(logits[:2], targets[:2]), loss(logits[2:], targets[2:])]
    torch.testing.assert_close(torch.cat(parts), loss(logits, targets))


@each_loss
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
@pytest.mark.parametrize("backend", ["aot_eager"])
def test_compiled_in_one_graph_it_is_the_same(name, backend):
    torch._dynamo.reset()
    logits, targets = batch(TREE)
    mask = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.8
    for known in (None, mask):
        gradients, values = [], []
        loss = LOSSES[name](TREE)
        for run in (loss, torch.compile(loss, fullgraph=True, backend=backend)):
            x = logits.clone().requires_grad_()
            value = run(x, targets, known)
            value.backward()
            values.append(value.detach())
            gradients.append(x.grad)
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*gradients)


def test_logits_need_not_be_contiguous():
    logits, targets = batch(TREE, rows=5)
    strided = logits.t().contiguous().t()
    for name in LOSSES:
        loss = LOSSES[name](TREE)
        torch.testing.assert_close(loss(strided, targets), loss(logits, targets))


@each_loss
def test_shapes_and_types_that_do_not_fit(name):
    loss = LOSSES[name](TREE)
    logits, targets = batch(TREE)
    wrong = [
        ((logits[:, :-1], targets), "logits (4, 7) must be (N, 8)"),
        ((logits[0], targets[0]), "logits (8,) must be (N, 8)"),
        ((logits, targets[:3]), "targets (3, 8) must match logits (4, 8)"),
        ((logits, targets, targets[:, :2]), "mask (4, 2) must match logits (4, 8)"),
        ((logits, targets, targets.float()), "mask must be bool, not torch.float32"),
        ((logits.long(), targets), "logits must be floating point, not torch.int64"),
    ]
    for arguments, message in wrong:
        with pytest.raises(HierlearnError, match=re.escape(message)):
            loss(*arguments)
    with pytest.raises(HierlearnError, match="unknown reduction 'avg'; known: mean, none, sum"):
        LOSSES[name](TREE, reduction="avg")


@each_loss
def test_validate_names_the_row_and_the_class(name):
    logits, targets = batch(TREE)
    loss = LOSSES[name](TREE, validate=True)
    loss(logits, targets)
    broken = targets.clone()
    broken[2] = False
    broken[2, TREE.index("a/b/c")] = True
    message = "row 2: targets are not closed: 'a/b/c' is positive but its parent 'a/b' is not"
    with pytest.raises(HierlearnError, match=message):
        loss(logits, broken)
    unknown = torch.ones_like(targets)
    unknown[2, TREE.index("a/b")] = False
    loss(logits, broken, unknown)  # what is unknown cannot contradict
    outside = targets.double()
    outside[1, 0] = 1.5
    with pytest.raises(HierlearnError, match=r"row 1: the target of 'a' is 1\.5, outside \[0, 1\]"):
        loss(logits, outside)


@pytest.mark.parametrize("seed", range(5))
def test_classes_may_be_permuted(seed):
    """Renaming siblings permutes the columns; the loss must follow."""
    drawn = random_batch(seed, masked=False)
    h = drawn.hierarchy
    names = {name: f"{'zyxwvutsrqpo'[i]}" for i, name in enumerate(h.bare_names)}
    renamed = Hierarchy.from_parents(
        {
            names[h.bare_names[c]]: [names[h.bare_names[p]] for p in h.parents(c)]
            for c in range(len(h))
        }
    )
    order = [
        h.bare_names.index(next(k for k, v in names.items() if v == b)) for b in renamed.bare_names
    ]
    for name in LOSSES:
        torch.testing.assert_close(
            LOSSES[name](renamed)(drawn.logits[:, order], drawn.targets[:, order]),
            LOSSES[name](h)(drawn.logits, drawn.targets),
        )
