"""Row groups in memory: what is needed stays, what comes next is read by threads meanwhile."""

import threading

import pytest

from hierlearn.errors import DataError
from hierlearn.training.stream import GroupCache


class Slow:
    """A file whose groups of 4 rows are read only when a test lets them."""

    def __init__(self):
        self.reads, self.threads = [], set()
        self.may_read, self.has_begun = threading.Event(), threading.Event()
        self.may_read.set()

    def read(self, group):
        self.has_begun.set()
        assert self.may_read.wait(240)
        self.reads.append(group)
        self.threads.add(threading.current_thread().name)
        if group == 13:
            raise DataError("rows, line 8 of b.parquet: no")
        return [group] * 4


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def cache(slow):
    return GroupCache(slow.read, tuple)


def test_the_next_groups_are_read_while_the_caller_works(slow, cache):
    slow.may_read.clear()
    cache.expect({0}, {1, 2})
    assert slow.has_begun.wait(240), "nobody has asked for a group yet"
    assert slow.reads == []
    slow.may_read.set()
    assert [cache.get(group, 8) for group in (0, 1, 2)] == [(0,) * 4, (1,) * 4, (2,) * 4]
    assert sorted(slow.reads) == [0, 1, 2], "each of them once"
    assert all(name.startswith("hierlearn-read") for name in slow.threads)


def test_without_an_announcement_the_last_groups_are_kept(slow, cache):
    for group in (0, 1, 0, 2, 0, 1):
        cache.get(group, 8)
        assert cache.rows <= 8
    assert slow.reads == [0, 1, 2, 1]
    assert slow.threads == {threading.current_thread().name}
    cache.get(5, 1)
    assert cache.rows == 4, "a group is the least that is held"


def test_groups_that_are_needed_stay_beyond_the_limit(slow, cache):
    cache.expect({0, 1, 2}, set())
    for group in (0, 1, 2) * 3:
        cache.get(group, 8)
    assert sorted(slow.reads) == [0, 1, 2]
    cache.expect({3}, set())
    cache.get(3, 8)
    assert cache.rows == 8


def test_groups_that_are_no_longer_expected_are_forgotten(slow, cache):
    cache.expect({0}, {1})
    cache.get(0, 8)
    cache.expect({2}, {3})
    cache.get(2, 8)
    cache.get(1, 8)
    assert slow.reads.count(1) <= 2
    cache.get(3, 8)
    assert slow.reads.count(3) == 1


def test_an_error_of_a_thread_is_raised_where_the_group_is_asked_for(cache):
    cache.expect({0}, {13})
    assert cache.get(0, 8) == (0,) * 4
    with pytest.raises(DataError, match=r"line 8 of b\.parquet"):
        cache.get(13, 8)
