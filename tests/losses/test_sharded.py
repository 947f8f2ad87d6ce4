"""Losses whose classes are in several shards, in threads, against the loss of the whole."""

import random

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.sharded import ShardedHierarchy
from hierlearn.hierarchy.shards import cut
from hierlearn.kernels.rows import has_numba
from hierlearn.losses import LOSSES, HCLLoss
from hierlearn.losses.sharded import RowBatch, ShardedLoss, chunks, kernels
from losses.random_batches import random_hierarchy
from shard_threads import in_shards
from tolerances import FLOAT64_SUMS, Tolerance

EXACT = Tolerance(rtol=1e-9, atol=1e-11)  # double precision, sums in another order
CASES = {
    "bce": {},
    "bce, softmax": {"link": "softmax"},
    "bce, conditional": {"link": "conditional"},
    "focal": {},
    "level-weighted": {},
    "mcloss": {},
    "mixed": {},
    "hcl": {},
    "hcl, sigmoid": {"link": "sigmoid"},
    "hcl, levels": {"scope": "levels"},
    "hcl, max": {"link": "max", "floor": 0.2},
    "hcl, of epochs": {"curriculum": "epoch"},
    "hcl-paper": {},
    "hcl-hier": {},
    "hcl-cl": {},
    "leaf-ce": {},
    "hxe": {},
    "lca-cost": {},
}


class Problem:
    """Random rows of a hierarchy, the last layer, and the loss of the whole."""

    def __init__(
        self, hierarchy, seed, *, dtype=torch.float64, rows=7, masked=False, weighted=False
    ):
        rng, draw = random.Random(seed), torch.Generator().manual_seed(seed)
        count = len(hierarchy)
        inner = [c for c in range(count) if rng.random() < 0.2]
        self.space = LabelSpace(hierarchy, inner)
        labels = [rng.sample(range(count), min(rng.randint(0, 2), count)) for _ in range(rows)]
        self.targets = torch.zeros(rows, count, dtype=torch.bool)
        for row, own in enumerate(labels):
            self.targets[row, list(hierarchy.closure(own))] = True
        self.mask = torch.rand(rows, count, generator=draw) > 0.2 if masked else None
        self.weight = torch.rand(rows, generator=draw, dtype=dtype) * 2 if weighted else None
        shapes = [(rows, 4), (4, count), (count,)]
        self.layer = [torch.randn(*shape, generator=draw, dtype=dtype) for shape in shapes]

    def whole(self, make, calls=1):
        """Return loss, gradients and the module of one process."""
        loss, layer = make(self.space), [one.clone().requires_grad_() for one in self.layer]
        for _ in range(calls):
            value = loss(torch.addmm(layer[2], *layer[:2]), self.targets, self.mask, self.weight)
        value.backward()
        return value.detach(), [one.grad for one in layer], loss

    def in_shards(self, make, world, chunk, calls=1):
        """Return the same of every shard, with the numbers of its classes."""
        shards = cut(self.space, world)

        def work(exchange):
            part = ShardedHierarchy(shards.shard(exchange.rank), exchange)
            loss, own = make(self.space), part.classes
            module = ShardedLoss(loss, part, chunk=chunk)
            features, weight, bias = self.layer
            layer = [features.clone(), weight[:, own], bias[own]]
            layer = [one.requires_grad_() for one in layer]
            mask = self.mask

            def take(rows):
                known = None if mask is None else mask[rows][:, own]
                return self.targets[rows][:, own], known

            for _ in range(calls):
                value = module(*layer, RowBatch(len(features), take, self.weight))
            value.backward()
            return value.detach(), [one.grad for one in layer], loss, own

        return in_shards(world, work)


def assert_equal(problem, make, world, chunk, tolerance=EXACT, calls=1):
    value, (features, weight, bias), whole = problem.whole(make, calls)
    found = problem.in_shards(make, world, chunk, calls)
    tolerance.assert_close(sum(one[1][0] for one in found), features)
    for mine, gradients, loss, own in found:
        tolerance.assert_close(mine, value)
        tolerance.assert_close(gradients[1:], [weight[:, own], bias[own]])
        if whole.selection is not None:
            assert_same_selection(whole, loss, tolerance)
    return whole


def assert_same_selection(whole, loss, tolerance):
    """Compare what was selected; of classes that tie, rounding decides in one process."""
    one, other = whole.statistics(), loss.statistics()
    tolerance.assert_close(other[1].double(), one[1].double())
    assert float(one[2]) == pytest.approx(float(other[2]))  # e_h
    assert one[0].sum() == other[0].sum()
    differ = (one[0] != other[0]).nonzero()[:, 0]
    tied = one[1][differ]
    assert not len(tied) or float(tied.max() - tied.min()) <= 1e-5 * float(tied.max())


def maker(case):
    name = case.split(",")[0]
    return lambda space: LOSSES[name](space, **CASES[case])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dag", [False, True], ids=["tree", "dag"])
