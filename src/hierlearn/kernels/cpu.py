"""CPU kernels, compiled by numba, under autograd: losses of rows, the softmax link, HCL.

The kernels compute the values of a row and its gradient in one pass, while the row is in cache.

Ranges of rows are computed on several threads at once: those of torch, where its OpenMP runtime is
found. After each operation torch's threads keep waiting busily for the next one. Threads of our own
would have to share the cores with them, and lose more than they gain on all but large batches. So
the ranges are given to torch's threads, by the same call that compiled OpenMP code makes. Kernels
release the GIL, so ranges are computed at once; only their start and end take turns.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from hierlearn.kernels.autograd import with_gradient, with_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout

    Pair = tuple[Tensor, Tensor]
    Item = TypeVar("Item")
    Result = TypeVar("Result")

    from torch import Tensor


SHARE = 1 << 15  # entries that a thread takes at least
OWN_SHARE = 1 << 21  # the same for threads of our own, which compete with those of torch
AHEAD = 2  # results per thread that may wait for being taken
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PROCESS = os.getpid()  # OpenMP does not survive a fork


def on_threads(work: Callable[[int, int], Any], rows: int, entries: int) -> list[Any]:
    """Return the results of ``work(begin, end)`` for ranges of rows, one per thread.

    Args:
        work: computes a range of rows; must release the GIL to gain anything.
        rows: how many there are.
        entries: the size of the work, in logits.
    """
    runtime = openmp() if os.getpid() == PROCESS else None
    share = OWN_SHARE if runtime is None else SHARE
    threads = min(torch.get_num_threads(), rows, max(1, entries // share))
    if threads <= 1:
        return [work(0, rows)]
    bounds = [rows * number // threads for number in range(threads + 1)]
    ranges = list(pairwise(bounds))
    if runtime is None:
        with ThreadPoolExecutor(threads) as executor:
            return list(executor.map(lambda one: work(*one), ranges))
    return in_team(runtime, work, ranges)


def in_team(
    runtime: ctypes.CDLL, work: Callable[[int, int], Any], ranges: list[tuple[int, int]]
) -> list[Any]:
    """Compute every range by one thread of the runtime's team."""
    found: list[Any] = [None] * len(ranges)
    raised: list[BaseException] = []

    def run(_: Any) -> None:
        # A team may be smaller than asked for.
        first, step = runtime.omp_get_thread_num(), runtime.omp_get_num_threads()
        try:
            for number in range(first, len(ranges), step):
                found[number] = work(*ranges[number])
        except BaseException as error:  # it cannot pass through the runtime
            raised.append(error)

    runtime.GOMP_parallel(ENTRY(run), None, len(ranges), 0)
    if raised:
        raise raised[0]
    return found


@lru_cache(maxsize=1)
def openmp() -> ctypes.CDLL | None:
    """Return the OpenMP runtime that comes with torch; None where there is none."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            runtime = ctypes.CDLL(str(path))
            _ = runtime.GOMP_parallel, runtime.omp_get_thread_num, runtime.omp_get_num_threads
        except (OSError, AttributeError):
            continue
        runtime.GOMP_parallel.restype = None
        runtime.GOMP_parallel.argtypes = (ENTRY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        return runtime
    return None


class OneCoreEach:
    """While it is entered, an operation of torch uses the core of its thread only.

    That is one setting for the entire process; threads may overlap in it, and the last one to leave
    restores what was set before.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.before = 1

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.before = torch.get_num_threads()
                torch.set_num_threads(1)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                torch.set_num_threads(self.before)


