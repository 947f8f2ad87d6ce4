"""Which kernels compute what: one table, and whether they can be used.

    numba    on a CPU, where numba is installed and HIERLEARN_CPU_KERNELS is not 0
    Triton   on a GPU, where Triton is installed and HIERLEARN_GPU_KERNELS is not 0

What the table does not name, and all that is compiled by torch.compile, transformed by torch.func,
or computed inside ``without_kernels``, is left to plain operations.

GPUs and releases of Triton differ in what they compile, and nobody has tried them all. So Triton's
kernels are compared with plain operations once on every GPU before they are used (``passes``). A
kernel that does not compile there, or computes something else, is left out with a warning. The cost
of a trial, some rows and a small tree, is the compilation, which Triton keeps on disk.
"""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor

    # From a device to what the kernels computed, each with what it must be.
    Compare = Callable[[torch.device], Iterable[tuple[Tensor, Tensor]]]
    Function = Callable[[Tensor], Sequence[Tensor]]
    Key = tuple[str, str | None, str | None]  # formula, link, and the scope of HCL's constraint

FLOAT = (torch.float32,)
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
FEWEST = 4096  # entries for which CPU kernels are worth loading


class Kernels(NamedTuple):
    """The kernels of a formula.

    Attributes:
        cpu: the function of ``losses_numba``, or "" for none; of HCL and links any name.
        gpu: the types of logits that the Triton kernels take; () where there are none.
        tree: whether they go along the edges of a tree, so that they cannot take a DAG.
        masks: whether entries may be unknown.
        least: times FEWEST, the entries from which the CPU kernel is faster.
    """

    cpu: str = ""
    gpu: tuple[torch.dtype, ...] = ()
    tree: bool = True
    masks: bool = True
    least: float = 1


TABLE: dict[Key, Kernels] = {
    ("log p", "softmax", None): Kernels("link", FLOAT),
    ("bce", "sigmoid", None): Kernels("bce", tree=False, least=64),
    ("focal", "sigmoid", None): Kernels("focal", tree=False),
    ("mcloss", "sigmoid", None): Kernels("mcloss", FLOATS, masks=False),
    ("mcloss", "max", None): Kernels("mcloss", FLOATS, masks=False),
    ("mcloss + bce", "sigmoid", None): Kernels("mcloss", masks=False),
    ("leaf-ce", "softmax", None): Kernels("leaf_ce"),
    ("hxe", "softmax", None): Kernels("hxe"),
    ("soft-labels", "softmax", None): Kernels("soft_labels"),
    ("cond-softmax", "siblings", None): Kernels("cond_softmax"),
    ("hcl of bce", "sigmoid", "levels"): Kernels("hcl", FLOATS, tree=False, least=0.25),
    ("hcl of bce", "sigmoid", None): Kernels("hcl", FLOATS, tree=False, least=0.25),
    ("hcl of bce", "sigmoid", "ancestors"): Kernels("hcl", FLOATS),
    ("hcl of bce", "softmax", "ancestors"): Kernels("hcl", FLOATS),
    ("hcl of bce", "softmax", None): Kernels("hcl", FLOATS),
}
_allowed: ContextVar[bool] = ContextVar("allowed", default=True)


@contextmanager
def without_kernels() -> Iterator[None]:
    """Compute by plain operations inside, for comparison."""
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)


@lru_cache(maxsize=1)
def has_numba() -> bool:
    """Whether numba can be imported, and is not forbidden by HIERLEARN_CPU_KERNELS=0."""
    if os.environ.get("HIERLEARN_CPU_KERNELS") == "0":
        return False
    try:
        import numba  # noqa: F401
    except ImportError:  # or it is installed beside a numpy that it does not know yet
        return False
    return True


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether Triton is installed, and is not forbidden by HIERLEARN_GPU_KERNELS=0."""
    return os.environ.get("HIERLEARN_GPU_KERNELS") != "0" and find_spec("triton") is not None


def interpreted() -> bool:
    """Whether Triton interprets kernels instead of compiling them, for tests without a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_on_gpu(x: Tensor) -> bool:
    """Whether a tensor is on a GPU; tests let Triton interpret the kernels on a CPU."""
    return x.is_cuda


