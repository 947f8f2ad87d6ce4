"""Running one case: in this process, with a limit of time and of memory.

A case may succeed, or be refused by an error of hierlearn in one sentence. Anything else fails it:
other exceptions, long messages, more than TIME seconds of computing (or LOAD times as long on a
machine that does other work, too), more than MEMORY bytes over its files.
"""

import resource
import signal
import threading
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field

from hierlearn.errors import HierlearnError

TIME = 10  # seconds of this process on a processor
LOAD = 6  # how much longer it may take where others use the machine
MEMORY = 1 << 30  # bytes over the size of the files
LONGEST = 600  # characters of a message


class TooSlow(BaseException):
    """Raised by the alarm; a BaseException, so that no reader takes it for damage."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        accepted: whether it succeeded; otherwise it was refused.
        reason: why it fails; None where it does not.
        seconds: how long it computed.
    """

    accepted: bool
    reason: str | None
    seconds: float


@dataclass
class Tally:
    """What came of many cases."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    causes: Counter = field(default_factory=Counter)

    def add(self, outcome):
        self.cases += 1
        self.slowest = max(self.slowest, outcome.seconds)
        if outcome.reason is not None:
            self.causes[outcome.reason] += 1
        elif outcome.accepted:
            self.accepted += 1
        else:
            self.refused += 1


def resident():
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize()


class Watch:
    """The most memory of a block, looked at 200 times a second."""

    def __enter__(self):
        self.most, self.ended = resident(), threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()
        return self

    def look(self):
        while not self.ended.wait(0.005):
            self.most = max(self.most, resident())

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.most = max(self.most, resident())


def place_of(error):
    """Return the innermost line of hierlearn that an error passed."""
    frames = [
        one for one in traceback.extract_tb(error.__traceback__) if "hierlearn" in one.filename
    ]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename.rpartition('hierlearn/')[2]}:{last.lineno}"


def attempt(work):
    """Return whether a case was accepted and refused, and why it fails (None where it does not)."""

    def ring(*_):
        raise TooSlow

    before = [signal.signal(one, ring) for one in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, TIME)
    signal.setitimer(signal.ITIMER_REAL, LOAD * TIME)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            work()
    except HierlearnError as error:
        message = str(error)
        if len(message) > LONGEST or "\n" in message.strip():
            return False, f"a message of {len(message)} characters: {message[:80]!r}"
        return False, None
    except TooSlow as error:
        return False, f"more than {TIME} s at {place_of(error)}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return False, f"{type(error).__name__} at {place_of(error)}: {str(error)[:100]}"
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for one, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(one, handler)
    long = [str(one.message) for one in said if len(str(one.message)) > LONGEST]
    return True, f"a warning of {len(long[0])} characters: {long[0][:80]!r}" if long else None


def judge(work, size):
    """Run a case, and return its outcome.

    Args:
        work: what to call.
        size: the bytes of the files that it reads.
    """
    before, begun = resident(), time.process_time()
    with Watch() as watch:
        accepted, reason = attempt(work)
    if reason is None and watch.most - before > MEMORY + 20 * size:
        reason = f"{(watch.most - before) >> 20} MB for files of {size >> 10} kB"
    return Outcome(accepted, reason, time.process_time() - begun)
