"""What ``test_hcl`` runs: the Triton kernels of HCL against the plain path and the naive oracle.

Under Triton's interpreter, on tensors of the host and with tiny tiles, or on a graphics processor.
"""

import copy
import math
import pickle
import warnings
from contextlib import contextmanager

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.kernels import hcl as kernels
from hierlearn.kernels import hcl_plan
from hierlearn.kernels.hcl_task import interpreted
from hierlearn.losses import HCLLoss, LinearHCLLoss, select_classes
from reference.hcl import hcl as oracle

ON = "cpu" if interpreted() else "cuda"
on_device = pytest.mark.skipif(ON == "cpu", reason="the interpreter has no device")

# Single precision, sums of at most some thousand terms, and exp with two units in the last place.
CLOSE = {"rtol": 2e-5, "atol": 1e-6}


WAYS = ["one tile a row", "tiles", "many classes"]
each_way = pytest.mark.parametrize("way", WAYS, indirect=True)
few_and_many = pytest.mark.parametrize("way", WAYS[::2], indirect=True)


@pytest.fixture(autouse=True)
def way(request, monkeypatch):
    """Take the small batches of these tests through the kernels for large ones, if so asked."""
    name = getattr(request, "param", "tiles")
    if name != "one tile a row":
        monkeypatch.setattr(hcl_plan, "ROW", 0)
        monkeypatch.setattr(hcl_plan, "SMALL", 0)
    if name == "many classes":
        monkeypatch.setattr(hcl_plan, "FEW", 0)
        monkeypatch.setattr(hcl_plan, "CHUNKS", (2, 2))
    if ON == "cpu":  # several tiles a level, without the wait for large ones
        small = {
            kernel: cut if "few" in kernel[0] else cut._replace(columns=16, rows=min(cut.rows, 4))
            for kernel, cut in hcl_plan.CUTS.items()
        }
        monkeypatch.setattr(hcl_plan, "CUTS", small)
        monkeypatch.setattr(hcl_plan, "GROUP", hcl_plan.TRIALS)
    return name


def tree(sizes):
    """Return a tree with these level sizes, children spread evenly."""
    parents, above = [], (0, 0)
    for size in sizes:
        begin, (first, count) = len(parents), above
        parents += [first + place * count // size if count else -1 for place in range(size)]
        above = (begin, size)
    return Hierarchy.from_parents(parents)


def batch(hierarchy, rows, seed=0, *, scale=2.0, ties=False, masked=False):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, len(hierarchy), generator=generator)
    if ties:
        logits = logits.round()
    numbers = torch.randint(0, len(hierarchy), (rows,), generator=generator)
    targets = hierarchy.encode([[int(c)] for c in numbers])
    mask = torch.rand(logits.shape, generator=generator) < 0.7 if masked else None
    return logits, targets, mask


def step(loss, logits, targets, mask, upstream=1.7):
    """Return loss and gradient, on the host."""
    x = logits.detach().clone().requires_grad_()
    value = loss(x, targets, mask)
    (upstream * value).backward()
    return value.detach().cpu(), x.grad.cpu()


