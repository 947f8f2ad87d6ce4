"""The Triton kernels of NeighborHead against its plain path in double precision."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels import neighbor_batch, neighbor_head
from hierlearn.kernels.neighbor_batch import Tiling
from hierlearn.memory import DISTANCES, LabelSets, NeighborHead, SetCandidates
from hierlearn.memory.compare import Candidates
from kernels.kernel_cases import DEVICE, nan_filled_memory, needs_gpu, tree
from kernels.kernel_imports import INTERPRETED
from tolerances import FLOAT32_MATMUL, FLOAT32_SUMS, HALF_ROUNDED

TREE = tree((3, 9, 27))
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("a", "e"), ("f", "d"), ("f", "g")])
ONE = Hierarchy.from_paths(["a"])
SMALL = Tiling(rows=16, cols=16, depth=16, warps=1, stages=1)
# Gradients are sums over candidates of both signs; errors are relative to the largest of a matrix.
GRADIENT = 2e-5


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Take small batches, in small tiles where they are interpreted."""
    monkeypatch.setattr(neighbor_head, "LEAST", 0)
    if INTERPRETED:
        monkeypatch.setattr(neighbor_batch, "FORWARD", SMALL)
        monkeypatch.setattr(neighbor_batch, "BACKWARD", SMALL)