def test_shards_are_the_whole(case, dag):
    if dag and LOSSES[case.split(",")[0]].needs_tree:
        return
    for seed, (world, masked, weighted, chunk) in enumerate(
        [(2, False, False, None), (3, True, False, 3), (5, False, True, 2), (2, True, True, 1)]
    ):
        rng = random.Random(seed)
        hierarchy = random_hierarchy(rng, most=30, dag=dag)
        while len(hierarchy) < 12:
            hierarchy = random_hierarchy(rng, most=30, dag=dag)
        problem = Problem(hierarchy, seed, masked=masked, weighted=weighted)
        assert_equal(problem, maker(case), world, chunk)


CHAIN = Hierarchy.from_paths(["a/b/c/d/e", "a/b/c/d/f"])
FLAT = Hierarchy.from_paths([f"c{k}" for k in range(9)])
LOPSIDED = Hierarchy.from_paths([*(f"a/b/c{k}" for k in range(20)), "a/d", "e", "f/g/h/i"])


@pytest.mark.parametrize("hierarchy", [CHAIN, FLAT, LOPSIDED], ids=["chain", "flat", "lopsided"])
@pytest.mark.parametrize("case", ["hcl", "hcl-paper", "leaf-ce", "mcloss"])
def test_odd_trees(hierarchy, case):
    for world in (2, 4):
        assert_equal(Problem(hierarchy, 1, rows=5), maker(case), world, None)


def test_the_epoch_curriculum_selects_alike():
    problem = Problem(LOPSIDED, 3)
    make = maker("hcl, of epochs")
    whole = assert_equal(problem, make, 2, 3, calls=2)
    whole.end_epoch()
    for _, _, loss, _ in problem.in_shards(make, 2, 3, calls=2):
        loss.end_epoch()
        assert torch.equal(loss.selected, whole.selected)
        FLOAT64_SUMS.assert_close(loss.epoch_losses, whole.epoch_losses)


def test_a_selection_leaves_classes_out():
    """The tests above would show little if all classes were selected."""
    value = Problem(LOPSIDED, 3).whole(maker("hcl-paper"))[2].selection
    assert 0 < int(value.sum()) < len(LOPSIDED)


@pytest.mark.skipif(not has_numba(), reason="the kernels need numba")
@pytest.mark.parametrize("case", ["hcl", "hcl, sigmoid", "hcl-cl", "bce2"])
@pytest.mark.parametrize("masked", [False, True])
def test_kernels_of_a_shard(case, masked, monkeypatch):
    """Trees of single precision that are large enough go through the CPU kernels."""
    options = {"base": "bce2"} if case == "bce2" else CASES[case]
    name = "hcl" if case == "bce2" else case.split(",")[0]
    tree = random.Random(5)
    parents = {f"n{k}": [f"n{tree.randrange(k)}"] if k > 6 else [] for k in range(900)}
    problem = Problem(
        Hierarchy.from_parents(parents), 2, dtype=torch.float32, rows=24, masked=masked
    )
    used = []
    made = kernels.KernelChunk
    monkeypatch.setattr(chunks, "KernelChunk", lambda *given: used.append(1) or made(*given))
    loose = Tolerance(rtol=1e-4, atol=1e-6)
    for world, chunk in ((2, None), (3, 10)):
        make = lambda space: LOSSES[name](space, **options)  # noqa: E731
        assert_equal(problem, make, world, chunk, loose)
    assert used


def test_ties_between_shards_are_ties():
    """Classes of two shards that one top class binds in all rows have equal sums, bit by bit."""
    tree = Hierarchy.from_paths([f"a/b{k}/c{k}" for k in range(8)] + ["z"])
    problem = Problem(tree, 0, dtype=torch.float32)
    problem.layer[2][0] = -50  # a is wrong wherever it is a label, and binds all below it
    problem.targets[:, 0] = True
    for _, _, loss, _ in problem.in_shards(maker("hcl, sigmoid"), 2, None):
        sums = loss.statistics()[1]
        below = [number for number, name in enumerate(tree.names) if name.startswith("a/")]
        assert len(set(sums[below].tolist())) == 1


def test_what_cannot_be_sharded():
    part = ShardedHierarchy(cut(FLAT, 2).shard(0), None)
    with pytest.raises(HierlearnError, match="reduction 'mean' or 'sum'"):
        ShardedLoss(HCLLoss(FLAT, reduction="none"), part)
    with pytest.raises(HierlearnError, match="SampleCurriculumLoss cannot be computed in shards"):
        ShardedLoss(LOSSES["sample-curriculum"](FLAT), part)
    with pytest.raises(HierlearnError, match="TeacherLoss cannot be computed in shards"):
        ShardedLoss(LOSSES["teacher"](FLAT), part)


def test_a_sum_is_not_divided():
    make = lambda space: HCLLoss(space, reduction="sum")  # noqa: E731
    assert_equal(Problem(LOPSIDED, 4), make, 2, 3)
