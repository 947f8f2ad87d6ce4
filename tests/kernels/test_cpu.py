"""The CPU kernels against the plain paths in double precision, and what surrounds them."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.kernels import choose, cpu
from hierlearn.links import SoftmaxLink
from hierlearn.losses import LOSSES, BCELoss, HCLLoss, LeafCELoss

pytest.importorskip("numba", reason="the CPU kernels need numba")

HCL = {
    "hcl, softmax, ancestors": {},
    "hcl, softmax, no constraint": {"link": "softmax", "scope": None, "floor": 0.3},
    "hcl, sigmoid, ancestors": {"link": "sigmoid", "scope": "ancestors"},
    "hcl, sigmoid, levels": {"link": "sigmoid", "scope": "levels", "floor": 0.1},
    "hcl, sigmoid, no constraint": {"link": "sigmoid", "scope": None},
    "hcl, base 2": {"base": "bce2"},
    "hcl, no curriculum": {"curriculum": None, "link": "softmax", "scope": "ancestors"},
}
PLAIN = ("bce", "focal", "mcloss", "mixed", "leaf-ce", "hxe", "soft-labels", "cond-softmax")
NAMES = (*PLAIN, *HCL)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels take batches that would be too small for them."""
    monkeypatch.setattr(choose, "FEWEST", 1)
    monkeypatch.setattr(cpu, "SHARE", 64)


def make(name: str, space: LabelSpace, **options: Any) -> Any:
    if name in HCL:
        return HCLLoss(space, validate=False, **HCL[name], **options)
    return LOSSES[name](space, validate=False, **options)


