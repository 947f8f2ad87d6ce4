"""Where there is no GPU, Triton interprets the kernels of these tests.

Triton reads TRITON_INTERPRET when it is imported and when a kernel is defined. The variable is set
while kernel_imports.py imports both, which the conftest of all tests does first, and then during
each test of this folder; no other test sees it.
"""

import warnings

import pytest

from hierlearn.kernels import choose, hcl_plan
from kernels.kernel_cases import LAYOUTS
from kernels.kernel_imports import INTERPRETED, TRITON, WRONG, set_interpreter


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Skip where the kernels cannot run; quiet NumPy, which warns of infinities and a GPU not."""
    if TRITON is None:
        pytest.skip("Triton is not installed: pip install triton")
    assert WRONG is None, WRONG
    set_interpreter(monkeypatch)
    with warnings.catch_warnings():
        if INTERPRETED:
            warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.fixture(autouse=True)
def no_trials(request, monkeypatch):
    """Use the kernels at once: their trial takes seconds in the interpreter; see test_trial.py."""
    if request.path.name != "test_trial.py":
        monkeypatch.setattr(choose, "passes", lambda *_: True)


@pytest.fixture(autouse=True)
def on_gpu(request, monkeypatch):
    """Let Triton's kernels take tensors on the CPU where they are interpreted."""
    if INTERPRETED and request.path.name != "test_cpu.py":
        monkeypatch.setattr(choose, "is_on_gpu", lambda _: True)


@pytest.fixture(autouse=True)
def layout(request, monkeypatch):
    """Divide small batches as large ones are, so that every kernel runs; "tiles" by default."""
    name = getattr(request, "param", "tiles")
    assert name in LAYOUTS
    if name != "whole rows":
        monkeypatch.setattr(hcl_plan, "WHOLE_ROW_CLASSES", 0)
        monkeypatch.setattr(hcl_plan, "SMALL_ENTRIES", 0)
    if name == "many classes":
        monkeypatch.setattr(hcl_plan, "FEW_CLASSES", 0)
        monkeypatch.setattr(hcl_plan, "SEARCH_CHUNKS", (2, 2))
    if INTERPRETED:  # several tiles per level, without the wait for large ones
        small = {
            kernel: tiling
            if "few" in kernel[0]
            else tiling._replace(columns=16, rows=min(tiling.rows, 4))
            for kernel, tiling in hcl_plan.TILINGS.items()
        }
        monkeypatch.setattr(hcl_plan, "TILINGS", small)
        monkeypatch.setattr(hcl_plan, "TRIALS_PER_PROGRAM", hcl_plan.TRIALS)
    return name
