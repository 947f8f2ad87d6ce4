"""Sparse sums over labels are the dense ones, with their gradients."""

import pytest
import torch

from hierlearn.memory import compare as sparse
from hierlearn.memory import store
from tolerances import FLOAT32_SUMS, FLOAT64


def case(dtype=torch.float64, members=()):
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(*members, 30, 50, generator=generator) < 0.05
    weights = torch.rand(*members, 7, 30, generator=generator, dtype=dtype)
    return (weights / weights.sum(-1, keepdim=True)).requires_grad_(), targets


@pytest.mark.parametrize("members", [(), (3,)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, FLOAT32_SUMS), (torch.float64, FLOAT64)]
)
def test_sums_and_gradients(members, dtype, tolerance):
    weights, targets = case(dtype, members)
    expected = store.mixture(weights, targets, None)
    found = sparse.sparse_mixture(weights, targets)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        tolerance.assert_close(one, other)
        grads = [torch.autograd.grad(x.square().sum(), weights)[0] for x in (one, other)]
        tolerance.assert_close(*grads)
        found = sparse.sparse_mixture(weights, targets)


def test_gradients_twice():
    weights, targets = case()
    assert torch.autograd.gradgradcheck(lambda w: sparse.sparse_mixture(w, targets)[0], (weights,))


def test_only_large_and_rare_targets_are_sparse(monkeypatch):
    _, targets = case()
    assert not sparse.is_sparse(targets)
    monkeypatch.setattr(sparse, "LARGE", 10)
    assert not sparse.is_sparse(targets)  # 5% of the entries are positive
    monkeypatch.setattr(sparse, "DENSITY", 0.1)
    assert sparse.is_sparse(targets)


@pytest.mark.parametrize("members", [(), (3,)])
def test_classes_that_do_not_occur_are_left_out_of_the_product(monkeypatch, members):
    weights, targets = case(members=members)
    targets[..., 10:] = False
    expected = store.mixture(weights, targets, None)
    monkeypatch.setattr(store, "LARGE", 10)
    called = []
    inner = store.occurring_mixture
    monkeypatch.setattr(
        store, "occurring_mixture", lambda *a: called.append(len(a[2])) or inner(*a)
    )
    found = store.mixture(weights, targets, None)
    assert called
    assert called[0] <= 10
    for one, other in zip(found, expected, strict=True):
        FLOAT64.assert_close(one, other)
