"""What an engine costs: its start, each job, data, and the speedup of a small study on two workers.

    python benchmarks/bench_engines.py [--repeat 3] [--epochs 20]

writes results/engines.json. Engines are measured one after the other in each round, and medians
over rounds are reported, beside jobs in one process (serial). The study is four losses on 1,000
drawn rows; its speedup is against one process with as many threads as a worker has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets import load_dataset
from hierlearn.lab.compare import run_study
from hierlearn.lab.protocol import Protocol
from hierlearn.service.engine import ENGINES, Job, count_cores, open_executor
from machine import versions, write

if TYPE_CHECKING:
    from hierlearn.service.engine import Engine

WORKERS = 2
EMPTY = 200  # jobs that do nothing
MEGABYTES = 64  # of data that jobs share
LOSSES = ("bce", "hxe", "mcloss", "leaf-ce")


def nothing(data: Any, number: int, *, on_step: Any = None) -> int:
    """A job that does nothing."""
    del data, on_step
    return number


def run(engine: Engine, data: Any, count: int) -> float:
    """Return the seconds of some jobs that do nothing."""
    begun = time.perf_counter()
    found = [end.result() for end in engine.run(Job(nothing, data, (n,)) for n in range(count))]
    assert sorted(found) == list(range(count))
    return time.perf_counter() - begun


def study(executor: Any, epochs: int) -> float:
    """Return the seconds of a small study."""
    dataset = load_dataset("synthetic", rows=1000)
    settings = {"epochs": epochs, "patience": None, "device": "cpu"}
    protocol = Protocol(seeds=3, settings=settings)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run_study(dataset, LOSSES, Path(folder) / "study", protocol, executor=executor)
        return time.perf_counter() - begun


def measure(name: str, epochs: int) -> dict[str, float]:
    """Return the figures of an engine in one round."""
    found = {}
    begun = time.perf_counter()
    with open_executor(name, workers=WORKERS) as opened:
        engine: Any = opened
        found["open_seconds"] = time.perf_counter() - begun
        run(engine, None, WORKERS)
        found["first_results_seconds"] = time.perf_counter() - begun
        run(engine, None, 4 * WORKERS)  # every worker has begun
        found["milliseconds_per_job"] = 1000 * run(engine, None, EMPTY) / EMPTY
        data = np.random.default_rng(0).random(MEGABYTES * 131_072)  # 8 bytes each
        before = run(engine, None, WORKERS)
        found["data_seconds"] = run(engine, data, WORKERS) - before
        found["data_again_seconds"] = run(engine, data, 10 * WORKERS) - before
        study(engine, epochs=1)  # workers import torch in their first job
        found["study_seconds"] = study(engine, epochs)
        begun = time.perf_counter()
    found["close_seconds"] = time.perf_counter() - begun
    return found


def main() -> None:
    """Measure all engines in rounds, and write the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(max(1, count_cores() // WORKERS))
    rounds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    study(1, epochs=1)
    for _ in range(asked.repeat):
        serial = study(1, asked.epochs)
        rounds["serial"]["study_seconds"].append(serial)
        for name in ENGINES:
            figures = measure(name, asked.epochs)
            figures["study_speedup"] = serial / figures["study_seconds"]
            print(name, {key: round(value, 3) for key, value in figures.items()}, flush=True)
            for key, value in figures.items():
                rounds[name][key].append(value)
    medians = {
        name: {key: round(statistics.median(values), 4) for key, values in figures.items()}
        for name, figures in rounds.items()
    }
    figures = {
        "workers": WORKERS,
        "rounds": asked.repeat,
        "study_epochs": asked.epochs,
        "load": os.getloadavg()[0],
        "data_megabytes": MEGABYTES,
        "engines": medians,
        "packages": versions("distributed", "ray"),
    }
    write("engines", figures, "python benchmarks/bench_engines.py")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
