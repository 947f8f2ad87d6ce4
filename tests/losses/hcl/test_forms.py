"""Which form of HCL computes a loss, and that all forms give the same sums and gradients."""

import subprocess
import sys

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.kernels import choose
from hierlearn.links import HeadOutput, MaxLink, SigmoidLink
from hierlearn.losses import HCLLoss, LinearHCLLoss
from hierlearn.losses.hcl.forms import (
    NumbaForm,
    PlainForm,
    Rows,
    fast_loss,
    numba_loss,
    triton_loss,
)
from kernels.kernel_cases import batch
from losses.random_batches import random_batch

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])
X, Y = torch.zeros(2, len(TREE)), torch.zeros(2, len(TREE), dtype=torch.bool)
OPTIONS = [
    {"link": link, "scope": scope, "base": base}
    for link, scope in (
        ("sigmoid", "levels"),
        ("sigmoid", "ancestors"),
        ("sigmoid", None),
        ("softmax", "ancestors"),
        ("softmax", None),
    )
    for base in ("bce", "bce2")
]


@pytest.fixture
def small(monkeypatch):
    """Let the kernels take batches that would be too small for them."""
    pytest.importorskip("numba", reason="the CPU kernels need numba")
    monkeypatch.setattr(choose, "FEWEST", 1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_all_forms_give_the_same_sums_and_gradients(options, small):
    for seed in range(6):
        drawn = random_batch(seed, labels=(1, 2), rows=(2, 9))
        loss = HCLLoss(drawn.hierarchy, **options)
        parts = (loss, loss.link, drawn.logits.float(), drawn.targets, drawn.mask)
        plain, fast = PlainForm(Rows(*parts)), NumbaForm(Rows(*parts))
        torch.testing.assert_close(fast.sums(), plain.sums(), rtol=1e-5, atol=1e-6)
        weights = torch.rand(len(drawn.hierarchy))
        expected = plain.gradient(weights)
        torch.testing.assert_close(fast.gradient(weights), expected, rtol=1e-4, atol=1e-6)
        again = NumbaForm(Rows(*parts), fast.kept)  # as in a backward pass over chunks
        assert torch.equal(again.gradient(weights), fast.gradient(weights))


@pytest.mark.parametrize("scope", ["levels", None])
def test_the_cpu_kernels_take_dags_where_only_levels_matter(scope, small):
    logits, targets, mask = batch(DAG, 8, masked=True)
    loss, plain = (HCLLoss.paper(DAG, scope=scope, threshold=3.0) for _ in range(2))
    assert fast_loss(loss, loss.read(logits), None) is numba_loss
    found, expected = (x.clone().requires_grad_() for x in (logits, logits.double()))
    value = loss(found, targets, mask)
    value.backward()
    with choose.without_kernels():
        other = plain(expected, targets, mask)
    other.backward()
    torch.testing.assert_close(value.double(), other, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.grad.double(), expected.grad, rtol=1e-5, atol=1e-6)
    assert torch.equal(loss.selection, plain.selection)


def test_what_is_not_finite_takes_the_plain_form(small):
    logits = X.clone()
    logits[0, 1] = torch.nan
    loss = HCLLoss.paper(TREE)
    rows = Rows(loss, loss.link, logits, Y, None)
    form = NumbaForm(rows)
    assert form.sums()[0].isnan().any()
    assert form.kept is False
    expected = PlainForm(rows).gradient(torch.ones(len(TREE)))
    torch.testing.assert_close(form.gradient(torch.ones(len(TREE))), expected, equal_nan=True)


def test_what_decides_the_form(small, monkeypatch):
    def form_of(loss, output=X, weight=None):
        return fast_loss(
            loss, output if isinstance(output, HeadOutput) else loss.read(output), weight
        )

    loss = HCLLoss.paper(TREE)
    assert form_of(loss) is numba_loss
    assert form_of(loss, torch.zeros(3, *X.shape)) is numba_loss
    assert form_of(loss, X.double()) is None
    assert form_of(loss, X, torch.ones(2)) is None
    assert form_of(loss, HeadOutput(*loss.link(X))) is None
    assert form_of(loss, MaxLink(TREE).output(X)) is None
    assert form_of(HCLLoss.paper(TREE, scope="ancestors")) is numba_loss
    assert form_of(HCLLoss.paper(DAG, scope="ancestors"), X[:, : len(DAG)]) is None
    for options in ({"base": "focal"}, {"reduction": "none"}, {"link": "softmax"}):
        assert form_of(HCLLoss.paper(TREE, **options)) is None
    with choose.without_kernels():
        assert form_of(loss) is None
    monkeypatch.setattr(choose, "is_on_gpu", lambda _: True)
    monkeypatch.setattr(choose, "has_triton", lambda: True)
    monkeypatch.setattr(choose, "passes", lambda *_: True)
    assert form_of(loss) is triton_loss
    assert form_of(HCLLoss.paper(TREE, base="focal")) is None
    assert form_of(loss, torch.zeros(3, *X.shape)) is None  # few logits of several members
    monkeypatch.setattr(choose, "passes", lambda *_: False)
    assert form_of(loss) is None


def test_a_link_of_ones_own_has_no_kernels(small):
    class Sharp(SigmoidLink):
        def log_probabilities(self, logits):
            return super().log_probabilities(2 * logits)

    loss = HCLLoss.paper(TREE, link=Sharp(TREE))
    assert fast_loss(loss, loss.read(X), None) is None
    torch.testing.assert_close(loss(X + 1, Y), HCLLoss.paper(TREE)(2 * (X + 1), Y))


def test_the_linear_layer_takes_the_cpu_kernels(small):
    logits, targets, mask = batch(TREE, 7, masked=True)
    torch.manual_seed(0)
    layer = LinearHCLLoss(TREE, 3, chunk=2)
    inputs = torch.randn(7, 3)
    assert isinstance(layer.form(logits, targets, mask), NumbaForm)
    found = []
    for run in (layer, lambda *batch: HCLLoss(TREE)(layer.logits(batch[0]), *batch[1:])):
        layer.zero_grad()
        value = run(inputs, targets, mask)
        (2 * value).backward()
        found.append([value.detach(), layer.weight.grad, layer.bias.grad])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_the_losses_need_no_triton():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from hierlearn import HCLLoss, Hierarchy\n"
        "h = Hierarchy.from_paths(['a/b', 'c'])\n"
        "HCLLoss(h)(torch.zeros(2, 3), torch.zeros(2, 3)); print('done')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "done\n"
