"""Running one case: in this process, with a limit of time and of memory.

A case may succeed, or be refused by an error of hierlearn in one sentence. Anything else fails it:
other exceptions, long messages, more than TIME seconds, more than MEMORY bytes over its files.
"""

import random
import resource
import signal
import threading
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field

from hierlearn.errors import HierlearnError

TIME = 10  # seconds
MEMORY = 1 << 30  # bytes over the size of the files
LONGEST = 600  # characters of a message


class TooSlow(BaseException):
    """Raised by the alarm; a BaseException, so that no reader takes it for damage."""


@dataclass
class Failure:
    """A case that failed."""

    name: str
    seed: object
    reason: str


@dataclass
class Tally:
    """What came of many cases."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    failures: list = field(default_factory=list)
    messages: Counter = field(default_factory=Counter)

    def causes(self):
        return Counter(failure.reason for failure in self.failures)


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

    old = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, TIME)
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
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    long = [str(one.message) for one in said if len(str(one.message)) > LONGEST]
    return True, f"a warning of {len(long[0])} characters: {long[0][:80]!r}" if long else None


def run_case(name, seed, prepare, tally):
    """Run one case.

    ``prepare(rng)`` returns the work, and the bytes of the files that it reads.
    """
    work, size = prepare(random.Random(f"{name}/{seed}"))
    before, begun = resident(), time.monotonic()
    with Watch() as watch:
        accepted, reason = attempt(work)
    seconds = time.monotonic() - begun
    if reason is None and watch.most - before > MEMORY + 20 * size:
        reason = f"{(watch.most - before) >> 20} MB for files of {size >> 10} kB"
    tally.cases += 1
    tally.seconds += seconds
    tally.slowest = max(tally.slowest, seconds)
    tally.accepted += accepted and reason is None
    tally.refused += not accepted and reason is None
    if reason is not None:
        tally.failures.append(Failure(name, seed, reason))
