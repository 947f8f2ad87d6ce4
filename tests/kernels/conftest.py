"""Where there is no GPU, Triton interprets the kernels of these tests.

Triton reads TRITON_INTERPRET when it is imported and when a kernel is defined. The variable is set
while this file imports both, and then during each test of this folder; no other test sees it.
"""

import importlib.util
import warnings

import pytest

from hierlearn.kernels import hcl_plan
from kernels.kernel_cases import INTERPRETED, LAYOUTS

KERNEL_MODULES = (
    "entries_triton",
    "select_triton",
    "hcl_triton",
    "tree_triton",
    "tree_hcl_triton",
    "tree_gradient_triton",
)


def set_interpreter(patch: pytest.MonkeyPatch) -> None:
    """Let Triton interpret kernels, or compile them where there is a GPU."""
    if INTERPRETED:
        patch.setenv("TRITON_INTERPRET", "1")
    else:
        patch.delenv("TRITON_INTERPRET", raising=False)


def import_kernels() -> str | None:
    """Import Triton and the kernels; return why their tests cannot run, or None."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    with pytest.MonkeyPatch.context() as patch:
        set_interpreter(patch)
        import triton.language
        from triton.runtime.jit import JITFunction

        modules = [importlib.import_module(f"hierlearn.kernels.{n}") for n in KERNEL_MODULES]
    kernels = [value for m in modules for value in vars(m).values() if hasattr(value, "fn")]
    assert len(kernels) > 20  # else this looks in the wrong places
    compiled = {isinstance(one, JITFunction) for one in (*kernels, triton.language.sum)}
    if compiled == {not INTERPRETED}:
        return None
    there, needed = ("no GPU", "set") if INTERPRETED else ("a GPU", "not set")
    return (
        f"there is {there}, but TRITON_INTERPRET was not {needed} when Triton was imported; "
        f"run tests/kernels in a process of its own"
    )


SKIP_REASON = import_kernels()


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Skip where the kernels cannot run; quiet NumPy, which warns of infinities and a GPU not."""
    if SKIP_REASON is not None:
        pytest.skip(SKIP_REASON)
    set_interpreter(monkeypatch)
    with warnings.catch_warnings():
        if INTERPRETED:
            warnings.simplefilter("ignore", RuntimeWarning)
        yield


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
