"""The queue: what is joined, what is refused, and what waits too long."""

import asyncio
import threading

import pytest

from hierlearn.service.batching import Batcher, Limits, Overloaded


class Slow:
    """Computes when it is allowed to, and remembers what it was given."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()

    def __call__(self, tasks):
        self.batches.append(list(tasks))
        assert self.go.wait(240)
        if "bad" in tasks:
            raise ValueError("bad")
        return [task.upper() for task in tasks]


def run(scenario, **limits):
    """Run a coroutine with a slow batcher."""

    async def main():
        slow = Slow()
        batcher = Batcher(slow, Limits(**limits))
        batcher.start()
        try:
            return await scenario(batcher, slow)
        finally:
            slow.go.set()
            await asyncio.to_thread(batcher.close, 240)

    return asyncio.run(main())


async def busy(batcher, slow):
    """Wait until the thread computes a first task."""
    first = batcher.submit("first", 1)
    while not slow.batches:
        await asyncio.sleep(0.001)
    return first


def test_what_arrives_while_the_model_computes_is_one_batch():
    async def scenario(batcher, slow):
        first = await busy(batcher, slow)
        others = [batcher.submit(name, 1) for name in "abcde"]
        slow.go.set()
        assert await first == "FIRST"
        assert [await one for one in others] == list("ABCDE")
        return slow.batches

    assert run(scenario, max_batch=3) == [["first"], ["a", "b", "c"], ["d", "e"]]


def test_a_batch_has_no_more_rows_than_allowed_unless_one_task_has():
    async def scenario(batcher, slow):
        first = await busy(batcher, slow)
        others = [batcher.submit(name, rows) for name, rows in (("a", 2), ("b", 2), ("c", 9))]
        slow.go.set()
        await asyncio.gather(first, *others)
        return slow.batches

    assert run(scenario, max_batch=3) == [["first"], ["a"], ["b"], ["c"]]


def test_an_idle_model_waits_for_more_rows_where_that_is_asked_for():
    async def scenario(batcher, slow):
        slow.go.set()
        one = batcher.submit("a", 1)
        await asyncio.sleep(0.02)
        other = batcher.submit("b", 1)
        await asyncio.gather(one, other)
        return slow.batches

    assert run(scenario, max_batch=2, max_wait=5.0) == [["a", "b"]]


def test_a_full_queue_refuses_and_says_when_to_try_again():
    async def scenario(batcher, slow):
        first = await busy(batcher, slow)
        waiting = [batcher.submit(name, 2) for name in "ab"]
        assert batcher.rows == 4
        with pytest.raises(Overloaded, match="4 rows wait, and at most 5 may") as caught:
            batcher.submit("c", 2)
        assert caught.value.retry_after >= 1
        last = batcher.submit("d", 1)  # fits
        slow.go.set()
        assert await asyncio.gather(first, *waiting, last) == ["FIRST", "A", "B", "D"]
        assert batcher.rows == 0

    run(scenario, max_queue=5, max_batch=100)


def test_a_task_that_waits_too_long_is_given_up_and_never_computed():
    async def scenario(batcher, slow):
        first = await busy(batcher, slow)
        late = batcher.submit("late", 1)
        for future in (first, late):
            with pytest.raises(Overloaded, match=r"no answer within 0\.05 s"):
                await future
        slow.go.set()
        batcher.limits = Limits()
        assert await batcher.submit("next", 1) == "NEXT"
        return slow.batches

    assert run(scenario, timeout=0.05) == [["first"], ["next"]]


def test_one_bad_task_fails_alone():
    async def scenario(batcher, slow):
        first = await busy(batcher, slow)
        names = ("a", "bad", "b")
        futures = [batcher.submit(name, 1) for name in names]
        slow.go.set()
        await first
        return await asyncio.gather(*futures, return_exceptions=True)

    a, bad, b = run(scenario)
    assert (a, b) == ("A", "B")
    assert isinstance(bad, ValueError)


def test_closing_computes_what_was_accepted():
    async def scenario(batcher, slow):
        first = await busy(batcher, slow)
        last = batcher.submit("last", 1)
        slow.go.set()
        await asyncio.to_thread(batcher.close, 240)
        return await asyncio.gather(first, last)

    assert run(scenario, max_batch=1) == ["FIRST", "LAST"]
