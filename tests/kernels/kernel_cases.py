"""Hierarchies, batches and comparisons for the tests of the Triton kernels of HCL."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from hierlearn import Hierarchy
from hierlearn.kernels.choose import without_kernels
from hierlearn.losses import HCLLoss
from kernels.kernel_imports import INTERPRETED
from tolerances import FLOAT32_SUMS

DEVICE = "cpu" if INTERPRETED else "cuda"

# How the small batches of these tests are divided among programs; see the fixture ``layout``.
LAYOUTS = ("whole rows", "tiles", "many classes")
every_layout = pytest.mark.parametrize("layout", LAYOUTS, indirect=True)
few_and_many = pytest.mark.parametrize("layout", LAYOUTS[::2], indirect=True)


def needs_gpu(test: Any) -> Any:
    """Mark a test that the interpreter cannot run."""
    skip = pytest.mark.skipif(INTERPRETED, reason="no GPU")
    return pytest.mark.gpu(skip(test))


class PlainHCL(HCLLoss):
    """HCL by plain operations."""

    def forward(self, *arguments: Any, **options: Any) -> Tensor:
        with without_kernels():
            return super().forward(*arguments, **options)


def kernel_loss(hierarchy: Any, *, fused: bool = True, **options: Any) -> HCLLoss:
    """Return HCL as the kernels support it: sigmoids, and levels instead of ancestors."""
    kind = HCLLoss if fused else PlainHCL
    return kind.paper(hierarchy, **{"floor": 0.1, **options})


def tree(sizes: tuple[int, ...]) -> Hierarchy:
    """Return a tree with these level sizes, children spread evenly."""
    parents: list[int] = []
    above = (0, 0)
    for size in sizes:
        begin, (first, count) = len(parents), above
        parents += [first + place * count // size if count else -1 for place in range(size)]
        above = (begin, size)
    return Hierarchy.from_parents(parents)


def batch(
    hierarchy: Hierarchy,
    rows: int,
    seed: int = 0,
    *,
    ties: bool = False,
    masked: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return logits, closed targets and a mask or None, on the host."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, len(hierarchy), generator=generator)
    if ties:
        logits = logits.round()
    numbers = torch.randint(0, len(hierarchy), (rows,), generator=generator)
    targets = hierarchy.encode([int(c) for c in numbers], numbers=True)
    mask = torch.rand(logits.shape, generator=generator) < 0.7 if masked else None
    return logits, targets, mask


def on_device(*tensors: Tensor | None) -> list[Any]:
    """Return tensors on the device of these tests."""
    return [None if one is None else one.to(DEVICE) for one in tensors]


def value_and_gradient(
    loss: Any, logits: Tensor, targets: Tensor, mask: Tensor | None = None, upstream: float = 1.7
) -> tuple[Tensor, Tensor]:
    """Return loss and gradient, on the host; the gradient is that of ``upstream`` losses."""
    x = logits.detach().clone().requires_grad_()
    value = loss(x, targets, mask)
    (upstream * value).backward()
    assert x.grad is not None
    return value.detach().cpu(), x.grad.cpu()


@contextmanager
def nan_filled_memory() -> Iterator[None]:
    """Let torch fill fresh memory with NaN, so that what no kernel wrote shows."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def assert_same_as_plain(
    hierarchy: Hierarchy, logits: Tensor, targets: Tensor, mask: Tensor | None, **options: Any
) -> None:
    """Assert that kernels and plain path agree in loss, gradient and selection."""
    plain, fused = (kernel_loss(hierarchy, fused=f, **options) for f in (False, True))
    expected = value_and_gradient(plain, logits, targets, mask)
    with nan_filled_memory():
        found = value_and_gradient(fused.to(DEVICE), *on_device(logits, targets, mask))
    FLOAT32_SUMS.assert_close(found, expected)
    last = {name: value.cpu() for name, value in fused.last.items()}
    FLOAT32_SUMS.assert_close(last, plain.last)