one_core_each = OneCoreEach()


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yield ``function(item)`` of every item in order, from several threads.

    Items are taken in the thread of the caller, a few ahead. An error, of an item or of the
    function, is raised in its place; whoever stops early waits for what is being computed.

    Args:
        function: called by several threads at once.
        items: taken one after another.
        workers: how many threads; 0 calls the function in the thread of the caller.
    """
    if not workers:
        yield from map(function, items)
        return
    with one_core_each, ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Result]] = deque()
        source, end = iter(items), None
        try:
            while True:
                while end is None and len(waiting) < workers * (1 + AHEAD):
                    try:
                        waiting.append(pool.submit(function, next(source)))
                    except Exception as error:  # raised in its place, after the results before it
                        end = error
                if waiting:
                    yield waiting.popleft().result()
                elif isinstance(end, StopIteration):
                    return
                elif end is not None:
                    raise end
        finally:
            pool.shutdown(cancel_futures=True)


NOTHING = np.empty((1, 0), dtype=np.uint8)
NO_GRADIENT = torch.empty(1, 0)


def as_flags(targets: Tensor) -> NDArray[Any]:
    """Return targets of 0 and 1 as the kernels read them."""
    found = targets.detach()
    if found.dtype == torch.float32:  # numpy compares a small batch in half the time
        return (found.contiguous().numpy() > 0.5).view(np.uint8)
    found = found if found.dtype == torch.bool else found > 0.5
    return found.contiguous().view(torch.uint8).numpy()


def as_targets(targets: Tensor) -> NDArray[Any]:
    """Return targets, of which some may be fractions, as the kernels read them."""
    found = targets.detach()
    if found.dtype == torch.bool:
        return as_flags(found)
    return found.to(torch.float32).contiguous().numpy()


def as_mask(mask: Tensor | None) -> NDArray[Any]:
    """Return a mask as the kernels read it."""
    return NOTHING if mask is None else mask.contiguous().view(torch.uint8).numpy()


def tree_of(layout: TreeLayout) -> Any:
    """Return the arrays of a tree, made at first use."""
    found = layout.for_cpu.get("tree")
    if found is None:
        from hierlearn.kernels.tree_numba import Tree

        arrays = layout.on(torch.device("cpu"))
        found = Tree(*(arrays[name].numpy() for name in Tree._fields))
        found = layout.for_cpu["tree"] = found._replace(parent=found.parent.astype(np.uint32))
    return found


@lru_cache(maxsize=64)
def groups_of(sizes: tuple[int, ...]) -> tuple[Any, NDArray[Any], NDArray[Any]]:
    """Return a tree without edges, the level of each class, and the first class of each, then C."""
    from hierlearn.kernels.tree_numba import Tree

    classes = sum(sizes)
    leaves, zeros = np.full(classes, -1, dtype=np.int32), np.zeros(classes, dtype=np.uint32)
    ends, ones = np.array([0, classes], dtype=np.int32), np.ones(classes, dtype=np.uint8)
    tree = Tree(ends, leaves[:1].copy(), leaves, zeros, ones, ones.astype(np.int32))
    level = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    return tree, level, np.cumsum([0, *sizes]).astype(np.int32)


def row_losses(
    name: str,
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    constants: tuple[Any, ...],
    plain: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return (N,) losses.

    Args:
        name: of the kernel; it takes begin, end, logits, targets, mask, gradient, losses and the
            constants.
        logits: (N, C) float32.
        targets: (N, C) bool or float.
        mask: (N, C) bool, which targets are known.
        constants: what the kernel takes last, numbers as they are.
        plain: logits -> losses as a differentiable function: for gradients that are differentiated
            again, and for logits that are not finite.
    """
    from hierlearn.kernels import losses_numba

    kernel = getattr(losses_numba, name)
    constants = tuple(np.float32(one) if isinstance(one, float) else one for one in constants)
    learns = torch.is_grad_enabled() and logits.requires_grad
    x, y, known = logits.detach().contiguous(), as_targets(targets), as_mask(mask)
    losses = torch.empty(len(x))

    def run() -> Tensor:
        gradient = torch.empty_like(x) if learns else NO_GRADIENT
        arrays = (x.numpy(), y, known, gradient.numpy(), losses.numpy(), *constants)
        on_threads(lambda begin, end: kernel(begin, end, *arrays), len(x), x.numel())
        return gradient

    gradient = run()
    if not math.isfinite(losses.numpy().sum()):  # nor are logits
        return plain(logits)
    return with_gradient(losses, logits, gradient, run, plain) if learns else losses