def takes_plain(x: Tensor) -> bool:
    """Whether tensors must go through plain operations, which are recorded or transformed."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or x.numel() == 0
        or not _allowed.get()
    )


def cpu_kernels(
    key: Key,
    x: Tensor,
    label_space: Any,
    *others: Tensor | None,
    masked: bool = False,
) -> Kernels | None:
    """Return the CPU kernels of a formula for logits (..., C), and what comes with them, if any.

    Args:
        key: formula, link and scope; a link without a name has no kernels.
        x: logits.
        label_space: what can be predicted, whose tree the kernels may need.
        others: tensors that must not need a gradient.
        masked: whether some entries are unknown.
    """
    found = TABLE.get(key)
    if (
        found is None
        or not found.cpu
        or takes_plain(x)
        or x.device.type != "cpu"
        or x.dtype != torch.float32
        or x.numel() < FEWEST * found.least
        or (masked and not found.masks)
        or any(one is not None and one.requires_grad for one in others)
        or type(x) not in (torch.Tensor, torch.nn.Parameter)
        or not has_numba()
        or (found.tree and label_space.layout is None)
    ):
        return None
    return found


def gpu_kernels(key: Key, x: Tensor, label_space: Any, *, masked: bool = False) -> Kernels | None:
    """Return the GPU kernels of a formula for logits (..., C), if any; see ``cpu_kernels``."""
    found = TABLE.get(key)
    if (
        found is None
        or x.dtype not in found.gpu
        or takes_plain(x)
        or not is_on_gpu(x)
        or (masked and not found.masks)
        or not has_triton()
        or (found.tree and label_space.layout is None)
    ):
        return None
    return found


# ---------------------------------------- the trial

ROWS = 48
LEVEL_SIZES = (5, 37, 300)  # several tiles, odd sizes
TOLERANCE = 1e-2  # of the largest value: for what is broken, not for what is rounded
VERDICTS: dict[tuple[str, str], bool] = {}


class KernelWarning(UserWarning):
    """Kernels do not work on a device."""


def passes(name: str, device: torch.device, compare: Compare) -> bool:
    """Whether the kernels of a name work on a device, which is tried once per process.

    Args:
        name: what the kernels compute, for the warning.
        device: where.
        compare: tries them.
    """
    key = (name, str(device))
    if key not in VERDICTS:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return False  # a trial cannot be captured; the next call makes up for it
        found = reason_against(device, compare)
        if found is not None:
            warnings.warn(
                f"the kernels of {name} do not work on {device} and are left out, which is slower "
                f"but gives the same answers: {found}",
                KernelWarning,
                stacklevel=3,
            )
        VERDICTS[key] = found is None
    return VERDICTS[key]


def reason_against(device: torch.device, compare: Compare) -> str | None:
    """Return why kernels cannot be used, or None."""
    try:
        exact = torch.autocast(device.type, enabled=False)
        with torch.inference_mode(False), torch.enable_grad(), exact:
            pairs = list(compare(device))
    except Exception as error:  # whatever a compiler raises
        lines = str(error).splitlines() or [""]
        return f"{type(error).__name__}: {lines[0]}"
    for found, expected in pairs:
        most = TOLERANCE * float(expected.detach().abs().max())
        difference = float((found.detach() - expected.detach()).abs().max())
        if not difference <= most:  # nor where it is NaN
            return f"a value differs by {difference:.2g}, where {most:.2g} was allowed"
    return None


def compare_functions(
    by_kernels: Function, plain: Function, x: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what two functions return for a matrix, and the gradients of it."""
    results = []
    for function in (by_kernels, plain):
        own = x.clone().requires_grad_()
        values = function(own)
        total = torch.stack([one[..., ::2].sum() for one in values]).sum()
        (gradient,) = torch.autograd.grad(total, own)
        results.append((*values, gradient))
    yield from zip(*results, strict=True)


def example_parents() -> list[int]:
    """Return the parents of the classes of a small tree, -1 for those of the top."""
    parents: list[int] = []
    above = (0, 0)
    for size in LEVEL_SIZES:
        begin, (first, count) = len(parents), above
        parents += [first + place * count // size if count else -1 for place in range(size)]
        above = (begin, size)
    return parents


def example_inputs(device: torch.device, columns: int = sum(LEVEL_SIZES)) -> Tensor:
    """Return (ROWS, columns) numbers, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, columns, generator=generator).to(device)


def example_classes() -> list[int]:
    """Return a leaf for every row."""
    first = sum(LEVEL_SIZES[:-1])
    return [first + 7 * row % LEVEL_SIZES[-1] for row in range(ROWS)]
