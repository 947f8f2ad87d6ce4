"""What remember costs as the memory of a model folder grows.

100 rows are added to model folders of 1,000 to 1,000,000 remembered rows of 128 numbers, by
``MemoryFolder`` (open, remember, close; most of that is 16 calls of fsync) and, beside it, by
reading the whole model, remembering and writing it again. ``bytes`` are those of the files that a
call writes.

Run with ``python benchmarks/bench_memory_shards.py [--rows 1000 100000 1000000]``; the figures go
to results/memory_shards.json. It needs 1 GB of disk space for temporary files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets import load_dataset
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, Remembered
from hierlearn.networks.memories import set_memory
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.remember import MemoryFolder, remember
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import save_into
from hierlearn.training import Plan
from machine import write

if TYPE_CHECKING:
    from hierlearn.datasets.dataset import Dataset

WIDTH = 128
ADDED = 100


def dataset() -> Dataset:
    """Return a thousand rows with 84 classes."""
    return load_dataset("synthetic", rows=1000, depth=3)


def make_folder(folder: Path, rows: int) -> None:
    """Save a model that remembers random rows."""
    data = dataset()
    plan = Plan(
        loss="bce",
        network="mlp",
        network_options={"width": 64},
        head="neighbors",
        head_options={"size": WIDTH, "neighbors": 64},
        settings={"epochs": 1, "device": "cpu"},
    )
    model = train(data, plan, reporting=Reporting(bar=False))
    draw = torch.Generator().manual_seed(0)
    embeddings = torch.randn(rows, WIDTH, generator=draw).half()
    labels = LabelSets.from_labels(Labels(data.labels, data.hierarchy))
    chosen = labels.take(np.arange(rows) % len(data.labels))
    known = Remembered(chosen, [str(number) for number in range(rows)])
    set_memory(model.network, {"main": embeddings}, known)
    model.save(folder)


def written(folder: Path, since: dict[str, tuple[int, int]]) -> int:
    """Return the bytes of the files that are new."""
    return sum(
        path.stat().st_size
        for path in folder.iterdir()
        if path.is_file() and since.get(path.name) != (path.stat().st_ino, path.stat().st_mtime_ns)
    )


def stats(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what tells whether a file was written."""
    return {one.name: (one.stat().st_ino, one.stat().st_mtime_ns) for one in folder.iterdir()}


def remember_cost(folder: Path, repeat: int) -> dict[str, Any]:
    """Time what adds rows to a folder."""
    data = dataset()
    inputs, labels = data.inputs[:ADDED], data.labels[:ADDED]
    times, cpu, sizes = [], [], []
    for _ in range(repeat + 1):  # the first one is warm-up
        before = stats(folder)
        begun, worked = time.perf_counter(), time.process_time()
        with MemoryFolder.open(folder) as memory:
            memory.remember(inputs, labels)
        times.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - worked)
        sizes.append(written(folder, before))
    before, begun = stats(folder), time.perf_counter()
    model = Pipeline.load(folder)
    remember(model, inputs, labels)
    save_into(model, folder)
    whole = time.perf_counter() - begun
    return {
        "append_seconds": round(statistics.median(times[1:]), 4),
        "append_cpu_seconds": round(statistics.median(cpu[1:]), 4),
        "append_seconds_least": round(min(times[1:]), 4),
        "append_bytes": int(statistics.median(sizes[1:])),
        "whole_seconds": round(whole, 3),
        "whole_bytes": written(folder, before),
    }


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    figures: dict[str, Any] = {"width": WIDTH, "added_rows": ADDED, "remember": {}}
    with tempfile.TemporaryDirectory() as place:
        for rows in given.rows:
            folder = Path(place) / str(rows)
            make_folder(folder, rows)
            figures["remember"][str(rows)] = remember_cost(folder, given.repeat)
            print(rows, json.dumps(figures["remember"][str(rows)]), flush=True)
            shutil.rmtree(folder)
    words = " ".join(map(str, given.rows))
    write("memory_shards", figures, f"python benchmarks/bench_memory_shards.py --rows {words}")


if __name__ == "__main__":
    main()