@contextmanager
def poisoned():
    """Let torch fill fresh memory with NaN, so that what no kernel wrote shows."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def compare(hierarchy, logits, targets, mask, **options):
    """Assert that kernels and plain path agree; return the loss of the kernels."""
    plain, fused = (HCLLoss(hierarchy, fused=f, **options) for f in (False, True))
    expected = step(plain, logits, targets, mask)
    known = None if mask is None else mask.to(ON)
    with poisoned():
        found = step(fused.to(ON), logits.to(ON), targets.to(ON), known)
    torch.testing.assert_close(found[0], expected[0], **CLOSE)
    torch.testing.assert_close(found[1], expected[1], **CLOSE)
    last = {name: value.cpu() for name, value in fused.last.items()}
    torch.testing.assert_close(last, plain.last, **CLOSE)
    return fused


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
    {"normalize": "mean", "base": "focal"},
    {"threshold": 4.5, "floor": 0.3},
    {"curriculum": None},
    {"curriculum": "epoch", "scope": None},
    {"scope": None, "base": "focal", "reduction": "sum"},
]


@each_way
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_the_kernels_are_the_plain_path(number, way):
    turn = number + WAYS.index(way)
    for place, (sizes, rows) in enumerate(SHAPES):
        if (place - turn) % 3 and ON == "cpu":
            continue  # the interpreter is slow: every option on every shape, but one way
        hierarchy = tree(sizes)
        for masked in [(turn + place) % 2 == 0] if ON == "cpu" else (False, True):
            data = batch(hierarchy, rows, seed=10 * number + place, masked=masked)
            compare(hierarchy, *data, **OPTIONS[number])


@each_way
@pytest.mark.parametrize("sizes", [(10, 50, 140), (85, 310, 3)])
def test_several_levels_of_more_classes_than_the_smallest_tile(sizes):
    hierarchy = tree(sizes)
    for masked in (False, True):
        compare(hierarchy, *batch(hierarchy, 2, masked=masked))


@few_and_many
def test_ten_losses_of_one_stack_before_one_backward():
    hierarchy = tree((3, 5, 13))  # 3 x 21 entries a model: most begin at addresses aligned to none
    members = 3 if ON == "cpu" else 10
    stacks = {fused: [HCLLoss(hierarchy, fused=fused) for _ in range(members)] for fused in (0, 1)}
    generator = torch.Generator().manual_seed(0)
    weight = {fused: torch.zeros(members, 4, 21, requires_grad=True) for fused in (0, 1)}
    for turn, rows in enumerate((3, 3, 2)):  # the last batch is smaller
        inputs = torch.randn(members, rows, 4, generator=generator)
        targets = torch.stack([batch(hierarchy, rows, seed)[1] for seed in range(members)])
        values = {}
        for fused, device in ((0, "cpu"), (1, ON)):
            logits = (inputs @ weight[fused] + turn).to(device)
            with poisoned():
                total = torch.stack(
                    [
                        loss.to(device)(one, labels)
                        for loss, one, labels in zip(
                            stacks[fused], logits, targets.to(device), strict=True
                        )
                    ]
                )
                weight[fused].grad = None
                total.sum().backward()
            values[fused] = total.detach().cpu()
            with torch.no_grad():
                weight[fused] -= 3 * weight[fused].grad
        torch.testing.assert_close(values[1], values[0], **CLOSE)
        torch.testing.assert_close(weight[1].grad, weight[0].grad, **CLOSE)


@few_and_many
@pytest.mark.parametrize("base", ["bce", "focal"])
def test_the_kernels_are_the_naive_loops(base):
    hierarchy = Hierarchy.from_edges(
        [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e"), ("d", "f"), (None, "g")]
    )
    parents = [list(hierarchy.parents(c)) for c in range(len(hierarchy))]
    logits, targets, mask = batch(hierarchy, 5, seed=3, masked=True)
    expected = oracle(
        logits.tolist(), targets.int().tolist(), parents, base=base, floor=0.1, mask=mask.tolist()
    )
    loss = HCLLoss(hierarchy, base=base, fused=True).to(ON)
    found = loss(logits.to(ON), targets.to(ON), mask.to(ON))
    assert found.item() == pytest.approx(expected["loss"], rel=1e-5)
    assert loss.last["selected"].tolist() == expected["selected"]
    assert loss.last["e_h"].item() == expected["e_h"]
    assert loss.last["l_hc"].item() == pytest.approx(expected["l_hc"], rel=1e-5)


@each_way
@pytest.mark.parametrize("base", ["bce", "focal"])
def test_ties_go_to_the_class_itself_then_to_the_first(base):
    hierarchy = tree((3, 2, 13))
    for seed in range(2):
        compare(hierarchy, *batch(hierarchy, 3, seed, ties=True), base=base, curriculum=None)
    logits, targets = torch.zeros(2, len(hierarchy)), torch.zeros(2, len(hierarchy))
    compare(hierarchy, logits, targets, None, base=base)  # all entries tie, and all are errors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_read_as_it_is(dtype):
    hierarchy = tree((2, 5, 17))
    for masked in (False, True):
        logits, targets, mask = batch(hierarchy, 6, masked=masked)
        logits = logits.to(dtype)
        plain, fused = (HCLLoss(hierarchy, fused=f) for f in (False, True))
        value, gradient = step(plain, logits.float(), targets, mask)
        known = None if mask is None else mask.to(ON)
        found = step(fused.to(ON), logits.to(ON), targets.to(ON), known)
        assert found[0].dtype == torch.float32
        assert found[1].dtype == dtype
        torch.testing.assert_close(found[0], value, **CLOSE)
        torch.testing.assert_close(found[1], gradient.to(dtype), rtol=8e-3, atol=1e-4)
        assert fused.last["selected"].tolist() == plain.last["selected"].tolist()


def test_targets_of_any_type_say_the_same():
    hierarchy = tree((2, 14))
    logits, targets, _ = batch(hierarchy, 3)
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    expected = step(loss, logits.to(ON), targets.to(ON), None)
    for dtype in (torch.uint8, torch.int64, torch.float32, torch.float64, torch.bfloat16):
        found = step(loss, logits.to(ON), targets.to(dtype).to(ON), None)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_rows_may_begin_anywhere_and_columns_lie_apart():
    hierarchy = tree((3, 13))
    logits, targets, mask = (one.to(ON) for one in batch(hierarchy, 6, masked=True))
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    expected = step(loss, logits, targets, mask)
    wide = torch.zeros(6, 24, device=ON)
    wide[:, 2:18] = logits
    bytes_ = torch.zeros(6, 24, dtype=torch.bool, device=ON)
    bytes_[:, 4:20] = targets
    apart = torch.zeros(6, 32, dtype=torch.bool, device=ON)
    apart[:, ::2] = targets
    across = mask.t().contiguous().t()
    for views in (
        (wide[:, 2:18], targets, mask),
        (logits, bytes_[:, 4:20], mask),
        (logits, apart[:, ::2], across),
    ):
        x = views[0].detach().requires_grad_()
        value = loss(x, *views[1:])
        (1.7 * value).backward()
        torch.testing.assert_close(value.cpu(), expected[0], **CLOSE)
        torch.testing.assert_close(x.grad.cpu(), expected[1], **CLOSE)


def test_no_rows_cost_nothing():
    hierarchy = tree((2, 3))
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    x = torch.zeros(0, 5, device=ON, requires_grad=True)
    value = loss(x, torch.zeros(0, 5, dtype=torch.bool, device=ON))
    value.backward()
    assert value.item() == 0
    assert x.grad.shape == (0, 5)


def test_rows_without_a_known_entry():
    hierarchy = tree((2, 9))
    logits, targets, mask = batch(hierarchy, 4, masked=True)
    mask[1] = False
    compare(hierarchy, logits, targets, mask)
    compare(hierarchy, logits, targets, torch.zeros_like(mask))


@few_and_many
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_huge_logits(size):
    hierarchy = tree((2, 3, 12))
    logits, targets, _ = batch(hierarchy, 3)
    logits[1, 3] = size
    compare(hierarchy, logits, targets, None)


@few_and_many
@pytest.mark.parametrize("base", ["bce", "focal"])
def test_infinite_logits(base):
    hierarchy = tree((2, 3, 12))
    logits, targets = torch.zeros(3, 17), torch.zeros(3, 17, dtype=torch.bool)
    logits[1, 3] = -math.inf  # right beyond doubt: costs nothing itself
    loss = HCLLoss(hierarchy, base=base, fused=True, reduction="sum", curriculum=None).to(ON)
    finite, gradient = step(loss, logits.to(ON), targets.to(ON), None)
    logits[1, 3] = -1e4
    expected = step(loss, logits.to(ON), targets.to(ON), None)
    torch.testing.assert_close((finite, gradient), expected)
    logits[1, 3] = math.inf  # wrong beyond doubt
    value, gradient = step(loss, logits.to(ON), targets.to(ON), None)
    assert value == math.inf
    assert gradient.isfinite().all()


@few_and_many
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_a_logit_that_is_no_number_shows_in_loss_and_gradient(floor):
    hierarchy = tree((2, 3, 12))
    for place in (0, 16):
        logits, targets, _ = batch(hierarchy, 3)
        logits[1, place] = math.nan
        loss = HCLLoss(hierarchy, fused=True, floor=floor).to(ON)
        value, gradient = step(loss, logits.to(ON), targets.to(ON), None)
        assert value.isnan()
        assert floor == 0.0 or gradient[1, place].isnan()


@few_and_many
def test_evaluation_a_second_pass_and_an_upstream_gradient():
    hierarchy = tree((2, 3, 12))
    logits, targets, _ = (None if one is None else one.to(ON) for one in batch(hierarchy, 4))
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    value, gradient = step(loss, logits, targets, None, upstream=3.0)
    with torch.no_grad():
        torch.testing.assert_close(loss(logits, targets).cpu(), value)
    x = logits.clone().requires_grad_()
    again = loss(x, targets)
    again.backward(retain_graph=True)
    (2 * again).backward()
    torch.testing.assert_close(x.grad.cpu(), gradient)
    x = logits.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(x, targets), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        first.sum().backward()


@few_and_many
def test_a_second_pass_needs_a_retained_graph_and_tensors_as_they_were():
    hierarchy = tree((2, 3))
    logits, targets, mask = (one.to(ON) for one in batch(hierarchy, 4, masked=True))
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    x = logits.clone().requires_grad_()
    value = loss(x, targets, mask)
    value.backward()
    with pytest.raises(RuntimeError, match="retain"):
        value.backward()
    for changed in (x, targets, mask):
        value = loss(x, targets, mask)
        value.backward(retain_graph=True)
        with torch.no_grad():
            changed.copy_(changed.clone())
        with pytest.raises(RuntimeError, match=r"changed in place|modified by an inplace"):
            value.backward()


def test_a_known_batch_is_still_checked():
    hierarchy = tree((2, 3))
    logits, targets, _ = (None if one is None else one.to(ON) for one in batch(hierarchy, 4))
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    expected = loss(logits, targets)
    assert loss(logits, targets) == expected
    with pytest.raises(HierlearnError, match="targets"):
        loss(logits, targets[:3])
    with pytest.raises(HierlearnError, match="mask must be bool"):
        loss(logits, targets, targets.float())
    loss.validate = True
    with pytest.raises(HierlearnError, match="outside"):
        loss(logits, targets.float() + 1)


def test_autocast_does_not_coarsen_the_loss():
    hierarchy = tree((2, 3))
    logits, targets, _ = (None if one is None else one.to(ON) for one in batch(hierarchy, 4))
    for options in ({}, {"curriculum": None}):
        loss = HCLLoss(hierarchy, fused=True, **options).to(ON)
        expected = loss(logits, targets)
        with torch.autocast(ON, torch.bfloat16):
            assert loss(logits, targets) == expected


def test_copies_are_made_without_the_kernels():
    hierarchy = tree((2, 3))
    logits, targets, _ = (None if one is None else one.to(ON) for one in batch(hierarchy, 2))
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    expected = loss(logits, targets)
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert twin.last == {}
        assert twin(logits, targets) == expected


def test_options_may_change_between_calls():
    hierarchy = tree((2, 3))
    logits, targets, _ = (None if one is None else one.to(ON) for one in batch(hierarchy, 4))
    loss = HCLLoss(hierarchy, fused=True, floor=0.0, reduction="sum").to(ON)
    total = loss(logits, targets)
    loss.reduction = "mean"
    torch.testing.assert_close(loss(logits, targets), total / logits.numel(), **CLOSE)
    assert loss.ever_selected.tolist() == loss.last["selected"].tolist()


@few_and_many
def test_the_linear_layer_in_chunks():
    hierarchy = tree((2, 3, 12))
    _, targets, mask = batch(hierarchy, 5, masked=True)
    torch.manual_seed(0)
    layer = LinearHCLLoss(hierarchy, 4, chunk=2, fused=True).to(ON)
    inputs = torch.randn(5, 4).to(ON)
    plain = HCLLoss(hierarchy, fused=False).to(ON)
    gradients = []
    for loss in (layer, lambda x, y, m: plain(layer.logits(x), y, m)):
        layer.zero_grad()
        x = inputs.clone().requires_grad_()
        value = loss(x, targets.to(ON), mask.to(ON))
        (3 * value).backward()
        gradients.append([value.detach(), x.grad, layer.weight.grad, layer.bias.grad])
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert layer.loss.last["selected"].tolist() == plain.last["selected"].tolist()


def chosen(sums, errors, *, floor=0.0, threshold=None, by_rows=False):
    """Run the kernels of the selection alone."""
    count = len(sums)
    selection = kernels.Selection(floor, by_rows, threshold is not None)
    x = torch.zeros(1, count, device=ON)
    plan = hcl_plan.Plan(
        kernels.Task((count,), kernels.Base(), False, selection), x, x.byte(), None
    )
    block = torch.zeros(plan.memory.size, dtype=torch.uint8, device=ON)
    plan.memory.array(block, "partials")[:count] = sums.to(ON)
    plan.memory.array(block, "counts")[0] = errors
    loss = torch.empty((), device=ON)
    limit = torch.tensor(threshold or 0.0, dtype=torch.float64, device=ON)
    plan.run(("select", "threshold", "loss"), block, (limit, loss))
    return kernels.Found(plan, block).array("selected").cpu(), loss.item()


@few_and_many
@pytest.mark.parametrize("kind", ["random", "ties", "zeros", "tiny", "infinite", "all"])
def test_the_selection_is_that_of_the_sort(kind):
    for seed, count in enumerate((1, 70)):
        generator = torch.Generator().manual_seed(seed)
        sums = 3 * torch.rand(count, generator=generator)
        errors = count // 2
        if kind == "ties":
            sums = sums.round()
        elif kind == "zeros":
            sums.zero_()
        elif kind == "tiny":
            sums *= 1e-9
        elif kind == "infinite":
            sums[::2] = math.inf
        elif kind == "all":
            errors = 1000
        for threshold in (None, -2.0 if kind == "random" else count / 3):
            selected, loss = chosen(sums, errors, threshold=threshold, floor=0.0)
            limit = count + torch.tensor(float(errors)) if threshold is None else threshold
            assert selected.tolist() == select_classes(sums, limit).tolist()
            assert loss == pytest.approx(sums[selected].double().sum().item(), rel=1e-6)


@few_and_many
def test_the_last_tie_that_fits_is_taken():
    sums = torch.tensor([2.0, 1.0, 2.0, 2.0, 2.0])
    for threshold, taken in ((6.9, 2), (7.0, 3), (9.9, 3), (10.0, 4)):
        selected, loss = chosen(sums, 0, threshold=threshold, floor=0.5)
        assert selected.tolist() == select_classes(sums, threshold).tolist()
        assert selected.sum() == taken
        assert loss == pytest.approx(0.5 * 9 + 0.5 * (1 + 2 * (taken - 1)))


# ---------------------------------------------------------------------- on a device alone


@on_device
def test_large_batches_on_the_device():
    for sizes, rows in (((10, 100, 1000, 8890), 600), ((7, 5000, 6001), 64), ((30000,), 33)):
        hierarchy = tree(sizes)
        logits, targets, _ = batch(hierarchy, rows)
        data = (logits.to(ON), targets.to(ON))
        plain, fused = (HCLLoss(hierarchy, fused=f).to(ON) for f in (False, True))
        expected, found = (step(loss, *data, None) for loss in (plain, fused))
        torch.testing.assert_close(found[0], expected[0], **CLOSE)
        # An owed weight sums thousands of classes; what differs is the order.
        torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-9)


@on_device
def test_every_run_gives_the_same_bits():
    hierarchy = tree((10, 100, 3000))
    logits, targets, mask = (one.to(ON) for one in batch(hierarchy, 300, masked=True))
    torch.use_deterministic_algorithms(True)
    try:
        runs = [
            step(HCLLoss(hierarchy, fused=True).to(ON), logits, targets, mask) for _ in range(3)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    for value, gradient in runs[1:]:
        assert torch.equal(value, runs[0][0])
        assert torch.equal(gradient, runs[0][1])


@on_device
def test_the_host_never_waits_and_a_graph_replays():
    hierarchy = tree((3, 20, 60))
    loss = HCLLoss(hierarchy, fused=True).to(ON)
    logits, targets, _ = batch(hierarchy, 50)
    x, y = logits.to(ON).requires_grad_(), targets.to(ON)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            x.grad = None
            loss(x, y).backward()
    torch.cuda.current_stream().wait_stream(side)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        x.grad = None
        loss(x, y).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    x.grad = None
    with torch.cuda.graph(graph):
        value = loss(x, y)
        value.backward()
    other, labels, _ = batch(hierarchy, 50, seed=1)
    with torch.no_grad():
        x.copy_(other)
    y.copy_(labels)
    graph.replay()
    expected = step(HCLLoss(hierarchy, fused=False), other, labels, None, upstream=1.0)
    torch.testing.assert_close(value.detach().cpu(), expected[0], **CLOSE)
    torch.testing.assert_close(x.grad.cpu(), expected[1], **CLOSE)


@on_device
def test_two_hundred_steps_end_at_the_same_loss():
    hierarchy = tree((4, 16, 80))
    logits, targets, _ = batch(hierarchy, 64)
    ends = {}
    for fused in (False, True):
        torch.manual_seed(0)
        layer = torch.nn.Linear(100, 100).to(ON)
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
        loss = HCLLoss(hierarchy, fused=fused, floor=0.1).to(ON)
        for _ in range(200):
            optimizer.zero_grad()
            value = loss(layer(logits.to(ON)), targets.to(ON))
            value.backward()
            optimizer.step()
        ends[fused] = value.item()
    assert ends[True] == pytest.approx(ends[False], rel=1e-2)
    assert ends[True] < 0.2


@on_device
def test_one_gradient_and_little_more_is_held():
    hierarchy = tree((10, 100, 9890))
    x = torch.randn(4096, 10000, device=ON, requires_grad=True)
    y = torch.zeros(4096, 10000, dtype=torch.bool, device=ON)
    loss = HCLLoss(hierarchy).to(ON)
    loss(x, y).backward()
    x.grad = None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss(x, y).backward()
    assert torch.cuda.max_memory_allocated() - before < 1.03 * x.nbytes
