"""The Triton kernels of NeighborHead against its plain path in double precision."""

import numpy as np
import pytest
import torch
from torch import nn

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels import neighbor_head, neighbor_launch
from hierlearn.kernels.neighbor_launch import Tiling
from hierlearn.memory import DISTANCES, LabelSets, NeighborHead, SetCandidates
from hierlearn.memory.candidates import Candidates
from kernels.kernel_cases import DEVICE, nan_filled_memory, tree
from kernels.kernel_imports import INTERPRETED
from tolerances import FLOAT32_SUMS

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
        monkeypatch.setattr(neighbor_head, "is_on_gpu", lambda _: True)
        monkeypatch.setattr(neighbor_launch, "FORWARD", SMALL)
        monkeypatch.setattr(neighbor_launch, "BACKWARD", SMALL)


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
    q, x = (one.to(dtype).to(device).requires_grad_() for one in (step.q, step.x))
    output = head.compare(q, x, candidates)
    pairs = zip(output.pair, step.upstream.to(device), grads, strict=True)
    sum((one * up.to(one.dtype)).sum() for one, up, used in pairs if used).backward()
    found = [*(one.detach() for one in output.pair), q.grad, x.grad, head.scale.log_scale.grad]
    if candidates.weight is not None and candidates.weight.requires_grad:
        found.append(candidates.weight.grad)
    return [one.cpu() for one in found]


def assert_near(found, expected, tolerance=GRADIENT):
    """Assert that matrices agree, relative to their largest entry."""
    assert found.isfinite().all()
    error = (found.double() - expected.double()).abs().max()
    assert error <= tolerance * expected.abs().max(), (float(error), float(expected.abs().max()))


def check(step, distance="squared", *, weighted=False, close=FLOAT32_SUMS, **options):
    """Assert that the kernels give what the plain path gives in double precision."""
    candidates = step.sparse(weighted=weighted)
    expected = outcome(
        step.head(distance), step, plain_candidates(candidates), torch.float64, **options
    )
    with nan_filled_memory():
        found = outcome(
            step.head(distance), step, moved(candidates, DEVICE), torch.float32, DEVICE, **options
        )
    for one, wanted in zip(found[:2], expected[:2], strict=True):
        close.assert_close(one.double(), wanted)
    for one, wanted in zip(found[2:], expected[2:], strict=True):
        assert_near(one, wanted)


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
