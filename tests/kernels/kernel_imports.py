"""Triton and the kernels, imported so that their tests can run; see conftest.py.

The conftest of all tests imports this before anything else imports Triton.
"""

import importlib.util

import pytest
import torch

TRITON = importlib.util.find_spec("triton")
INTERPRETED = not torch.cuda.is_available()
KERNEL_MODULES = (
    "entries_triton",
    "hcl_triton",
    "tree_triton",
    "tree_hcl_triton",
    "neighbor_triton",
)


def set_interpreter(patch: pytest.MonkeyPatch) -> None:
    """Let Triton interpret kernels, or compile them where there is a GPU."""
    if INTERPRETED:
        patch.setenv("TRITON_INTERPRET", "1")
    else:
        patch.delenv("TRITON_INTERPRET", raising=False)


def import_kernels() -> str | None:
    """Import Triton and the kernels; return why their tests cannot run, or None."""
    if TRITON is None:
        return None
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


WRONG = import_kernels()
