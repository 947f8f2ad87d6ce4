"""GroupCache: the row groups that are in memory, and those that threads are reading for later."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hierlearn.files.reading import THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class GroupCache:
    """Row groups by number: the last ones used, and those that were announced.

    Args:
        read: returns the raw rows of a group; called in threads.
        prepare: makes of raw rows what is kept; called by who asks for a group.
    """

    def __init__(self, read: Callable[[int], Any], prepare: Callable[[Any], Any]) -> None:
        self.read, self.prepare = read, prepare
        self._held: OrderedDict[int, Any] = OrderedDict()
        self._ahead: dict[int, Future[Any]] = {}
        self._needed: frozenset[int] = frozenset()
        self._pool: ThreadPoolExecutor | None = None

    def get(self, group: int, most: int) -> Any:
        """Return the rows of a group, and drop the groups that were not used for longest.

        Args:
            group: its number.
            most: the rows that may be held; those of groups that are needed now may exceed it.
        """
        if group in self._held:
            self._held.move_to_end(group)
            return self._held[group]
        future = self._ahead.pop(group, None)
        raw = self.read(group) if future is None else future.result()
        found = self._held[group] = self.prepare(raw)
        free = [one for one in self._held if one not in self._needed and one != group]
        for one in free:
            if self.rows <= most:
                break
            del self._held[one]
        return found

    def expect(self, now: Collection[int], ahead: Collection[int]) -> None:
        """Announce which groups are needed now and which come next; threads read what is missing.

        Groups that were announced before and are not among these are dropped.
        """
        self._needed = frozenset(now)
        wanted = [*sorted(now), *sorted(set(ahead) - self._needed)]
        for group in set(self._ahead).difference(wanted):
            self._ahead.pop(group).cancel()
        missing = [one for one in wanted if one not in self._held and one not in self._ahead]
        if not missing:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hierlearn-read")
        for group in missing:
            self._ahead[group] = self._pool.submit(self.read, group)

    @property
    def rows(self) -> int:
        """How many rows are held, without those that are read ahead."""
        return sum(len(one) for one in self._held.values())
