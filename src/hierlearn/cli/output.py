"""What commands print: tables, progress, errors in the terms of the command line, and interrupts.

The library marks the arguments that a message names; here they are written as the options of the
command that was invoked. Ctrl-C and SIGTERM end a command with one line on how to go on, exit code
130 or 143; files are written beside the old ones and renamed, so what was there before is intact.
Under torchrun, an error that every process meets is printed by one of them.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hierlearn.errors import plural, quoted
from hierlearn.terminal import (
    Console,
    ProgressLines,
    Table,
    complain,
    print_plain,
    print_table,
    progress,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hierlearn.hierarchy import Hierarchy


_advice: list[str | Callable[[], str]] = []  # how to go on, as the command said last
AGAIN = "the same command continues with what is missing"


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

    def terminate(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not break off the cleaning up
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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


SECONDS = 5  # to reach the store of torchrun


def is_first_to_say(message: str) -> bool:
    """Whether no other process of this job has printed a message; True outside of torchrun.

    The processes count it in the store of torchrun. Where that is out of reach, all of them print.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=SECONDS))
        key = f"hierlearn/said/{attempt}/{sha256(message.encode()).hexdigest()}"
        return bool(store.add(key, 1) == 1)
    except (RuntimeError, ValueError):
        return True


# ---------------------------------------------------------------------- tables and progress


SOURCED = ("source", "license", "attribution")  # of a description


def number(value: float) -> str:
    """Write a count, or a median of counts, in full."""
    return f"{value:,.1f}".removesuffix(".0")


def print_levels(console: Console, hierarchy: Hierarchy) -> None:
    """Print one row per level."""
    import numpy as np

    kind = "tree" if hierarchy.is_tree else "DAG"
    classes = plural(len(hierarchy), "class", "classes")
    rows = []
    fan_out = np.diff(hierarchy.structure.children[0])
    for level, columns in enumerate(hierarchy.level_slices, start=1):
        below = fan_out[columns]
        inner = below[below > 0]
        spread = [number(float(np.median(inner))), f"{inner.max():,}"] if len(inner) else ["", ""]
        rows.append([str(level), f"{len(below):,}", f"{len(below) - len(inner):,}", *spread])
    heads = ["level", "classes", "leaves", "children: median", "most"]
    print_table(console, heads, rows, f"{classes}, {kind}", left=0)
    print_plain(console, f"fingerprint {hierarchy.fingerprint[:16]}")


def print_description(console: Console, description: dict[str, Any]) -> None:
    """Print what ``describe`` found."""
    from hierlearn.datasets.describe import NearDuplicate, listed

    hierarchy, labels, inputs = (description[one] for one in ("hierarchy", "labels", "inputs"))
    ends = labels["terminal_per_row"]
    splits = ", ".join(f"{name} {count:,}" for name, count in description["splits"].items())
    if inputs["kind"] == "texts":
        described = f"texts of {inputs['words_per_row']:.1f} words"
    elif inputs["kind"] == "images":
        described = "images"
    elif inputs["kind"] == "sparse":
        described = f"{inputs['features']:,} sparse numbers, {inputs['density']:.2%} not zero"
    elif inputs["kind"] == "table":
        described = f"{inputs['columns']}; {inputs['missing_fraction']:.1%} missing"
    else:
        numbers = plural(inputs["features"], "number")
        described = f"{numbers}, {inputs['missing_fraction']:.1%} missing"
    rows = {
        **{one: description[one] for one in SOURCED if description.get(one)},
        "rows": f"{description['rows']:,}" + (f" ({splits})" if splits else ""),
        "inputs": described,
        "classes": f"{hierarchy['classes']:,} in {plural(hierarchy['levels'], 'level')} "
        f"({hierarchy['kind']}, {plural(hierarchy['leaves'], 'leaf', 'leaves')})",
        "terminal labels per row": f"{ends['min']} to {ends['max']}, mean {ends['mean']:.2f}",
        "rows without a label": f"{labels['rows_without_label']:,}",
        "rows ending above a leaf": f"{labels['rows_ending_above_a_leaf']:,}",
    }
    if labels["classes_with_one_row"]:
        rows["classes with one row"] = counted(labels["classes_with_one_row"])
    if labels["near_duplicates"]:
        found = [NearDuplicate(**one) for one in labels["near_duplicates"]]
        rows["labels that may be misspelled"] = f"{len(found):,}: {listed(found, most=10)}"
    if "classes_without_training_row" in labels:
        rows["classes without a training row"] = f"{labels['classes_without_training_row']:,}"
    table = Table(title=description["name"], show_header=False)
    for row in rows.items():
        table.add_row(*row)
    console.print(table)
    heads = ["level", "classes", "fewest", "median", "most", "empty"]
    cells = [map(number, level.values()) for level in description["rows_per_class"]]
    print_table(console, heads, cells, "rows per class", left=0)


def counted(names: list[str], most: int = 3) -> str:
    """Write how many names there are, and the first of them."""
    return f"{len(names):,}: {quoted(names, most)}"


def writes() -> bool:
    """Whether this process prints and writes: the first of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show progress; yield a callback for the number of rows done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = ProgressLines(what, total)
        yield lambda done: lines.update(completed=done)
        return
    with progress(console, "count") as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def save_text(path: Path, text: str) -> None:
    """Write a file that appears when it is complete."""
    from hierlearn.files.writing import atomic_write

    with atomic_write(path) as file:
        file.write(text + "\n")


def write_json(path: Path, content: Any) -> None:
    """Write a file of JSON that people may read."""
    save_text(path, json.dumps(content, indent=2, ensure_ascii=False))
