"""Memory, time and traffic of a training whose classes are shared out (``parallel classes``).

A tree of 4 levels, rows of 64 numbers, a hidden layer of 256 units, HCL (softmax, ancestors) and
AdamW on batches of 128 rows; one process (``parallel ddp``) against two on this machine, over gloo.
Every process has one thread. Per process, in MB of resident memory over that of the same process
after a training with 500 classes, which has loaded all libraries and kernels:

    prepared   when data, taxonomy, network and initial weights are there, before the first step
    training   the peak of 8 steps
    peak       that of everything: preparing, training, and the whole weights at the end

"checkpoints" says whether a checkpoint was written after 4 and 8 steps, of which a single process
makes a copy in memory.

Seconds per step are the median without the first; the bytes are those that a process sends for the
last layer and the loss, in one copy; the gradients of the encoder (ddp) are not among them.

Run with ``python benchmarks/bench_class_shards.py``; the figures go to results/class_shards.json.
``--classes`` sets the sizes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FEATURES, WIDTH, BATCH, ROWS, EPOCHS = 64, 256, 128, 512, 2
SIZES = (20_000, 100_000, 200_000)
STATUS = Path("/proc/self/status")


def memory(name: str) -> float:
    """Return a line of the status of this process, in MB."""
    lines = [line for line in STATUS.read_text().splitlines() if line.startswith(name)]
    return int(lines[0].split()[1]) / 1e3


def forget_peak() -> None:
    """Let the peak of the resident memory start again."""
    Path("/proc/self/clear_refs").write_text("5")


def tree(classes: int) -> dict[str, str | None]:
    """Return the parents of a tree of 4 levels whose 7 top classes have unequal numbers below."""
    parents: dict[str, str | None] = {f"a{k}": None for k in range(7)}
    parents |= {f"b{k}": f"a{int(7 * (k / 400) ** 2)}" for k in range(400)}
    parents |= {f"c{k}": f"b{k % 400}" for k in range(classes // 20)}
    inner = classes // 20
    parents |= {f"d{k}": f"c{k % inner}" for k in range(classes - len(parents))}
    return parents


def work(classes: int, folder: Path, loss: str, *, checkpoints: bool) -> None:
    """Train in one of the processes, and write what it took."""
    import numpy as np
    import torch

    from hierlearn import Dataset, Hierarchy, Plan
    from hierlearn.pipeline.reporting import Reporting
    from hierlearn.pipeline.train import run
    from hierlearn.training.prepare import prepare
    from hierlearn.training.processes import processes

    torch.set_num_threads(1)

    def problem(classes: int, world: int) -> tuple[Dataset, Plan]:
        hierarchy = Hierarchy.from_parents(tree(classes))
        draw = np.random.default_rng(0)
        leaves = draw.choice(hierarchy.leaves, ROWS)
        labels = [[hierarchy.names[leaf]] for leaf in leaves]
        inputs = draw.standard_normal((ROWS, FEATURES)).astype(np.float32)
        settings = {"epochs": EPOCHS, "batch_size": BATCH, "device": "cpu"}
        settings["parallel"] = "ddp" if world == 1 else "classes"
        options = {"width": WIDTH, "dropout": 0.0}
        plan = Plan(loss=loss, network="mlp", network_options=options, settings=settings)
        return Dataset(inputs, labels, hierarchy), plan

    with processes("cpu") as here:
        out = folder / "out" if checkpoints else None
        run(prepare(*problem(500, here.world), here.device), here)
        gc.collect()
        here.wait()
        base = memory("VmRSS")
        forget_peak()
        prepared = prepare(*problem(classes, here.world), here.device)
        ready, first = memory("VmRSS"), memory("VmHWM")
        times: list[float] = []
        peaks: list[float] = []
        bytes_sent: list[int] = []

        def on_step(step: int, steps: int) -> None:
            times.append(time.perf_counter())
            if step == 1:
                forget_peak()
            if step == steps:
                peaks.append(memory("VmHWM"))

        trainer = run(prepared, here, out, reporting=Reporting(on_step=on_step, bar=False))
        if here.world > 1:
            bytes_sent.append(trainer.sent_per_step)  # type: ignore[attr-defined]
        last = memory("VmHWM")
        gaps = np.diff(times)
        within = [gap for k, gap in enumerate(gaps, 1) if k % (ROWS // BATCH)]  # no checkpoints
        found = {
            "baseline": base,
            "prepared": ready - base,
            "training": peaks[0] - base,
            "peak": max(first, *peaks, last) - base,
            "seconds_per_step": statistics.median(within),
            "bytes_per_step": bytes_sent[0] if bytes_sent else 0,
        }
        (folder / f"{here.rank}.json").write_text(json.dumps(found))


def measure(classes: int, world: int, loss: str, checkpoints: str) -> list[dict[str, Any]]:
    """Return what each of the processes took."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(world), __file__, "--worker"]
        command += [name, loss, str(classes), checkpoints]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment)
        return [json.loads((Path(name) / f"{k}.json").read_text()) for k in range(world)]


def main() -> None:
    """Measure one process and two, one after another, at every size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--loss", default="hcl")
    parser.add_argument("--worker", nargs=4)
    words = parser.parse_args()
    if words.worker:
        folder, loss, classes, checkpoints = words.worker
        work(int(classes), Path(folder), loss, checkpoints=checkpoints == "yes")
        return
    from machine import write

    figures = []
    kinds = [(classes, "no") for classes in words.classes] + [(max(words.classes), "yes")]
    for classes, checkpoints in kinds:
        one, two = (measure(classes, world, words.loss, checkpoints) for world in (1, 2))
        ratios = {
            name: round(max(rank[name] for rank in two) / one[0][name], 3)
            for name in ("training", "peak", "seconds_per_step")
        }
        figures.append(
            {
                "classes": classes,
                "loss": words.loss,
                "checkpoints": checkpoints,
                "ratios": ratios,
                "one": one,
                "two": two,
            }
        )
        print(json.dumps(figures[-1]), flush=True)
    print(write("class_shards", figures, "python benchmarks/bench_class_shards.py"))


if __name__ == "__main__":
    main()
