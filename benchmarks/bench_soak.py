"""Many small trainings in one process: file descriptors, threads, memory and temporary files.

python benchmarks/bench_soak.py --trainings 1000
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

from hierlearn.datasets import load_dataset
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training import Plan
from machine import write

QUIET = Reporting(bar=False)
PLANS = [
    Plan(loss="hcl", network="mlp", network_options={"width": 8}, settings={"epochs": 2}),
    Plan(recipe="neighbors", settings={"epochs": 1}),
    Plan(loss="bce", network="linear", settings={"epochs": 2, "ensemble_size": 2}),
]


def held() -> dict[str, int]:
    """Return what this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "resident_mb": pages * resource.getpagesize() >> 20,
        "temporary_files": sum(one.is_file() for one in Path(tempfile.gettempdir()).rglob("*")),
    }


def soak(trainings: int, folder: Path, every: int) -> list[dict[str, float]]:
    """Train, save, load and predict; return what is held after every few of them."""
    data = load_dataset("synthetic", rows=60, depth=2)
    found: list[dict[str, float]] = []
    begun = time.monotonic()
    for number in range(trainings):
        train(data, PLANS[number % len(PLANS)], folder / "m", force=True, reporting=QUIET)
        Pipeline.load(folder / "m").predict(data.inputs[:5])
        if (number + 1) % every == 0:
            seconds = round(time.monotonic() - begun, 1)
            found.append({"trainings": number + 1, "seconds": seconds, **held()})
            print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainings", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = str(Path(folder) / "tmp")
        Path(tempfile.tempdir).mkdir()
        found = soak(options.trainings, Path(folder), max(1, options.trainings // 20))
        tempfile.tempdir = None
    write("soak", found, f"python benchmarks/bench_soak.py {' '.join(sys.argv[1:])}")


if __name__ == "__main__":
    main()
