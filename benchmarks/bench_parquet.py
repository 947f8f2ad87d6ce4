"""What training from many Parquet files costs: bytes, rows per second, memory, latency, labels.

processes   one and two processes train on the same files: the bytes that each reads in an epoch
latency     every read takes 50 ms, as from an object store: with and without reading ahead, the
            seconds of an epoch and those in which a step waits for its row groups
memory      peak memory of a training whose rows are four times as many, in the same window
labels      CPU seconds and bytes per million rows that every process spends on the labels

Every training is a process of its own. Run with ``python benchmarks/bench_parquet.py``; the figures
go to results/parquet.json; ``--only labels`` measures one part again. On a busy machine rows per
second mean little, bytes and memory do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent / "tests"))

import counted_files  # noqa: E402
from hierlearn.datasets import stream_table  # noqa: E402
from hierlearn.hierarchy.labels import labels_of_rows  # noqa: E402
from hierlearn.training.settings import Plan  # noqa: E402
from machine import RESULTS, versions, write  # noqa: E402

FEATURES, FILES, GROUP, WINDOW, BATCH = 50, 8, 5000, 25_000, 512
ROWS = 200_000
LATENCY = 0.05


def write_files(folder: Path, rows: int, features: int = FEATURES, classes: int = 1000) -> Path:
    """Write rows into several files of uneven size."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    names = np.array([f"t{n // 100}/u{n // 10}/v{n}" for n in range(classes)])
    ends = np.linspace(0, 1, FILES + 1) ** 1.2 * rows
    for number in range(FILES):
        count = int(ends[number + 1]) - int(ends[number])
        values = draw.standard_normal((count, features)).astype(np.float32)
        columns = {f"x{k}": values[:, k] for k in range(features)}
        columns["y"] = names[draw.integers(0, classes, count)]
        path = folder / f"part-{number}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=GROUP, compression="none")
    return folder


def train(folder: Path, seconds: float, ahead: bool, epochs: int) -> None:
    """Train on the files of a folder; print the figures of this process as JSON."""
    from hierlearn.pipeline import train as run
    from hierlearn.pipeline.run import Reporting
    from hierlearn.training.solvers.gradient import Trainer
    from hierlearn.training.stream import GroupCache

    if not ahead:
        GroupCache.expect = lambda *_: None  # type: ignore[assignment, method-assign]
    waited = [0.0]
    get = GroupCache.get

    def timed_get(self: GroupCache, group: int, most: int) -> Any:
        start = time.perf_counter()
        found = get(self, group, most)
        waited[0] += time.perf_counter() - start
        return found

    GroupCache.get = timed_get  # type: ignore[method-assign]
    counted_files.register()
    figures: list[dict[str, Any]] = []
    whole = Trainer.train_epoch

    def train_epoch(self: Trainer) -> None:
        counted_files.begin(seconds)
        waited[0] = 0.0
        start = time.perf_counter()
        whole(self)
        took = time.perf_counter() - start
        figures.append(
            {
                "rank": self.processes.rank,
                "seconds": took,
                "bytes": counted_files.count(),
                "reads": len(counted_files.READS),
                "waited": waited[0],
            }
        )

    Trainer.train_epoch = train_epoch  # type: ignore[method-assign]
    dataset = stream_table(counted_files.address(folder), label="y", window=WINDOW)
    plan = Plan(
        loss="leaf-ce",
        network="mlp",
        network_options={"width": 64},
        settings={"epochs": epochs, "batch_size": BATCH, "device": "cpu"},
    )
    run(dataset, plan, reporting=Reporting(bar=False))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("FIGURES " + json.dumps({"epochs": figures, "peak": peak}), flush=True)


def label_cost(rows: int) -> None:
    """Print the CPU seconds and bytes of the labels of a file as JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = write_files(Path(name) / "rows", rows, features=1, classes=100_000)
        held = resident()
        start = time.process_time()
        dataset = stream_table(folder, label="y")
        labels = labels_of_rows(dataset.labels, dataset.hierarchy)
        counts = labels.terminal_counts
        took = time.process_time() - start
        del counts
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found = {"cpu_seconds": took, "bytes": resident() - held, "peak": peak}
        print("FIGURES " + json.dumps(found), flush=True)


def resident() -> int:
    """Return the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def processes(count: int, *words: object) -> list[dict[str, Any]]:
    """Run this script in some processes and return the figures of each."""
    command = [sys.executable, str(HERE), *map(str, words)]
    if count > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command = [*launcher, "--nproc-per-node", str(count), *command[1:]]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    lines = [line for line in done.stdout.splitlines() if "FIGURES " in line]
    return [json.loads(line.partition("FIGURES ")[2]) for line in lines]


def bench_processes(folder: Path) -> dict[str, Any]:
    """Return bytes and rows per second of one and two processes."""
    found: dict[str, Any] = {}
    for count in (1, 2):
        ranks = processes(count, "train", folder, "--epochs", 3)
        epochs = [one["epochs"] for one in ranks]
        seconds = [max(each["seconds"] for each in epoch) for epoch in zip(*epochs, strict=True)]
        found[str(count)] = {
            "rows_per_second": round(ROWS / statistics.median(seconds)),
            "bytes_per_rank": [
                round(statistics.mean(each["bytes"] for each in rank)) for rank in epochs
            ],
        }
    whole = found["1"]["bytes_per_rank"][0]
    found["fraction_per_rank_of_two"] = [
        round(one / whole, 4) for one in found["2"]["bytes_per_rank"]
    ]
    return found


def bench_latency(folder: Path, turns: int) -> dict[str, Any]:
    """Return seconds per epoch where every read takes 50 ms, in turns."""
    words = {"no delay": (), "ahead": ("--latency", LATENCY)}
    words["not ahead"] = ("--latency", LATENCY, "--no-ahead")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in words}
    for _ in range(turns):
        for name, given in words.items():
            (one,) = processes(1, "train", folder, "--epochs", 1, *given)
            found[name].append(one["epochs"][0])
    medians = {
        name: {
            what: round(statistics.median(one[what] for one in some), 2)
            for what in ("seconds", "waited", "reads")
        }
        for name, some in found.items()
    }
    return {"seconds_per_read": LATENCY, "turns": turns, "epoch": medians}


