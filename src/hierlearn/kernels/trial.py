"""Trial: kernels are compared with plain operations once on every GPU, before they are used.

GPUs and releases of Triton differ in what they compile, and nobody has tried them all. A kernel
that does not compile there, or computes something else, is left out with a warning: the plain path
takes its place. A trial is a batch of some rows and a small tree, so its cost is the compilation,
which Triton keeps on disk.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor

    # From a device to what the kernels computed, each with what it must be.
    Compare = Callable[[torch.device], Iterable[tuple[Tensor, Tensor]]]
    Function = Callable[[Tensor], Sequence[Tensor]]

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
