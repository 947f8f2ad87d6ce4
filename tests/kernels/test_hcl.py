"""The Triton kernels of HCL: under Triton's interpreter here, and on a graphics processor.

Triton decides at its import whether it interprets, so the checks run in a process of their own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECKS = Path(__file__).with_name("check_hcl.py")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: hierlearn[gpu]"
)


def run_checks(**variables: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(CHECKS)]
    # NumPy, which interprets, minds the infinities that a device passes on.
    done = subprocess.run(
        [*command, "-W", "ignore::RuntimeWarning"],
        cwd=CHECKS.parents[2],
        env={**own, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_under_the_interpreter():
    run_checks(TRITON_INTERPRET="1", OMP_NUM_THREADS="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no graphics processor")
def test_on_the_device():
    run_checks(TRITON_INTERPRET="0")


WORKER = """
import sys, torch, torch.distributed as dist
from hierlearn import Hierarchy
from hierlearn.losses import HCLLoss
rank, where = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{where}/store", rank=rank, world_size=2)
h = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
g = torch.Generator().manual_seed(0)
logits = 2 * torch.randn(6, 8, generator=g)
targets = h.encode([[int(c)] for c in torch.randint(0, 8, (6,), generator=g)])
part = slice(0, 4) if rank == 0 else slice(4, 6)
found = []
for fused in (True, False):
    x = logits[part].clone().requires_grad_()
    loss = HCLLoss(h, floor=0.1, reduction="sum", fused=fused)
    loss(x, targets[part]).backward()
    found.append((x.grad, loss.last["selected"], loss.last["e_h"]))
for one, other in zip(*found):
    torch.testing.assert_close(one, other)
dist.destroy_process_group()
"""


def test_two_processes_select_as_one_under_the_interpreter(tmp_path):
    command = [sys.executable, "-c", WORKER]
    variables = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], env=variables) for rank in (0, 1)
    ]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
