"""Trainings in processes that are really killed. A script: it prints what happened as JSON.

It imports torch once and forks a child for every attempt of a training; a attempt goes on from
where the one before was killed. The script itself never trains, so that it may fork.

    python killed_runs.py FOLDER CASE...
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from hierlearn.errors import HierlearnError
from hierlearn.pipeline import Pipeline, evaluate, train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.checkpoint import Checkpoints
from hierlearn.training.processes import handle_sigterm
from training.datasets import plan, problem, trainer_of

CHOSEN = plan(
    "hcl",
    options={"floor": 0.0, "link": "softmax", "scope": "ancestors"},
    dropout=0.3,
    ensemble_size=2,
    epochs=12,
    checkpoint_every=2,
    patience=12,
    metric="hit@1",
)

QUIET = Reporting(bar=False)


def attempt(folder, before=None):
    """Fork a child that trains until it is done, or dead; return its process number."""
    child = os.fork()
    if child:
        return child
    try:
        if before is not None:
            before()
        train(problem(), CHOSEN, out=folder, resume=True, reporting=QUIET)
    except HierlearnError as error:
        (folder.parent / f"{folder.name}.error").write_text(str(error))
        os._exit(2)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(3)
    os._exit(0)


def end_of(child):
    """Wait for a child; return its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def finish(folder):
    """Let one last attempt end the training."""
    return end_of(attempt(folder))


def steps(folder):
    """Return the steps of the checkpoints that there are."""
    return [int(path.stem[5:]) for path in Checkpoints(folder / "checkpoints").paths()]


def at_random_moments(folder):
    """Kill attempt after attempt, each after a while that nobody chose."""
    begun = time.perf_counter()
    end_of(attempt(folder.with_name("uninterrupted")))
    whole = time.perf_counter() - begun
    rng = random.Random(time.time_ns())
    moments, ends, reached = [], [], []
    while len(moments) < 10 and not (folder / "config.json").exists():
        moments.append(round(rng.uniform(0.05, 0.25) * whole, 4))
        child = attempt(folder)
        time.sleep(moments[-1])
        os.kill(child, signal.SIGKILL)
        ends.append(end_of(child))
        reached.append(max(steps(folder), default=0))
    return {"moments": moments, "ends": ends, "reached": reached, "last": finish(folder)}


def when_it_appears(pattern, times):
    """Kill a attempt as soon as a file of some name is there, a few times."""

    def before():  # long enough in the midst of a write for the other process to see it
        sync = os.fsync
        os.fsync = lambda file: (time.sleep(0.05), sync(file))

    def case(folder):
        ends, left = [], 0
        for _ in range(times):
            known = set(folder.glob(pattern))
            child = attempt(folder, before)
            while not set(folder.glob(pattern)) - known:
                if os.waitpid(child, os.WNOHANG)[0]:
                    return {"ends": [*ends, "finished unseen"], "left": left}
            os.kill(child, signal.SIGKILL)
            ends.append(end_of(child))
            left += bool(set(folder.glob(pattern)) - known)
        return {"ends": ends, "left": left, "last": finish(folder)}

    return case


def in_the_midst_of_a_write(folder):
    """Let the system kill a attempt half-way through writing its fourth checkpoint."""
    size = largest_checkpoint(folder)

    def before():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        limit_after(folder, 6, size // 2)

    end = end_of(attempt(folder, before))
    parts = [path.stat().st_size for path in (folder / "checkpoints").glob(".hierlearn-*.part")]
    return {
        "ends": [end],
        "parts": parts,
        "half": size // 2,
        "steps": steps(folder),
        "last": finish(folder),
    }


def on_a_full_disk(folder):
    """Let a checkpoint not fit any more."""
    size = largest_checkpoint(folder)
    end = end_of(attempt(folder, lambda: limit_after(folder, 6, size // 2)))
    said = folder.with_name(f"{folder.name}.error").read_text()
    left = sorted(path.name for path in (folder / "checkpoints").iterdir())
    return {"ends": [end], "said": said, "left": left, "last": finish(folder)}


def largest_checkpoint(folder):
    """Return the size of a checkpoint of such a training, from an uninterrupted one."""
    whole = folder.with_name("uninterrupted")
    if not whole.exists():
        end_of(attempt(whole))
    return max(path.stat().st_size for path in Checkpoints(whole / "checkpoints").paths())


def limit_after(folder, step, size):
    """Refuse files beyond a size once a checkpoint of some step is there."""
    from hierlearn.training.solvers import gradient as trainer

    take = trainer.Trainer.train_step

    def train_step(self, *given):
        take(self, *given)
        if self.step == step + 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    trainer.Trainer.train_step = train_step


def told_to_stop(folder):
    """Tell a process of many to end, as torchrun does."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 2)
        with handle_sigterm(1):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # busy with something else
            os.write(write, b"ready\n")
            time.sleep(600)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        assert file.readline() == "ready\n"
        os.kill(child, signal.SIGTERM)
        return {"said": file.read(), "ends": [end_of(child)]}


CASES = {
    "random": at_random_moments,
    "writing": when_it_appears("checkpoints/.hierlearn-*.part", 4),
    "midst": in_the_midst_of_a_write,
    "full": on_a_full_disk,
    "model": when_it_appears(".hierlearn-*.new", 1),
    "told": told_to_stop,
}


def main():
    """Run the cases named on the command line."""
    root = Path(sys.argv[1])
    # What torch and the metrics import late is imported here, once for all children.
    ready = trainer_of(problem(), CHOSEN)
    with suppress(HierlearnError):
        from hierlearn.training.prepare import prepare

        evaluate(Pipeline.from_prepared(prepare(problem(), CHOSEN, ready.rows.device)), problem())
    for parameter in ready.network.parameters():
        parameter.grad = parameter.detach().clone()
    ready.optimizer.step()
    print(json.dumps({name: CASES[name](root / name) for name in sys.argv[2:]}))


if __name__ == "__main__":
    main()
