"""Interrupts: Ctrl-C and SIGTERM end a command with one line on how to go on, exit code 130 or 143.

Files are written beside the old ones and renamed, so what was there before is intact.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn.terminal import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AGAIN = "the same command continues with what is missing"
_advice: list[str | Callable[[], str]] = []  # how to go on, as the command said last


class Terminated(BaseException):
    """The process received SIGTERM."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise Terminated, unless torchrun started this process: see processes.py."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or "TORCHELASTIC_RUN_ID" in os.environ:
        yield
        return
    _advice.clear()
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def terminate(number: int, frame: Any) -> None:
    """Raise, once: a second signal must not break off the cleaning up."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    raise Terminated


def advise(advice: str | Callable[[], str]) -> None:
    """Set how to go on where the command is interrupted from now on.

    Args:
        advice: half a sentence, or what returns it.
    """
    _advice[:] = [advice]


def end(error: BaseException | None) -> int:
    """Print the line of an interrupted command, and return its exit code."""
    advice = _advice[0] if _advice else "run the same command again"
    is_terminated = isinstance(error, Terminated)
    if int(os.environ.get("RANK", "0")) == 0:
        text = advice if isinstance(advice, str) else advice()
        complain(f"{'terminated' if is_terminated else 'interrupted'}; {text}")
    return 128 + (signal.SIGTERM if is_terminated else signal.SIGINT)


def resume_line(folder: Path) -> str:
    """Say how to go on with a training, from the words of its command line."""
    from hierlearn.pipeline.folder import can_resume

    if not folder.is_dir() or not any(folder.iterdir()):
        return "nothing was written; run the same command again"
    words = [word for word in sys.argv[1:] if word not in ("--force", "--resume", "--debug")]
    if can_resume(folder):
        return f"resume with: {shlex.join(['hierlearn', *words, '--resume'])}"
    if (folder / "config.json").is_file():  # an old model, which --force has not replaced yet
        return f"{folder} is unchanged; run the same command again"
    return (
        f"there is no checkpoint yet to resume from; start again with: "
        f"{shlex.join(['hierlearn', *words, '--force'])}"
    )