class Step:
    """Embeddings of a batch and of candidates, with their labels."""

    def __init__(self, hierarchy, rows, count, width=5, *, labels=1, seed=0, spread=1.0):
        draw = np.random.default_rng(seed)
        classes = len(hierarchy)
        most = 2 * labels + 1
        names = [draw.integers(0, classes, draw.integers(1, most)).tolist() for _ in range(count)]
        if labels == 1:
            names = [[int(one)] for one in draw.integers(0, classes, count)]
        self.hierarchy = hierarchy
        self.labels = Labels(names, hierarchy, numbers=True)
        self.q = torch.from_numpy(draw.normal(size=(rows, width)) * spread).float()
        self.x = torch.from_numpy(draw.normal(size=(count, width)) * spread).float()
        self.row_keys = torch.from_numpy(draw.integers(0, 2 * count, rows))
        self.keys = torch.from_numpy(draw.permutation(2 * count)[:count])
        self.weight = torch.from_numpy(draw.uniform(0.2, 3, count)).float()
        self.weight[draw.integers(0, count, count // 4)] = 0.0
        self.upstream = torch.from_numpy(draw.normal(size=(2, rows, classes)))

    def sparse(self, *, weighted=False, weight=None):
        sets = LabelSets.from_labels(self.labels)
        if weighted:
            weight = self.weight
        return SetCandidates(sets, torch.from_numpy(sets.of_row), self.row_keys, self.keys, weight)

    def head(self, distance="squared", **options):
        options = {"scale": 0.7, "learn_scale": True, "smoothing": 1e-3, **options}
        return NeighborHead(self.hierarchy, nn.Identity(), distance=distance, **options)


def moved(candidates, device):
    values = {
        name: None if getattr(candidates, name) is None else getattr(candidates, name).to(device)
        for name in ("sets", "row_keys", "keys", "weight")
    }
    return SetCandidates(candidates.labels, **values)


def plain_candidates(candidates):
    """Return what the plain path reads, so that no kernel can be used."""
    weight = candidates.weight
    return Candidates(candidates.targets, candidates.excluded, None, weight)


def outcome(head, step, candidates, dtype, device="cpu", *, grads=(True, True)):
    """Return log p, log(1 - p) and the gradients of embeddings, weights and scale."""
    head = head.to(dtype).to(device)
    q, x = (one.to(dtype).to(device).clone().requires_grad_() for one in (step.q, step.x))
    output = head.compare(q, x, candidates)
    pairs = zip(output.pair, step.upstream.to(device), grads, strict=True)
    sum((one * up.to(one.dtype)).sum() for one, up, used in pairs if used).backward()
    found = [*(one.detach() for one in output.pair), q.grad, x.grad, head.scale.log_scale.grad]
    if candidates.weight is not None and candidates.weight.requires_grad:
        found.append(candidates.weight.grad)
    return [one.cpu() for one in found]


def assert_near(found, expected, tolerance=GRADIENT):
    """Assert that matrices agree, relative to their largest entry; where all are 0, to 0.1."""
    assert found.isfinite().all()
    error, largest = (found.double() - expected.double()).abs().max(), expected.abs().max()
    assert error <= tolerance * max(float(largest), 0.1), (float(error), float(largest))


def check(
    step, distance="squared", *, weighted=False, tolerance=GRADIENT, close=FLOAT32_SUMS, **options
):
    """Assert that the kernels give what the plain path gives in double precision."""
    candidates = step.sparse(weighted=weighted)
    plain = plain_candidates(candidates)
    expected = outcome(step.head(distance), step, plain, torch.float64, **options)
    with nan_filled_memory():
        found = outcome(
            step.head(distance), step, moved(candidates, DEVICE), torch.float32, DEVICE, **options
        )
    for one, wanted in zip(found[:2], expected[:2], strict=True):
        close.assert_close(one.double(), wanted)
    for one, wanted in zip(found[2:], expected[2:], strict=True):
        assert_near(one, wanted, tolerance)
    return found


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
def test_same_as_the_plain_path(hierarchy, weighted, distance):
    check(Step(hierarchy, 19, 70, labels=2), distance, weighted=weighted)


@pytest.mark.parametrize(
    ("rows", "count", "width"), [(1, 1, 1), (1, 3, 2), (16, 16, 16), (17, 33, 37), (40, 5, 3)]
)
def test_odd_shapes(rows, count, width):
    step = Step(TREE, rows, count, width)
    step.row_keys += 1000  # nobody is left out, else a row would have no candidate
    check(step)


def test_the_kernels_are_used(monkeypatch):
    def plain(*_):
        raise AssertionError

    step = Step(TREE, 5, 20)
    candidates = moved(step.sparse(), DEVICE)
    monkeypatch.setattr("hierlearn.memory.head.compare_plainly", plain)
    outcome(step.head(), step, candidates, torch.float32, DEVICE)
    for dtype, given in (
        (torch.float64, candidates),
        (torch.float32, plain_candidates(candidates)),
    ):
        with pytest.raises(AssertionError):
            outcome(step.head(), step, given, dtype, DEVICE)
    monkeypatch.setattr(neighbor_head, "LEAST", 1 << 40)
    with pytest.raises(AssertionError):
        outcome(step.head(), step, candidates, torch.float32, DEVICE)


def test_one_class():
    step = Step(ONE, 5, 40)
    step.row_keys += 1000
    check(step)
    assert len(step.sparse().labels.sets) == 1  # with several runs


def test_runs_over_several_tiles():
    check(Step(tree((3,)), 9, 75))


def test_answers_that_are_nearly_certain():
    """log(1 - p) is accurate where 1 - p is below the rounding of p."""
    step = Step(tree((2,)), 1, 2, 1)
    step.labels = Labels([[0], [1]], step.hierarchy, numbers=True)
    step.q[:], step.x[:, 0] = 0.0, torch.tensor([0.0, 17**0.5])
    step.row_keys += 1000
    head = step.head(smoothing=1e-9, scale=1.0).to(DEVICE)
    output = head.compare(step.q.to(DEVICE), step.x.to(DEVICE), moved(step.sparse(), DEVICE))
    expected = torch.tensor([[math.log(math.exp(-17) + 1e-9), 0.0]])
    FLOAT32_MATMUL.assert_close(output.log_not_p.detach().cpu(), expected)


def test_classes_of_many_sets():
    step = Step(TREE, 6, 90, labels=2)
    assert len(step.sparse().labels.table.arrays[-1]) > 0
    check(step)


def test_rows_without_any_candidate():
    step = Step(TREE, 20, 3)
    step.keys[:] = 7
    step.row_keys[:] = 8
    step.row_keys[[0, 4, 19]] = 7
    check(step)
    found = outcome(step.head(), step, moved(step.sparse(), DEVICE), torch.float32, DEVICE)
    FLOAT32_SUMS.assert_close(found[0][4].exp(), torch.full((len(TREE),), 1e-3))
    assert (found[2][[0, 4, 19]] == 0).all()


def test_a_row_left_out_is_as_if_it_were_not_there():
    step = Step(TREE, 1, 30)
    step.row_keys[0] = step.keys[11]
    step.q[0] = step.x[11]  # the nearest by far
    kept = torch.arange(30) != 11
    other = Step(TREE, 1, 30)
    other.q, other.x, other.upstream = step.q, step.x[kept], step.upstream
    other.keys, other.row_keys = step.keys[kept], torch.tensor([1000])
    names = [[int(one)] for one in step.labels.terminal_ids()[kept.numpy()]]
    other.labels = Labels(names, TREE, numbers=True)
    found, expected = check(step), check(other)
    FLOAT32_SUMS.assert_close(found[0], expected[0])
    assert (found[3][11] == 0).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_ties(distance):
    """Rows that coincide, with each other and with rows of the batch."""
    step = Step(TREE, 12, 48, 4)
    step.x[:24] = step.x[24:]
    step.x[5] = step.x[6]
    step.row_keys += 1000
    check(step, distance)
    step.x[:] = step.x[0]
    found = outcome(step.head(distance), step, moved(step.sparse(), DEVICE), torch.float32, DEVICE)
    share = 1e-3 + (1 - 2e-3) * step.labels.targets().double().mean(0)
    FLOAT32_SUMS.assert_close(found[0].double().exp(), share.expand(12, -1))


@pytest.mark.parametrize("distance", ["squared", "euclidean"])
def test_candidates_that_coincide_with_a_row_have_finite_gradients(distance):
    step = Step(TREE, 12, 48, 4)
    step.x[:12] = step.q
    found = outcome(step.head(distance), step, moved(step.sparse(), DEVICE), torch.float32, DEVICE)
    assert all(one.isfinite().all() for one in found)


def test_far_rows():
    """Logits of hundreds: most weights are exactly 0, and answers come from single rows."""
    check(Step(TREE, 10, 40, spread=4.0), tolerance=1e-3, close=FLOAT32_MATMUL)


def test_the_farther_rows_are_the_more_certain_answers_become():
    """The gradients of a row vanish, and no factor of theirs overflows."""
    for spread in (12.0, 60.0, 1e6, 1e-6):
        step = Step(TREE, 10, 40, spread=spread)
        candidates = moved(step.sparse(), DEVICE)
        found = outcome(step.head(smoothing=1e-6), step, candidates, torch.float32, DEVICE)
        assert all(one.isfinite().all() for one in found)


@pytest.mark.parametrize("distance", DISTANCES)
def test_rows_of_other_magnitudes_than_candidates(distance):
    for factor in (0.0, 1e-5, 1e5):
        step = Step(TREE, 10, 40)
        step.q = factor * step.q
        candidates = moved(step.sparse(), DEVICE)
        found = outcome(step.head(distance), step, candidates, torch.float32, DEVICE)
        assert all(one.isfinite().all() for one in found)
    step = Step(TREE, 10, 40)
    step.q *= 1e-3
    check(step, distance)


def test_far_from_the_origin():
    step = Step(TREE, 10, 40)
    step.q, step.x = step.q + 500, step.x + 500
    check(step, tolerance=2e-4)


def test_gradients_of_weights():
    step = Step(TREE, 9, 37)
    gradients = []
    for dtype, device in ((torch.float64, "cpu"), (torch.float32, DEVICE)):
        weight = step.weight.to(dtype).to(device).requires_grad_()
        candidates = step.sparse(weight=weight)
        if dtype == torch.float32:
            candidates = SetCandidates(
                candidates.labels,
                *(getattr(candidates, name).to(device) for name in ("sets", "row_keys", "keys")),
                weight,
            )
        gradients.append(outcome(step.head(), step, candidates, dtype, device)[-1])
    assert_near(gradients[1], gradients[0])


@pytest.mark.parametrize("used", [(True, False), (False, True)], ids=["log p", "log(1 - p)"])
def test_one_answer_alone(used):
    check(Step(TREE, 7, 25), grads=used)


def test_blocks_of_rows_and_chunks_of_candidates(monkeypatch):
    """Memory is bounded by both; the results do not depend on them."""
    step = Step(TREE, 50, 70)
    step.upstream[:, :16] *= 100  # rows of different magnitude
    whole = check(step)
    monkeypatch.setattr(neighbor_head, "CHUNK", 1)
    monkeypatch.setattr(neighbor_batch, "HELD", 1)
    parts = check(step)
    for one, other in zip(parts, whole, strict=True):
        assert_near(one, other, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    """Computed in single precision, and rounded at the end."""
    step = Step(TREE, 9, 37)
    step.q, step.x = (one.to(dtype).float() for one in (step.q, step.x))
    candidates = step.sparse()
    expected = outcome(step.head(), step, plain_candidates(candidates), torch.float64)
    head = step.head().to(DEVICE)
    q, x = (one.to(dtype).to(DEVICE).requires_grad_() for one in (step.q, step.x))
    output = head.compare(q, x, moved(candidates, DEVICE))
    assert output.log_p.dtype == dtype
    (output.log_p.float() * step.upstream[0].float().to(DEVICE)).sum().backward()
    HALF_ROUNDED.assert_close(output.log_p.detach().cpu().double(), expected[0])
    alone = outcome(
        step.head(), step, plain_candidates(candidates), torch.float64, grads=(True, False)
    )
    for one, wanted in ((q, alone[2]), (x, alone[3])):
        assert one.grad.dtype == dtype
        assert_near(one.grad.cpu(), wanted, 2e-2)


def test_matmuls_of_lower_precision_where_torch_allows_them():
    step = Step(TREE, 9, 37)
    exact = check(step)
    torch.set_float32_matmul_precision("high")
    try:
        found = outcome(step.head(), step, moved(step.sparse(), DEVICE), torch.float32, DEVICE)
    finally:
        torch.set_float32_matmul_precision("highest")
    for one, wanted in zip(found, exact, strict=True):
        assert_near(one, wanted, 5e-3)
    assert not torch.equal(found[2], exact[2])


def test_members():
    steps = [Step(TREE, 9, 37, seed=seed) for seed in (1, 2)]
    steps[1].labels = steps[0].labels
    parts = [step.sparse(weighted=True) for step in steps]
    names = ("sets", "row_keys", "keys", "weight")
    both = SetCandidates(
        parts[0].labels,
        *(torch.stack([getattr(part, name) for part in parts]).to(DEVICE) for name in names),
    )
    head = steps[0].head().to(DEVICE)
    head.scale.log_scale = nn.Parameter(torch.tensor([-0.4, 0.3], device=DEVICE))
    queries, others = (torch.stack([getattr(s, n) for s in steps]).to(DEVICE) for n in ("q", "x"))
    found = head.compare(queries, others, both)
    for member, step in enumerate(steps):
        own = step.head(scale=float(head.scale()[member].detach())).double()
        expected = own.compare(step.q.double(), step.x.double(), plain_candidates(parts[member]))
        FLOAT32_SUMS.assert_close(
            found.log_p[member].detach().cpu().double(), expected.log_p.detach()
        )


def test_gradients_that_are_differentiated_again():
    step = Step(TREE, 6, 20)
    found = []
    for dtype, device in ((torch.float64, "cpu"), (torch.float32, DEVICE)):
        candidates = moved(step.sparse(weighted=True), device)
        head = step.head().to(dtype).to(device)
        q, x = (one.to(dtype).to(device).requires_grad_() for one in (step.q, step.x))
        total = (head.compare(q, x, candidates).log_p * step.upstream[0].to(dtype).to(device)).sum()
        first = torch.autograd.grad(total, (q, x), create_graph=True)
        sum(one.square().sum() for one in first).backward()
        found.append([one.grad.cpu() for one in (q, x, head.scale.log_scale)])
    for one, wanted in zip(*found[::-1], strict=True):
        assert_near(one, wanted, 1e-4)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_embeddings_that_are_not_finite_give_nan(wrong):
    step = Step(TREE, 6, 20)
    step.q[3, 1] = wrong
    candidates = moved(step.sparse(), DEVICE)
    with torch.no_grad():
        output = step.head().to(DEVICE).compare(step.q.to(DEVICE), step.x.to(DEVICE), candidates)
    assert output.log_p[3].isnan().all()


@needs_gpu
def test_rows_times_candidates_are_never_held():
    step = Step(TREE, 2048, 60_000, 16)
    candidates = moved(step.sparse(), DEVICE)
    run = step.head().to(DEVICE)
    q, x = (one.to(DEVICE).requires_grad_() for one in (step.q, step.x))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run.compare(q, x, candidates).log_p.sum().backward()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 3 * 2 * neighbor_head.CHUNK + (1 << 28)
    assert 3 * 2 * neighbor_head.CHUNK + (1 << 28) < 2048 * 60_000 * 4
