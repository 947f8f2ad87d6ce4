"""A predictor that says which process answers which rows, and is slow enough to be killed."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from hierlearn import Predictor


@dataclass
class Slow(Predictor):
    """Appends a line to ``log`` for every batch or part: the process, and the first row."""

    log: str = ""

    def answers(self, chunks, path=Path(), before=0):
        with Path(self.log).open("a") as file:
            file.write(f"{os.getpid()} {before}\n")
        time.sleep(0.1)
        for found in super().answers(chunks, path, before):
            yield found
            time.sleep(0.2)  # half of it is answered


def lines_of(path):
    """What was logged so far: process and first row."""
    held = path.read_text().splitlines() if path.exists() else []
    return [tuple(map(int, line.split())) for line in held]


def wait_for(path, count, seconds):
    """Wait until so many batches were begun; return the process of the last one."""
    end = time.monotonic() + seconds
    while len(lines_of(path)) < count:
        assert time.monotonic() < end, f"{len(lines_of(path))} batches were begun"
        time.sleep(0.01)
    time.sleep(0.15)  # in the middle of it
    return lines_of(path)[-1][0]
