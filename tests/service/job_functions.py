"""Jobs that count their runs in a file, and some that end badly; workers import this module."""

import os
import signal
import time
from pathlib import Path


def answer(data, value, *, on_step=None):
    return data, value


def count(path, name):
    """Note a run; return how many there were, this one included."""
    with Path(path).open("a") as file:
        file.write(f"{name}\n")
    return Path(path).read_text().split().count(str(name))


def counted(data, path, name, *, on_step=None):
    count(path, name)
    return data, name


def killed_once(data, path, name, *, on_step=None):
    """The first run of the job 1 is killed with its process."""
    first = count(path, name) == 1
    if name == 1 and first:
        time.sleep(0.2)  # the other worker is in the midst of a job of its own
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.4)
    return data, name


def kill_this_process(data, path, *, on_step=None):
    count(path, "killed")
    os.kill(os.getpid(), signal.SIGKILL)


def fail(data, *, on_step=None):
    raise ValueError(f"no {data}")


def process_number(data, *, on_step=None):
    time.sleep(0.3)  # so that the other worker takes the next one
    return os.getpid(), id(data)


def threads(data, *, on_step=None):
    import torch

    return torch.get_num_threads()
