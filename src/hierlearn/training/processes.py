"""Processes: this process among those of a training, one or many, started by torchrun.

Every process takes a part of each batch; gradients are averaged by torch's
DistributedDataParallel, over gloo on the CPU and nccl on GPUs. If one process dies, the others
report it and exit; torchrun may restart them all.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from hierlearn.errors import HierlearnError, arg, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


SMALLEST = 1e-12  # of the summed counts of a batch
JOINED = itertools.count()  # process groups that this process has joined
# Groups that were left after an error, without the barrier of ``leave``: kept alive, since their
# destructor could wait for its threads forever.
KEPT: list[Any] = []


class LostProcessError(HierlearnError):
    """Another process of the job died."""


@dataclass(frozen=True)
class Processes:
    """Which process this is.

    Attributes:
        rank: its number, from 0.
        world: how many there are.
        device: where this one computes.
    """

    rank: int
    world: int
    device: torch.device

    @property
    def writes(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def share(self, index: Tensor) -> Tensor:
        """Return the rows of a batch for this process; index is (..., n)."""
        return index[..., self.rank :: self.world]

    def total(self, count: int | Tensor) -> Tensor:
        """Return the sum of a count over all processes."""
        # A copy: the sum is made in place, and the caller still needs its own count.
        value = torch.as_tensor(count, dtype=torch.float64).to(self.device, copy=True)
        if self.world > 1:
            distributed.all_reduce(value)
        return value

    def part_of_mean(
        self, terms: Sequence[tuple[Tensor, int | Tensor]], totals: Tensor | None = None
    ) -> Tensor:
        """Return a sum of means, scaled so that its average over all processes is that of all rows.

        Args:
            terms: means over the rows of this process, each with what it divided by; scalars, or
                (M,) for the members of an ensemble.
            totals: the sums of what they divide by, where this process has more rows than these;
                by default the sums over the processes.
        """
        shape = terms[0][0].shape
        counts = torch.stack(
            [
                torch.as_tensor(n, dtype=torch.float64).to(self.device).expand(shape)
                for _, n in terms
            ]
        )
        totals = self.total(counts) if totals is None else totals
        scales = counts / totals.clamp_min(SMALLEST) * self.world
        parts = [one * scale.to(one.dtype) for (one, _), scale in zip(terms, scales, strict=True)]
        return torch.stack(parts).sum(dim=0)

    def wait(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            distributed.barrier()


def find_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device of a name; "auto" is a GPU if there is one."""
    if name == "auto":
        name = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise HierlearnError(f"{name!r} is no device; use auto, cpu or cuda") from None
    if device.type == "cpu":
        return device
    if device.type not in ("cuda", "mps", "xpu"):  # such as meta, which computes nothing
        raise HierlearnError(f"{name!r} is no device to train on; use auto, cpu or cuda")
    backend = getattr(torch, device.type)
    if not backend.is_available():
        raise HierlearnError(f"there is no {device.type.upper()} device here; use device=cpu")
    count = backend.device_count()
    if device.index is not None and device.index >= count:
        raise HierlearnError(
            f"there is no device {name}: {device.type} has {plural(count, 'device')} here, "
            f"numbered from 0"
        )
    return device


@contextmanager
def processes(device: str = "auto") -> Iterator[Processes]:
    """Join the process group of torchrun and leave it at the end; a single process without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or distributed.is_initialized():
        ready = distributed.is_initialized()
        rank = distributed.get_rank() if ready else 0
        yield Processes(rank, distributed.get_world_size() if ready else 1, find_device(device))
        return
    here = find_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if here.type == "cuda":
        torch.cuda.set_device(here)
    rank = int(os.environ.get("RANK", "0"))
    with handle_sigterm(rank):
        try:
            join("nccl" if here.type == "cuda" else "gloo")
            yield Processes(rank, world, here)
            leave()
        except (RuntimeError, distributed.DistError) as error:
            if not is_loss(error):
                raise
            raise lost(rank, error) from error
        finally:
            if distributed.is_initialized():
                KEPT.append(distributed.group.WORLD)
                distributed.destroy_process_group()


def join(backend: str) -> None:
    """Initialize the process group under a prefix that no earlier group has used.

    The store of torchrun outlives a restart and still holds the addresses of dead processes.
    """
    from torch.distributed import distributed_c10d
    from torch.distributed.rendezvous import rendezvous

    store, rank, world = next(rendezvous("env://"))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    fresh = distributed_c10d.PrefixStore(f"hierlearn/{attempt}/{next(JOINED)}", store)
    distributed.init_process_group(backend, store=fresh, rank=rank, world_size=world)


def leave() -> None:
    """Destroy the process group when the work is done.

    The destructor of a gloo group holds the GIL while it waits for the group's threads, and a
    thread that is still releasing its last message needs the GIL. So the last message is kept
    until the group is destroyed.
    """
    last = distributed.barrier(async_op=True)
    if last is not None:
        last.wait()
    distributed.destroy_process_group()
    del last


def is_loss(error: BaseException) -> bool:
    """Whether an error means that another process is unreachable; gloo has no class for it."""
    words = str(error).lower()
    return isinstance(error, distributed.DistError) or any(
        word in words for word in ("gloo", "nccl", "connection")
    )


def lost(rank: int, error: BaseException, where: str = "") -> LostProcessError:
    """Return the error for the loss of another process."""
    reason = str(error).splitlines()[0].split(". ")[0]
    return LostProcessError(
        f"process {rank} lost the connection to another one{where}; resume from the last "
        f"checkpoint with {arg('resume', True)} ({reason})"
    )


@contextmanager
def handle_sigterm(rank: int) -> Iterator[None]:
    """Print what to do when torchrun terminates this process because another one died.

    That may happen before this process has noticed the loss. A thread listens, since the main one
    may be blocked in a collective. A handler that is installed already is left in place. After an
    error it stays: the signal may come before the error is printed.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    before = signal.set_wakeup_fd(write)
    thread = threading.Thread(target=end_with_a_word, args=(read, rank), daemon=True)
    thread.start()
    yield
    signal.set_wakeup_fd(before)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(write)
    thread.join()
    os.close(read)


def end_with_a_word(read: int, rank: int) -> None:
    """Read signal numbers from a pipe; exit at SIGTERM."""
    while got := os.read(read, 1):
        if got[0] == signal.SIGTERM:
            sentence = (
                f"process {rank} was terminated, as torchrun does when another one is lost; "
                f"resume from the last checkpoint (--resume, or resume=True in Python)\n"
            )
            os.write(2, sentence.encode())
            os._exit(128 + signal.SIGTERM)
