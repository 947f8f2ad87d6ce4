"""Shards in the threads of one process: the same exchanges without starting processes."""

from __future__ import annotations

import threading

import torch

from hierlearn.hierarchy.exchange import Exchange


class Meeting:
    """Where the threads meet and leave what they exchange."""

    def __init__(self, world):
        self.world = world
        self.barrier = threading.Barrier(world)
        self.values = [None] * world

    def all(self, rank, x):
        self.values[rank] = x
        self.barrier.wait(240)
        found = torch.stack([one.detach().clone() for one in self.values])
        self.barrier.wait(240)
        return found


class ThreadExchange(Exchange):
    """The exchanges of one thread."""

    def __init__(self, rank, meeting):
        super().__init__(rank, meeting.world)
        self.meeting = meeting

    def gather(self, x):
        return self.meeting.all(self.rank, x)

    def from_first(self, x):
        return self.meeting.all(self.rank, x)[0]

    def total(self, x):
        return self.meeting.all(self.rank, x).sum(dim=0)

    def own_total(self, x):
        return self.meeting.all(self.rank, x).sum(dim=0)[self.rank]


def in_shards(world, work):
    """Return what ``work(exchange)`` returns in each of ``world`` threads."""
    meeting = Meeting(world)
    found, errors = [None] * world, []

    def run(rank):
        try:
            found[rank] = work(ThreadExchange(rank, meeting))
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    real = [one for one in errors if not isinstance(one, threading.BrokenBarrierError)]
    if errors:
        raise (real or errors)[0]
    return found
