"""HCLLoss and LinearHCLLoss on the kernels: copies, changed options, chunks of rows, processes."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch

from hierlearn.losses import LinearHCLLoss
from kernels.kernel_cases import DEVICE, batch, few_and_many, kernel_loss, on_device, tree
from tolerances import FLOAT32_MATMUL, FLOAT32_SUMS


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copies_are_made_without_the_kernels(copied):
    hierarchy = tree((2, 3))
    logits, targets, _ = on_device(*batch(hierarchy, 2))
    loss = kernel_loss(hierarchy).to(DEVICE)
    expected = loss(logits, targets)
    twin = copied(loss)
    assert twin.last == {}
    assert twin(logits, targets) == expected


def test_options_may_change_between_calls():
    hierarchy = tree((2, 3))
    logits, targets, _ = on_device(*batch(hierarchy, 4))
    loss = kernel_loss(hierarchy, floor=0.0, reduction="sum").to(DEVICE)
    total = loss(logits, targets)
    loss.reduction = "mean"
    FLOAT32_SUMS.assert_close(loss(logits, targets), total / logits.numel())
    assert loss.ever_selected.tolist() == loss.last["selected"].tolist()


def test_host_tensors_take_no_kernels_of_a_gpu(monkeypatch):
    hierarchy = tree((2, 3))
    logits, targets, _ = batch(hierarchy, 4)
    monkeypatch.setattr("hierlearn.kernels.choose.is_on_gpu", lambda x: x.is_cuda)
    monkeypatch.setattr("hierlearn.kernels.hcl.LaunchPlan.run", None)  # a kernel would fail
    assert kernel_loss(hierarchy)(logits, targets) > 0


@few_and_many
def test_the_linear_layer_in_chunks(layout):
    hierarchy = tree((2, 3, 12))
    _, targets, mask = on_device(*batch(hierarchy, 5, masked=True))
    torch.manual_seed(0)
    options = {"link": "sigmoid", "scope": "levels", "floor": 0.1, "normalize": "sum"}
    layer = LinearHCLLoss(hierarchy, 4, chunk=2, **options).to(DEVICE)
    inputs = torch.randn(5, 4).to(DEVICE)
    plain = kernel_loss(hierarchy, fused=False).to(DEVICE)
    results = []
    for loss in (layer, lambda x, y, m: plain(layer.logits(x), y, m)):
        layer.zero_grad()
        x = inputs.clone().requires_grad_()
        value = loss(x, targets, mask)
        (3 * value).backward()
        results.append([value.detach(), x.grad, layer.weight.grad, layer.bias.grad])
    FLOAT32_MATMUL.assert_close(*results)
    assert layer.loss.last["selected"].tolist() == plain.last["selected"].tolist()


WORKER = """
import sys, torch, torch.distributed as dist
from hierlearn import Hierarchy
from hierlearn.kernels import choose
from hierlearn.losses import HCLLoss
rank, where = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{where}/store", rank=rank, world_size=2)
h = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
g = torch.Generator().manual_seed(0)
logits = 2 * torch.randn(6, 8, generator=g)
targets = h.encode(torch.randint(0, 8, (6,), generator=g).tolist(), numbers=True)
part = slice(0, 4) if rank == 0 else slice(4, 6)
found = []
choose.passes = lambda *_: True
for fused in (True, False):
    choose.is_on_gpu = lambda _: fused
    x = logits[part].clone().requires_grad_()
    loss = HCLLoss(h, link="sigmoid", scope="levels", normalize="sum", reduction="sum")
    loss(x, targets[part]).backward()
    found.append((x.grad, loss.last["selected"], loss.last["e_h"]))
for one, other in zip(*found):
    torch.testing.assert_close(one, other)
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the processes interpret the kernels")
def test_two_processes_select_as_one(tmp_path):
    variables = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORKER]
    runs = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], env=variables) for rank in (0, 1)
    ]
    assert [run.wait(timeout=600) for run in runs] == [0, 0]
