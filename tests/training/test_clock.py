"""The clock that stops trainings which take too long."""

import pytest

from hierlearn.training import blending
from hierlearn.training.blending import Clock, OutOfTime


@pytest.fixture
def now(monkeypatch):
    """A clock that the test moves."""
    at = [100.0]
    monkeypatch.setattr(blending.time, "monotonic", lambda: at[0])
    return at


def test_without_a_limit_there_is_always_time(now):
    free = Clock(None)
    now[0] += 1e9
    assert free.left == float("inf")


def test_what_is_left(now):
    limited = Clock(60)
    now[0] += 45
    assert limited.left == 15


def test_a_training_is_judged_by_its_speed_after_some_steps(now):
    watch = Clock(60).watch(budget=20)
    now[0] += 5
    watch(1, 1000)  # too early to tell
    now[0] += 1
    watch(300, 1000)  # 6 s for 300 of 1000: 20 s
    with pytest.raises(OutOfTime):
        watch(299, 1000)


def test_short_trainings_are_judged_at_their_end(now):
    watch = Clock(60).watch(budget=1)
    now[0] += 2
    with pytest.raises(OutOfTime):
        watch(3, 3)


def test_several_trainings_must_fit(now):
    watch = Clock(60).watch(budget=20, times=5)
    now[0] += 3
    with pytest.raises(OutOfTime):
        watch(500, 1000)