def bench_memory(root: Path) -> dict[str, Any]:
    """Return the peak memory of trainings on more and more rows."""
    found = {}
    for rows in (ROWS // 4, ROWS, 4 * ROWS):
        folder = root / f"rows-{rows}"
        if not folder.exists():
            write_files(folder, rows)
        (one,) = processes(1, "train", folder, "--epochs", 1)
        size = sum(path.stat().st_size for path in folder.iterdir())
        found[str(rows)] = {"peak_bytes": one["peak"], "file_bytes": size}
    return found


def bench_labels() -> dict[str, Any]:
    """Return what a million more rows cost in labels."""
    small, large = (processes(1, "labels", rows)[0] for rows in (1_000_000, 3_000_000))
    per = {name: (large[name] - small[name]) / 2 for name in small}
    return {
        "per_million_rows": {name: round(value, 3) for name, value in per.items()},
        "classes": 100_000,
    }


def main() -> None:
    """Run what the command line says: everything, or one process of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", choices=["train", "labels"])
    parser.add_argument("given", nargs="?")
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--no-ahead", action="store_true")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=["processes", "latency", "memory", "labels"])
    words = parser.parse_args()
    if words.what == "train":
        train(Path(words.given), words.latency, not words.no_ahead, words.epochs)
        return
    if words.what == "labels":
        label_cost(int(words.given))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = write_files(Path(name) / f"rows-{ROWS}", ROWS)
        figures: dict[str, Any] = {
            "table": {
                "rows": ROWS,
                "features": FEATURES,
                "files": FILES,
                "row_group": GROUP,
                "window": WINDOW,
                "batch": BATCH,
            },
            "versions": versions("pyarrow", "fsspec"),
        }
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "processes": lambda: bench_processes(folder),
            "latency": lambda: bench_latency(folder, words.turns),
            "memory": lambda: bench_memory(Path(name)),
            "labels": bench_labels,
        }
        stored = RESULTS / "parquet.json"
        before = json.loads(stored.read_text())["figures"] if words.only else {}
        for part, run in parts.items():
            figures[part] = run() if words.only in (None, part) else before[part]
    print(json.dumps(figures, indent=2))
    print(write("parquet", figures, "python benchmarks/bench_parquet.py"))


if __name__ == "__main__":
    main()
