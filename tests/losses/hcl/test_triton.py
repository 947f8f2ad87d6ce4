"""When HCLLoss uses its Triton kernels, and its errors where it cannot."""

import re
import subprocess
import sys

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.links import HeadOutput
from hierlearn.losses import HCLLoss
from hierlearn.losses.hcl.backends import PLAIN, SUMMED, choose_backend

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
X, Y = torch.zeros(2, len(TREE)), torch.zeros(2, len(TREE), dtype=torch.bool)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": "max"}, "cannot have link MaxLink, but 'sigmoid' and 'softmax' only; pass fused"),
        ({"link": "softmax"}, "cannot have link 'softmax' with scope 'levels', but 'ancestors'"),
        ({"scope": "ancestors", "base": "focal"}, "with this link or scope, but 'bce' and 'bce2'"),
        ({"reduction": "none"}, "cannot have reduction 'none', but 'mean' and 'sum' only"),
        ({"base": "zero_one"}, "but 'bce', 'bce2' and 'focal' only"),
    ],
)
def test_what_the_kernels_do_not_support_is_refused_at_construction(options, message):
    with pytest.raises(HierlearnError, match=re.escape(message)):
        HCLLoss.paper(TREE, fused=True, **options)
    HCLLoss.paper(TREE, **options)  # left to itself the loss takes the plain path


def test_tensors_that_the_kernels_do_not_support(monkeypatch):
    loss = HCLLoss.paper(TREE, fused=True)
    message = "cannot take logits of torch.float64, but of float32, bfloat16 and float16 only"
    with pytest.raises(HierlearnError, match=message):
        loss(X.double(), Y)
    monkeypatch.setattr("hierlearn.kernels.hcl.has_triton", lambda: True)
    with pytest.raises(HierlearnError, match="logits on cpu, but on a GPU only"):
        loss(X, Y)
    monkeypatch.setattr("hierlearn.kernels.hcl.has_triton", lambda: False)
    with pytest.raises(HierlearnError, match=r"without Triton; install triton"):
        loss(X, Y)


def test_on_the_cpu_the_kernels_are_not_chosen_by_default():
    for loss in (HCLLoss.paper(TREE), HCLLoss.paper(TREE, fused=False)):
        assert choose_backend(loss, loss.read(X), None) is SUMMED


def test_what_decides_the_backend():
    loss = HCLLoss.paper(TREE)
    members = torch.zeros(3, *X.shape)
    assert choose_backend(loss, loss.read(members), None) is SUMMED
    assert choose_backend(loss, loss.read(X), torch.ones(2)) is PLAIN
    pair = HeadOutput(*loss.link(X))
    assert choose_backend(loss, pair, None) is PLAIN
    for options in ({"scope": "ancestors"}, {"base": "focal"}, {"reduction": "none"}):
        other = HCLLoss.paper(TREE, **options)
        assert choose_backend(other, other.read(X), None) is PLAIN
    with pytest.raises(HierlearnError, match="cannot take weights of rows"):
        HCLLoss.paper(TREE, fused=True)(X, Y, weight=torch.ones(2))
    with pytest.raises(HierlearnError, match="but logits with their link only"):
        HCLLoss.paper(TREE, fused=True)(pair, Y)


def test_the_losses_need_no_triton():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from hierlearn import HCLLoss, Hierarchy\n"
        "h = Hierarchy.from_paths(['a/b', 'c'])\n"
        "HCLLoss(h)(torch.zeros(2, 3), torch.zeros(2, 3)); print('done')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "done\n"
