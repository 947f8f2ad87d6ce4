"""The tree kernels compile for a GPU, also on a machine without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = {
    *("fold_windows", "descend", "sum_softmax", "sum_sigmoid", "sweep_windows", "slot_gradients"),
    *("write_softmax", "write_sigmoid", "write_pair", "sum_given"),
    *("max_windows", "route_down", "write_mcloss"),
}


@pytest.mark.slow
def test_what_plans_launch_compiles():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) >= KERNELS
