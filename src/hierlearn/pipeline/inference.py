"""Inference: the one loop over raw rows, in tiles and threads.

Rows are computed in batches of one size, so that no answer depends on its neighbors.

A matmul of 100 rows may round differently from one of 512, and one that four threads share
differently from one of a single thread; softmax and the like take other paths for a few rows than
for many. So rows are always computed in tiles that have the same number of rows, each on one core,
and the last tile is filled up with copies of its last row. An answer is then the same, to the last
bit, whatever rows it is computed with: in one process or in many, from a file of two million rows
or in a batch of ten.

Threads: batches predicted side by side, and their results in order.

Torch and NumPy compute outside of Python's lock. Two threads with a batch each, every operation on
one core, keep two cores busier than one batch whose operations are divided between them: nothing
waits for the other half of a small operation, and rows are read and written meanwhile.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from hierlearn.backbones import names_backbone
from hierlearn.datasets.dataset import count_rows
from hierlearn.features.numbers import NumericPreprocessor, PiecewiseLinearPreprocessor
from hierlearn.features.table import TablePreprocessor
from hierlearn.networks import NETWORKS
from hierlearn.networks.inputs import SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from torch import Tensor

    from hierlearn.links import HeadOutput
    from hierlearn.networks.build import NetworkSpec
    from hierlearn.pipeline.pipeline import Pipeline

    Item = TypeVar("Item")
    Result = TypeVar("Result")

CPU = 128  # rows of a tile: a single row is filled up to it, and answers in 17 ms instead of 51
GPU = 4096


def tile_size(pipeline: Pipeline) -> int | None:
    """Return how many rows are computed at once; None where they are not computed in tiles.

    Backbones, convolutions and networks of others are not: filling up would cost too much there,
    and texts are padded to the longest of a batch anyway.
    """
    spec = pipeline.network_spec
    if spec is None or not is_ours(spec):
        return None
    return pipeline.batch_size(CPU if pipeline.device.type == "cpu" else GPU)


def stream_outputs(
    pipeline: Pipeline,
    inputs: Any,
    read: Callable[[HeadOutput], Tensor],
    *,
    batch: int,
    tiled: bool = True,
) -> Iterator[Tensor]:
    """Yield (n, C) of what is read of the output to raw inputs, batch by batch.

    The one loop over raw rows: estimator, commands, servers, engines and evaluation predict by it.

    Args:
        pipeline: the model.
        inputs: the rows.
        read: takes probabilities, or their logarithms, from the output of a tile.
        batch: how many rows are prepared at a time.
        tiled: whether to compute in tiles where that is possible.
    """
    pipeline.network.eval()
    size = tile_size(pipeline) if tiled else None
    threads = torch.get_num_threads()
    if size is None or pipeline.device.type != "cpu" or threads < 2:
        threads = 0

    @torch.no_grad()
    def output_of(rows: Tensor | SparseRows) -> Tensor:
        return read(pipeline.scaled(pipeline.read(pipeline.network(rows)))).cpu()

    def one_tile(rows: Tensor | SparseRows, size: int, begin: int) -> Tensor:
        return output_of(filled_tile(rows, begin, size))[: len(rows) - begin]

    for first in range(0, count_rows(inputs), batch):
        with torch.no_grad():
            rows = pipeline.rows(inputs[first : first + batch])
        if size is None:
            yield output_of(rows)
        else:
            begins = range(0, len(rows), size)
            yield torch.cat([*in_order(partial(one_tile, rows, size), begins, threads)])


def filled_tile(rows: Tensor | SparseRows, begin: int, size: int) -> Tensor | SparseRows:
    """Return ``size`` rows from ``begin`` on, the last row again and again where there are fewer.

    Args:
        rows: at least one from ``begin`` on.
        begin: the first of the tile.
        size: of the tile.
    """
    if not isinstance(rows, SparseRows):
        tile = rows[begin : begin + size]
        lacking = size - len(tile)
        return torch.cat([tile, tile[-1:].expand(lacking, *tile.shape[1:])]) if lacking else tile
    index = torch.arange(begin, begin + size, device=rows.offsets.device)
    return rows.take(index.clamp_max(len(rows) - 1))


# ---------------------------------------- threads

AHEAD = 2  # results per thread that may wait for being taken
STEPS = (NumericPreprocessor, PiecewiseLinearPreprocessor, TablePreprocessor)


def worker_count(pipeline: Pipeline) -> int:
    """Return how many threads may predict at once; 0 for none beside the main one.

    Several only where all code is ours and light: a backbone divides its own work, and a network or
    a step of others may not expect threads.
    """
    step: Any = pipeline.preprocessor
    spec = pipeline.network_spec
    light = step is None or type(step) in STEPS
    if pipeline.device.type != "cpu" or not light or spec is None or not is_ours(spec):
        return 0
    return torch.get_num_threads()


def is_ours(spec: NetworkSpec) -> bool:
    """Whether a network, with all of its parts, is one of NETWORKS that computes in tiles."""
    if spec.parts:
        return all(is_ours(part.network) for part in spec.parts)
    plain = not spec.foreign and not names_backbone(spec.name)
    plain = plain and getattr(NETWORKS.get(spec.name), "solver", None) != "estimator"
    return plain and spec.inputs.kind in ("numbers", "sparse")


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
    with one_core_each(), ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Result]] = deque()
        source = held_errors(items)
        try:
            while True:
                wanted = workers * (1 + AHEAD) - len(waiting)
                waiting.extend(pool.submit(call, function, one) for one in islice(source, wanted))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def held_errors(items: Iterable[Item]) -> Iterator[tuple[Item] | Exception]:
    """Yield items, each in a tuple, and last the error that ended them, if one did."""
    try:
        for item in items:
            yield (item,)
    except Exception as error:  # raised again in its place
        yield error


def call(function: Callable[[Item], Result], held: tuple[Item] | Exception) -> Result:
    """Call a function with a held item, or raise the error that was held in its place."""
    if isinstance(held, Exception):
        raise held
    return function(*held)


class Cores:
    """How many cores an operation of torch uses, which is one setting for the entire process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.before = 1

    def take(self) -> None:
        """Begin to use one core per operation."""
        with self.lock:
            if not self.users:
                self.before = torch.get_num_threads()
                torch.set_num_threads(1)
            self.users += 1

    def give_back(self) -> None:
        """End it; the last user restores what was set before."""
        with self.lock:
            self.users -= 1
            if not self.users:
                torch.set_num_threads(self.before)


CORES = Cores()


@contextmanager
def one_core_each() -> Iterator[None]:
    """Let every operation of torch use the core of its thread only; threads may overlap in it."""
    CORES.take()
    try:
        yield
    finally:
        CORES.give_back()