def random_tree(seed: int, classes: int) -> LabelSpace:
    rng = np.random.default_rng(seed)
    parents = [-1] * max(1, classes // 8)
    while len(parents) < classes:
        parents.append(int(rng.integers(0, len(parents))))
    hierarchy = Hierarchy.from_parents(parents)
    leaves = set(hierarchy.leaves.tolist())
    inner = [c for c in range(len(hierarchy)) if c not in leaves and rng.random() < 0.4]
    return LabelSpace(hierarchy, inner)


def random_batch(space: LabelSpace, seed: int, scale: float, count: int = 40) -> Any:
    rng = np.random.default_rng(seed)
    names = space.hierarchy.names
    labels = [
        [names[int(c)] for c in rng.choice(space.terminals, size=int(rng.integers(0, 3)))]
        for _ in range(count)
    ]
    logits = torch.from_numpy(rng.normal(size=(count, len(space)))).float() * scale
    return logits, space.hierarchy.encode(labels)


def value_and_gradient(loss: Any, logits: torch.Tensor, *batch: Any) -> Any:
    x = logits.clone().requires_grad_()
    value = loss(x, *batch)
    value.sum().backward()
    return value.detach(), x.grad


def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "has_numba", lambda: False)


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of rows whenever a kernel runs."""
    seen: list[int] = []
    whole = cpu.on_threads

    def counting(work: Any, count: int, entries: int) -> Any:
        seen.append(count)
        return whole(work, count, entries)

    monkeypatch.setattr(cpu, "on_threads", counting)
    return seen


@pytest.mark.parametrize("scale", [1.0, 5.0, 50.0, 300.0])
@pytest.mark.parametrize("name", NAMES)
def test_equal_to_the_plain_path_in_double_precision(
    monkeypatch: pytest.MonkeyPatch, name: str, scale: float
) -> None:
    seen = count_runs(monkeypatch)
    for seed in range(4):
        space = random_tree(seed, (3, 17, 40, 60)[seed])
        logits, targets = random_batch(space, seed, scale)
        if seed % 2:
            targets = targets.float()
        weight = torch.rand(len(logits)) if seed == 2 and name in PLAIN else None
        seen.clear()
        found = value_and_gradient(make(name, space), logits, targets, None, weight)
        assert seen, "no kernel ran"
        wanted = value_and_gradient(make(name, space), logits.double(), targets, None, weight)
        compare(found, wanted, scale)


def compare(found: Any, wanted: Any, scale: float) -> None:
    value, gradient = wanted
    torch.testing.assert_close(found[0].double(), value, rtol=3e-6, atol=1e-6)
    size = float(gradient.abs().max()) + 1e-12
    # Differences of logits are rounded: with logits of hundreds that is what limits both paths.
    allowed = 3e-6 if scale < 100 else 3e-5
    assert float((found[1] - gradient).abs().max()) <= allowed * size


@pytest.mark.parametrize("name", NAMES)
def test_masks(name: str) -> None:
    for seed in range(3):
        space = random_tree(seed, 30)
        logits, targets = random_batch(space, seed, 3.0)
        mask = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.8
        found = value_and_gradient(make(name, space), logits, targets, mask)
        wanted = value_and_gradient(make(name, space), logits.double(), targets, mask)
        compare(found, wanted, 3.0)


@pytest.mark.parametrize("name", NAMES)
def test_ties(name: str) -> None:
    """Rounded logits tie often; who attains a maximum must be who the plain path says."""
    for seed in range(4):
        space = random_tree(seed, 30)
        logits, targets = random_batch(space, seed, 1.0)
        # Where all class sums tie, their order is a matter of rounding in both paths.
        logits = logits.round() if seed or name in HCL else torch.zeros_like(logits)
        found = value_and_gradient(make(name, space), logits, targets)
        wanted = value_and_gradient(make(name, space), logits.double(), targets)
        compare(found, wanted, 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_reductions(name: str, reduction: Any) -> None:
    space = random_tree(1, 25)
    logits, targets = random_batch(space, 1, 2.0)
    loss = make(name, space, reduction=reduction)
    found = value_and_gradient(loss, logits, targets)
    compare(found, value_and_gradient(loss, logits.double(), targets), 2.0)


@pytest.mark.parametrize("name", NAMES)
def test_members_and_bfloat16(name: str) -> None:
    space = random_tree(2, 25)
    batches = [random_batch(space, seed, 2.0) for seed in range(3)]
    logits = torch.stack([one for one, _ in batches]).bfloat16()
    targets = torch.stack([two for _, two in batches])
    found = value_and_gradient(make(name, space), logits, targets)
    wanted = value_and_gradient(make(name, space), logits.double(), targets)
    assert found[1].dtype == torch.bfloat16
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=3e-6, atol=1e-6)
    torch.testing.assert_close(found[1].double(), wanted[1], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_takes_the_plain_path(
    monkeypatch: pytest.MonkeyPatch, name: str, bad: float
) -> None:
    space = random_tree(3, 20)
    logits, targets = random_batch(space, 3, 1.0)
    logits[7, space.hierarchy.leaves[0]] = bad
    found = value_and_gradient(make(name, space), logits, targets)
    without_kernels(monkeypatch)
    wanted = value_and_gradient(make(name, space), logits, targets)
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_twice_and_graphs_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    space = random_tree(4, 20)
    logits, targets = random_batch(space, 4, 1.0)

    def curvature() -> torch.Tensor:
        x = logits.clone().requires_grad_()
        (first,) = torch.autograd.grad(make(name, space)(x, targets), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    found = curvature()
    x = logits.clone().requires_grad_()
    value = make(name, space)(x, targets)
    once = torch.autograd.grad(value, x, retain_graph=True)[0].clone()
    again = torch.autograd.grad(value, x)[0]
    assert torch.equal(once, again)
    without_kernels(monkeypatch)
    torch.testing.assert_close(found, curvature(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_threads_gives_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    space = random_tree(5, 50)
    logits, targets = random_batch(space, 5, 2.0, count=64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = value_and_gradient(make(name, space), logits, targets)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    before = threading.active_count()
    shared = value_and_gradient(make(name, space), logits, targets)
    assert threading.active_count() >= before
    torch.testing.assert_close(shared, alone, rtol=1e-6, atol=1e-9)


def test_ranges_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    where: set[int] = set()

    def work(begin: int, end: int) -> tuple[int, int]:
        where.add(threading.get_ident())
        return begin, end

    assert cpu.on_threads(work, 10, 1000) == [(0, 5), (5, 10)]
    if cpu.openmp() is not None:
        assert len(where) == 2
    assert cpu.on_threads(work, 10, 100) == [(0, 10)]  # too few entries for two
    assert cpu.on_threads(work, 1, 1000) == [(0, 1)]
    monkeypatch.setattr(cpu, "openmp", lambda: None)
    assert cpu.on_threads(work, 10, 1000) == [(0, 10)]
    monkeypatch.setattr(cpu, "OWN_SHARE", 64)
    assert cpu.on_threads(work, 11, 1000) == [(0, 5), (5, 11)]


def test_an_error_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def work(begin: int, end: int) -> None:
        if begin:
            raise ValueError(f"rows {begin} to {end}")

    with pytest.raises(ValueError, match="rows 5 to 10"):
        cpu.on_threads(work, 10, 1000)


def test_a_fork_computes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of OpenMP do not survive a fork, and waiting for them would hang."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    cpu.on_threads(lambda begin, end: None, 10, 1000)
    child = os.fork()
    if child == 0:
        found = cpu.on_threads(lambda begin, end: end - begin, 10, 1000)
        os._exit(0 if found == [10] else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("given", ["both", "p", "not p"])
def test_the_link(given: str) -> None:
    for seed, scale in enumerate((1.0, 5.0, 50.0)):
        space = random_tree(seed, 40)
        logits = random_batch(space, seed, scale)[0]
        link = SoftmaxLink(space)
        upstream = torch.randn(2, *logits.shape, generator=torch.Generator().manual_seed(seed))

        def run(x: torch.Tensor, forward: Any, upstream: torch.Tensor = upstream) -> Any:
            x = x.clone().requires_grad_()
            pair = forward(x)
            used = [1, 0] if given == "p" else [0, 1] if given == "not p" else [1, 1]
            real = [one > -1e29 for one in pair]  # log 0 has no gradient
            total = sum(
                (one * up.to(one) * use)[where].sum()
                for one, up, use, where in zip(pair, upstream, used, real, strict=True)
                if use
            )
            total.backward()
            return *(one.detach() for one in pair), x.grad

        found = run(logits, link.log_probabilities)
        wanted = run(logits.double(), link.plain_log_probabilities)
        for one, two in zip(found[:2], wanted[:2], strict=True):
            torch.testing.assert_close(one.double(), two, rtol=3e-6, atol=3e-6)
        size = float(wanted[2].abs().max())
        assert float((found[2] - wanted[2]).abs().max()) <= 1e-5 * size


def test_masses_that_underflow_keep_their_logarithms() -> None:
    space = LabelSpace(Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h"]))
    names = space.hierarchy.names
    logits = torch.zeros(1, len(space))
    for name, value in {"a/b/c": 400.0, "a/b/d": 0.0, "a/e": 100.0, "f/g": -50, "f/h": -50}.items():
        logits[0, names.index(name)] = value
    log_p, log_not_p = SoftmaxLink(space)(logits)
    by_name = {name: (float(log_p[0, c]), float(log_not_p[0, c])) for c, name in enumerate(names)}
    assert by_name["f"][0] == pytest.approx(-450 + np.log(2), abs=1e-4)
    assert by_name["a"][1] == pytest.approx(-450 + np.log(2), abs=1e-4)
    assert by_name["a/b"][1] == pytest.approx(-300, abs=1e-4)
    assert by_name["a/b/c"][0] == 0


def test_a_subclass_with_other_losses_is_not_bypassed() -> None:
    class Doubled(BCELoss):
        def losses(self, output: Any, targets: Any, mask: Any) -> Any:
            return 2 * super().losses(output, targets, mask)

    class Halved(LeafCELoss):
        rows_independent = True

        def row_losses(self, log_masses: Any, labels: Any, mask: Any) -> Any:
            return super().row_losses(log_masses, labels, mask) / 2

    space = random_tree(6, 20)
    logits, targets = random_batch(space, 6, 1.0)
    assert Doubled(space)(logits, targets) == pytest.approx(2 * BCELoss(space)(logits, targets))
    assert Halved(space)(logits, targets) == pytest.approx(LeafCELoss(space)(logits, targets) / 2)


def test_columns_that_are_not_contiguous() -> None:
    space = random_tree(7, 20)
    logits, targets = random_batch(space, 7, 1.0)
    turned = logits.T.contiguous().T
    assert not turned.is_contiguous()
    for name in NAMES:
        found = value_and_gradient(make(name, space), turned, targets.T.contiguous().T)
        torch.testing.assert_close(found, value_and_gradient(make(name, space), logits, targets))


def test_when_kernels_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    space, key = random_tree(0, 5), ("focal", "sigmoid", None)

    def can_use(logits: torch.Tensor, *others: torch.Tensor) -> bool:
        return choose.cpu_kernels(key, logits, space, *others) is not None

    logits = torch.zeros(4, 5)
    assert can_use(logits)
    assert not can_use(logits.double())
    assert not can_use(logits.to("meta"))
    assert not can_use(logits, torch.zeros(4, 5, requires_grad=True))
    with choose.without_kernels():
        assert not can_use(logits)
    monkeypatch.setattr(choose, "FEWEST", 21)
    assert not can_use(logits)
    monkeypatch.setenv("HIERLEARN_CPU_KERNELS", "0")
    choose.has_numba.cache_clear()
    try:
        assert not choose.has_numba()
        monkeypatch.delenv("HIERLEARN_CPU_KERNELS")
        choose.has_numba.cache_clear()
        assert choose.has_numba()
        monkeypatch.setitem(sys.modules, "numba", None)  # whose import then fails
        choose.has_numba.cache_clear()
        assert not choose.has_numba()
    finally:
        choose.has_numba.cache_clear()


@pytest.mark.parametrize(
    ("name", "wanted", "low", "high"),
    [
        ("exp", np.exp, -86.9, 20.0),
        ("log", np.log, 1e-30, 1e6),
        ("log1p", np.log1p, -0.5, 1.0),
        ("softplus", lambda z: np.logaddexp(0, z), -80.0, 80.0),
        ("sigmoid", lambda z: 1 / (1 + np.exp(-z)), -80.0, 80.0),
    ],
)
def test_the_arithmetic(name: str, wanted: Any, low: float, high: float) -> None:
    from numba import njit

    from hierlearn.kernels import tree_numba

    function = getattr(tree_numba, name)

    @njit(error_model="numpy")
    def apply(x: Any, out: Any) -> None:
        for place in range(len(x)):
            out[place] = function(x[place])

    rng = np.random.default_rng(0)
    x = rng.uniform(low, high, 5000).astype(np.float32)
    small = np.exp(rng.uniform(-60, 0, 500)).astype(np.float32)
    x = np.concatenate([x, small[(small > low) & (small < high)]])
    out = np.empty_like(x)
    apply(x, out)
    np.testing.assert_allclose(out, wanted(x.astype(np.float64)), rtol=3e-7)


def test_exp_of_very_little_is_zero() -> None:
    from numba import njit

    from hierlearn.kernels.tree_numba import exp

    run = njit(lambda x: exp(x))
    assert run(np.float32(-88.0)) == 0
    assert run(np.float32(-np.inf)) == 0
