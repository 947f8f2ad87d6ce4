"""The memory in shards: what remember costs as the memory grows, and search over shards and ranks.

``remember``: 100 rows are added to model folders of 1,000 to 1,000,000 remembered rows of 128
numbers, by ``MemoryFolder`` (open, remember, close; most of that is 16 calls of fsync) and, beside
it, by reading the whole model, remembering and writing it again. ``bytes`` are those of the files
that a call writes.
``shards``: exact search of one memory as 1 to 64 shards in one process, milliseconds per query.
``ranks``: one model folder loaded and searched by 1 and by 2 processes of torchrun (gloo), every
process with one thread: milliseconds per query, the embeddings and the resident memory of each
process (after loading, beyond what it had before; and at its peak), and the bytes that a process
receives per query.

Run with ``python benchmarks/bench_memory_shards.py [--rows 1000 100000 1000000]``; the figures go
to results/memory_shards.json. It needs 1 GB of disk space for temporary files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets import load_dataset
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, Part, Remembered, nearest_in_shards
from hierlearn.networks.memories import memory_heads, set_memory
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.remember import MemoryFolder, remember
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import save_into
from hierlearn.training import Plan
from hierlearn.training.processes import processes
from machine import write

if TYPE_CHECKING:
    from hierlearn.datasets.dataset import Dataset

WIDTH = 128
ADDED = 100
SHARDS = (1, 2, 4, 8, 16, 32, 64)
NEIGHBORS = 64


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
        head_options={"size": WIDTH, "neighbors": NEIGHBORS},
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


def shard_times(rows: int, queries: int, repeat: int) -> dict[str, Any]:
    """Time the search of one memory in shards, in turns, with one thread."""
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(1)
    memory = torch.randn(rows, WIDTH, generator=draw).half()
    asked = torch.randn(queries, WIDTH, generator=draw)
    times: dict[int, list[float]] = {count: [] for count in SHARDS}
    expected = None
    for _ in range(repeat):
        for count in SHARDS:
            bounds = [number * rows // count for number in range(count + 1)]
            parts = [memory[a:b] for a, b in pairwise(bounds)]
            begun = time.perf_counter()
            found = nearest_in_shards(asked, parts, NEIGHBORS)
            times[count].append(time.perf_counter() - begun)
            expected = expected or found
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    medians = {count: statistics.median(some) for count, some in times.items()}
    return {
        "rows": rows,
        "queries": queries,
        "neighbors": NEIGHBORS,
        "threads": torch.get_num_threads(),
        "ms_per_query": {str(n): round(1000 * one / queries, 4) for n, one in medians.items()},
        "times_of_one_shard": {str(n): round(one / medians[1], 3) for n, one in medians.items()},
    }


# ---------------------------------------------------------------------- ranks


def resident(name: str = "VmRSS") -> int:
    """Return the bytes of this process that are in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def rank_main(folder: Path, queries: int, repeat: int) -> None:
    """Load a part of a model and search it; print the figures of this process."""
    torch.set_num_threads(1)
    with processes("cpu") as here:
        before = resident()
        model = Pipeline.load(folder, part=Part(here.rank, here.world))
        after = resident()
        (head,) = memory_heads(model.network)["main"]
        draw = torch.Generator().manual_seed(1)
        asked = torch.randn(queries, WIDTH, generator=draw)
        times = []
        for _ in range(repeat):
            here.wait()
            begun = time.perf_counter()
            _, index = head.memory.search(asked, NEIGHBORS, head.distance)
            times.append(time.perf_counter() - begun)
        held = head.memory.embeddings
        assert held is not None
        said = {
            "rank": here.rank,
            "rows_in_all": len(head.memory),
            "embedding_bytes": held.numel() * held.element_size(),
            "resident_bytes_of_loading": after - before,
            "peak_resident_bytes": resident("VmHWM"),
            "ms_per_query": round(1000 * statistics.median(times) / queries, 4),
            "received_bytes_per_query": 0 if here.world == 1 else here.world * NEIGHBORS * 12,
            "checksum": int(index.sum()),
        }
        print(json.dumps(said), flush=True)


def ranks(folder: Path, queries: int, repeat: int) -> dict[str, Any]:
    """Return the figures of 1 and of 2 processes."""
    found = {}
    for world in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(world), __file__, "--rank-folder", str(folder)]
        command += ["--queries", str(queries), "--repeat", str(repeat)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found[str(world)] = sorted(map(json.loads, lines), key=lambda one: one["rank"])
    sums = {one["checksum"] for some in found.values() for one in some}
    assert len(sums) == 1, "the ranks disagree"
    return found


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--rank-folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_folder is not None:
        rank_main(given.rank_folder, given.queries, given.repeat)
        return
    figures: dict[str, Any] = {"width": WIDTH, "added_rows": ADDED, "remember": {}}
    with tempfile.TemporaryDirectory() as place:
        for rows in given.rows:
            folder = Path(place) / str(rows)
            make_folder(folder, rows)
            if rows == max(given.rows):
                figures["ranks"] = ranks(folder, given.queries, given.repeat)
            figures["remember"][str(rows)] = remember_cost(folder, given.repeat)
            print(rows, json.dumps(figures["remember"][str(rows)]), flush=True)
            shutil.rmtree(folder)
    print(json.dumps(figures["ranks"]), flush=True)
    most = min(max(given.rows), 200_000)
    figures["shards"] = shard_times(most, given.queries, given.repeat)
    print(json.dumps(figures["shards"]), flush=True)
    words = " ".join(map(str, given.rows))
    write("memory_shards", figures, f"python benchmarks/bench_memory_shards.py --rows {words}")


if __name__ == "__main__":
    main()