def softmax_pair(logits: Tensor, layout: TreeLayout, plain: Callable[[Tensor], Pair]) -> Pair:
    """Return log p and log(1 - p) of every class, of the shape of the logits.

    Args:
        logits: (N, C) or (M, N, C) float32.
        layout: the tree.
        plain: the same as a differentiable function: for gradients that are differentiated again,
            and for logits that are not finite.
    """
    from hierlearn.kernels.tree_numba import link_backward, link_forward

    flat = logits.flatten(0, -2)
    if not bool(torch.isfinite(flat.sum())):
        return plain(logits)
    x, tree = flat.detach().contiguous(), tree_of(layout)
    pair = torch.empty_like(x), torch.empty_like(x)
    arrays = (x.numpy(), tree, pair[0].numpy(), pair[1].numpy())
    on_threads(lambda begin, end: link_forward(begin, end, *arrays), len(x), x.numel())

    def backward(_: Any, grads: Any, __: Any) -> tuple[Tensor]:
        out = torch.empty_like(x)
        given = [
            (NO_GRADIENT if grad is None else grad.detach().contiguous()).numpy() for grad in grads
        ]
        arrays = (x.numpy(), tree, *given, out.numpy())
        on_threads(lambda begin, end: link_backward(begin, end, *arrays), len(x), x.numel())
        return (out,)

    log_p, log_not_p = with_gradients(pair, (flat,), backward, plain)
    return log_p.view(logits.shape), log_not_p.view(logits.shape)


class HCLRows:
    """A batch under HCL with natural bce.

    Args:
        layout: the tree; None where only levels matter.
        softmax: whether logits are read by a softmax over the terminal classes, or by sigmoids.
        scope: "ancestors", None, or with sigmoids "levels".
        sizes: the classes of each level; one level where nothing binds.
        batch: (N, C) float32 logits, targets of 0 and 1, and which are known.
    """

    def __init__(
        self,
        layout: TreeLayout | None,
        softmax: bool,
        scope: str | None,
        sizes: tuple[int, ...],
        batch: tuple[Tensor, Tensor, Tensor | None],
    ) -> None:
        from hierlearn.kernels import hcl_numba as kernels

        logits, targets, mask = batch
        self.rows, self.classes = logits.shape
        x, y, known = logits.numpy(), as_flags(targets), as_mask(mask)
        tree: Any = None if layout is None else tree_of(layout)
        self.kernels: tuple[Any, Any] = kernels.sigmoid_sums, kernels.sigmoid_gradient
        self.arguments: tuple[Any, ...]
        if not softmax and scope != "ancestors":
            self.arguments = (x, y, known, *groups_of(sizes), False)
        elif not softmax:
            self.arguments = (x, y, known, tree, tree.parent, tree.first, True)
        elif scope == "ancestors" and mask is None:
            self.kernels, self.arguments = (
                (kernels.bound_sums, kernels.bound_gradient),
                (x, y, tree),
            )
        else:
            self.kernels = kernels.softmax_sums, kernels.softmax_gradient
            self.arguments = (x, y, known, tree, scope == "ancestors")

    def sums(self) -> tuple[Tensor, Tensor] | None:
        """Return the class sums and the number of errors; None where logits are not finite."""

        def work(begin: int, end: int) -> tuple[Any, int]:
            sums = np.zeros(self.classes)
            return sums, self.kernels[0](begin, end, *self.arguments, sums)

        parts = on_threads(work, self.rows, self.rows * self.classes)
        if any(errors < 0 for _, errors in parts):
            return None
        sums = torch.from_numpy(sum(part for part, _ in parts)).to(torch.float32)
        return sums, torch.tensor(float(sum(errors for _, errors in parts)))

    def gradient(self, weights: Tensor) -> Tensor:
        """Return (N, C) the gradient of the weighted class sums."""
        found = torch.empty(self.rows, self.classes)
        arguments = (*self.arguments, weights.detach().contiguous().numpy(), found.numpy())
        on_threads(
            lambda begin, end: self.kernels[1](begin, end, *arguments),
            self.rows,
            self.rows * self.classes,
        )
        return found
