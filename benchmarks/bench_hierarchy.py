"""Speed and memory of hierarchies: build, encode, common ancestors, reading, importing.

Run with ``python benchmarks/bench_hierarchy.py``; the figures go to results/hierarchy.json.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from hierlearn import Hierarchy
from machine import seconds, write

DATA = Path(os.environ.get("HIERLEARN_DATA", Path(__file__).parents[2] / "shared/data/hmc"))


def parent_array(count: int, fan_out: int = 8) -> np.ndarray[Any, Any]:
    parents = (np.arange(count) - 1) // fan_out
    parents[0] = -1
    return parents


def million_nodes() -> dict[str, Any]:
    """Build in a process of its own, so that its peak memory is that of the build."""
    code = (
        "import resource, time, numpy as np\n"
        "from hierlearn import Hierarchy\n"
        "n = 1_000_000; p = (np.arange(n) - 1) // 8; p[0] = -1\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "t = time.perf_counter(); h = Hierarchy.from_parents(p); h.names, h.heights, h.leaves\n"
        "t = time.perf_counter() - t\n"
        "print(t, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6)"
    )
    runs = [
        [float(x) for x in subprocess.check_output([sys.executable, "-c", code]).split()]
        for _ in range(3)
    ]
    return {
        "seconds": statistics.median(run[0] for run in runs),
        "extra_gb": statistics.median(run[1] for run in runs),
    }


def encode() -> dict[str, Any]:
    hierarchy = Hierarchy.from_parents(parent_array(10_000))
    rng = np.random.default_rng(0)
    rows = [
        [hierarchy.names[c] for c in rng.integers(0, 10_000, rng.integers(1, 4))]
        for _ in range(100_000)
    ]
    return {
        "dense": seconds(lambda: hierarchy.encode(rows)),
        "csr": seconds(lambda: hierarchy.encode(rows, sparse=True)),
    }


def lca() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found = {}
    hierarchies = {
        "tree of 10,000": Hierarchy.from_parents(parent_array(10_000)),
        "tree of 1,000,000": Hierarchy.from_parents(parent_array(1_000_000)),
    }
    if (go := DATA / "cellcycle_GO.train.arff").exists():
        hierarchies["DAG of 4,125 (cellcycle_GO)"] = Hierarchy.read(go)
    for name, hierarchy in hierarchies.items():
        a, b = rng.integers(0, len(hierarchy), (2, 2_000_000))
        time_ = seconds(lambda h=hierarchy, a=a, b=b: h.lca_heights(a, b))  # type: ignore[misc]
        found[name] = {"million_pairs_per_second": 2.0 / time_["median"]}
    return found


def arff() -> dict[str, Any] | None:
    from hierlearn.datasets import read_arff

    path = DATA / "ImCLEF07D_Train.arff"
    return seconds(lambda: read_arff(path)) if path.exists() else None


def imports() -> dict[str, float]:
    """Import torch; then more than torch, each in its turn; the help needs no torch."""
    names = "HCLLoss, Hierarchy, Labels, Dataset, load_dataset"
    use = "Hierarchy.from_paths(['a/b']).max_up(torch.zeros(2))"
    begin = "import torch; torch.zeros(2)"
    statements = {
        "python": "pass",
        "torch": begin,
        "hierlearn": f"{begin}; from hierlearn import {names}; {use}",
        "pipeline": f"{begin}; from hierlearn import Pipeline",
        "help": "import sys, hierlearn.cli as c; sys.argv[1:] = ['--help']; c.main()",
    }
    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(7):
        for name, statement in statements.items():
            start = time.perf_counter()
            command = [sys.executable, "-c", statement]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(runs) for name, runs in times.items()}
    return {
        "torch": medians["torch"],
        "hierlearn_over_torch": medians["hierlearn"] - medians["torch"],
        "pipeline_over_torch": medians["pipeline"] - medians["torch"],
        "help_over_python": medians["help"] - medians["python"],
    }


def main() -> None:
    figures = {
        "build_1,000,000_nodes": million_nodes(),
        "encode_100,000_rows_10,000_classes_seconds": encode(),
        "lca_heights": lca(),
        "read_imclef07d_train_seconds": arff(),
        "import_seconds": imports(),
        "peak_gb_of_this_process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
    path = write("hierarchy", figures, "python benchmarks/bench_hierarchy.py")
    print(path.read_text())


if __name__ == "__main__":
    main()
