"""The fault matrix: every step of every write of a job fails, or is the last of its process.

A job is something that writes. It runs once while the steps are counted: creating, flushing,
appending, renaming and removing a file. Then, for the k-th step, a process of its own

    full      finds the disk full from that step on
    before    is killed before that step
    after     is killed after that step

and what is on disk must be what was there before or what should be there after. Then the job runs
again, and must end as it does without faults, bit for bit, with no hidden file left.

The script imports torch once and forks a child for every attempt; it never trains itself.

    python fault_matrix.py FOLDER [JOB...] [--every N] [--seed S]     prints the outcome as JSON
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.files import writing
from hierlearn.files.tensors import read_tensors
from hierlearn.lab.compare import run_study
from hierlearn.lab.protocol import Protocol
from hierlearn.lab.summary import publish
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.folder import TRAINING
from hierlearn.pipeline.remember import MemoryFolder
from hierlearn.pipeline.run import Reporting
from shards import memory
from training.datasets import neighbor_plan, plan, problem, without_times

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = ("create", "flush", "append", "rename", "remove")
MODES = ("full", "before", "after")
FULL, FAILED = 2, 3  # exit codes of an attempt
KILLED = -signal.SIGKILL
QUIET = Reporting(bar=False)
OLD = plan("bce", epochs=1)
NEW = plan("hcl", epochs=3, dropout=0.2, checkpoint_every=4)
# Keys of JSON files that differ between equal runs.
TIMES = {"seconds", "cpu_seconds", "metadata", "versions"}


@dataclass(frozen=True)
class Job:
    """Something that writes into a folder.

    Attributes:
        run: the work; called again after a fault.
        prepare: what is there before.
        usable: raises where the folder is neither as before nor as after.
    """

    run: Callable[[Path], None]
    prepare: Callable[[Path], None] = lambda folder: folder.mkdir()
    usable: Callable[[Path], None] = lambda folder: None


# ---------------------------------------------------------------------- jobs


def train_new(folder):
    train(problem(), NEW, out=folder / "m", resume=True, reporting=QUIET)


def train_again(folder):
    """Replace a model; resume where a replacement has begun."""
    begun = (folder / "m" / TRAINING).is_dir()
    done = not begun and Pipeline.load(folder / "m").config["settings"]["epochs"] == 3
    train(problem(), NEW, out=folder / "m", resume=begun or done, force=True, reporting=QUIET)


def old_model(folder):
    train(problem(), OLD, out=folder / "m", reporting=QUIET)


def load_model(folder):
    Pipeline.load(folder / "m").probabilities(problem().inputs)


def load_if_there(folder):
    if (folder / "m" / "config.json").exists():
        load_model(folder)


def memory_model(folder):
    train(problem(), neighbor_plan(epochs=1), out=folder / "m", reporting=QUIET)


def remember_rows(folder):
    """Remember rows in place, unless they are remembered already."""
    rows = problem(seed=1, rows=8)
    with MemoryFolder.open(folder / "m") as held:
        if "new 0" not in memory(folder / "m")["ids"]:
            held.remember(rows.inputs, rows.labels, ids=[f"new {k}" for k in range(8)])


def forget_rows(folder):
    """Forget rows in place, unless they are forgotten already."""
    with MemoryFolder.open(folder / "m") as held:
        if "new 3" in memory(folder / "m")["ids"]:
            held.forget(["new 3", "new 5"])


def two_shards(folder):
    memory_model(folder)
    remember_rows(folder)


def save_over(folder):
    """Save another model over one that was trained."""
    model = Pipeline.load(folder / "other")
    model.save(folder / "m", force=True)


def two_models(folder):
    old_model(folder)
    train(problem(), plan("hcl", epochs=1), reporting=QUIET).save(folder / "other")


def compare_two(folder):
    protocol = Protocol(seeds=2, settings={"epochs": 1, "device": "cpu"})
    publish(run_study(problem(), ["bce", "hcl"], folder / "s", protocol))


def open_study(folder):
    from hierlearn.lab.study import Study

    if (folder / "s" / "study.json").exists():
        study = Study.open(folder / "s")
        for one in study.finished:
            study.rows(one), study.log(one), study.truth()


JOBS = {
    "train": Job(train_new, usable=load_if_there),
    "train --force": Job(train_again, old_model, load_model),
    "remember --in-place": Job(remember_rows, memory_model, load_model),
    "forget --in-place": Job(forget_rows, two_shards, load_model),
    "save": Job(save_over, two_models, load_model),
    "compare": Job(compare_two, usable=open_study),
}


# ---------------------------------------------------------------------- attempts


def with_faults(before_step, after_step):
    """Replace the steps of ``writing``, wherever they were imported, by ones that are counted."""
    for name in STEPS:
        real = getattr(writing, name)

        def step(*given, name=name, real=real):
            before_step(name)
            found = real(*given)
            after_step(name)
            return found

        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("hierlearn"):
                for key, value in list(vars(module).items()):
                    if value is real:
                        setattr(module, key, step)


def attempt(job, folder, mode=None, number=0):
    """Run a job in a child; return its exit code or minus its signal, its steps and modules."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with os.fdopen(read) as file:
            steps, loaded = json.loads(file.read() or "[0, []]")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), steps, loaded
    count = 0

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def before_step(name):
        nonlocal count
        count += 1
        if mode == "before" and count == number:
            kill()
        if mode == "full" and count >= number and name in ("create", "flush", "append"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def after_step(name):
        if mode == "after" and count == number:
            kill()

    with_faults(before_step, after_step)
    code = 0
    try:
        job.run(folder)
    except HierlearnError as error:
        code = FULL if isinstance(error, OSError) else FAILED
        if code == FAILED:
            print(f"{mode} {number}: {error}", file=sys.stderr)
    except BaseException as error:
        print(f"{mode} {number}: {error!r}", file=sys.stderr)
        code = FAILED
    loaded = [] if mode else list(sys.modules)
    with os.fdopen(write, "w") as file:
        file.write(json.dumps([count, loaded]))
    os._exit(code)


def in_child(function, folder):
    """Run a function in a child; return whether it raised nothing."""
    child = os.fork()
    if not child:
        try:
            function(folder)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(FAILED)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---------------------------------------------------------------------- what must be equal


def content(folder):
    """Return what a folder holds, by path, without times; tensors as they are."""
    return {
        str(path.relative_to(folder)): content_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def content_of(path):
    """Return what a file holds, without times."""
    if path.suffix == ".safetensors":
        tensors, metadata = read_tensors(path)
        values = {name: str(value.tolist()) for name, value in tensors.items()}  # NaN is NaN
        return values, untimed(metadata)
    if path.suffix == ".json":
        return untimed(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return untimed(without_times(lines))
    return None if path.suffix in (".md", ".csv", ".tex") else path.read_bytes()


def untimed(value):
    """Return plain values without those that the clock or the machine tells."""
    if isinstance(value, dict):
        kept = {k: untimed(v) for k, v in value.items() if k not in TIMES}
        if "files" in kept:
            kept["files"] = sorted(kept["files"])  # without digests
        return kept
    return [untimed(one) for one in value] if isinstance(value, list) else value


def hidden(folder):
    """Return the files that hierlearn has hidden in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".hierlearn-*"))


def run_cell(job, root, whole, mode, number):
    """Let one step of a job fail; return what is wrong afterwards, nothing if all is well."""
    folder = root / "cell"
    shutil.copytree(root / "before", folder)
    wrong = []
    try:
        code, _, _ = attempt(job, folder, mode, number)
        expected = (FULL, 0) if mode == "full" else (KILLED,)
        if code not in expected:
            wrong.append(f"it ended with {code}")
        if not in_child(job.usable, folder):
            wrong.append("what it left cannot be used")
        code, _, _ = attempt(job, folder)
        if code:
            wrong.append(f"the next run ended with {code}")
        elif content(folder) != whole:
            now = content(folder)
            names = [name for name in {*now, *whole} if now.get(name) != whole.get(name)]
            wrong.append(f"the next run ended otherwise: {sorted(names)}")
        if hidden(folder):
            wrong.append(f"hidden files are left: {hidden(folder)}")
    finally:
        shutil.rmtree(folder)
    return wrong


def run_job(name, root, every=1, seed=0):
    """Return the outcome of a job: how many steps and faults, and what went wrong."""
    job = JOBS[name]
    root.mkdir(parents=True)
    begun = time.perf_counter()
    if not in_child(job.prepare, root / "before"):
        raise SystemExit(f"{name}: cannot be prepared")
    shutil.copytree(root / "before", root / "whole")
    code, steps, loaded = attempt(job, root / "whole")
    if code:
        raise SystemExit(f"{name}: it ends with {code} without any fault")
    for module in loaded:  # once for all children
        with suppress(Exception):
            importlib.import_module(module)
    whole = content(root / "whole")
    cells = [(mode, number) for number in range(1, steps + 1) for mode in MODES]
    picked = sorted(random.Random(seed).sample(cells, -(-len(cells) // every)))
    failures = {}
    for mode, number in picked:
        wrong = run_cell(job, root, whole, mode, number)
        if wrong:
            failures[f"{mode} {number}"] = wrong
    return {
        "steps": steps,
        "faults": {
            "full": sum(mode == "full" for mode, _ in picked),
            "killed": sum(mode != "full" for mode, _ in picked),
        },
        "failures": failures,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main():
    """Run the jobs that the command line names, or all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("jobs", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="try one of this many faults")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in given.jobs or JOBS:
        root = given.folder / name.replace(" ", "").replace("-", "")
        found[name] = run_job(name, root, given.every, given.seed)
        shutil.rmtree(root)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
