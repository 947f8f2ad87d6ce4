"""Speed and memory of ``hierlearn predict`` on a CSV file, and where the time goes.

The table has 10 numbers per row and a taxonomy of 105 classes in 3 levels. Two models are trained
on 5,000 labeled rows: what ``hierlearn train`` chooses by itself (a memory of the training rows,
searched exactly) and a plain network (``--recipe hcl``, one hidden layer of 800 units). Seconds are
those of the whole command, start included; the peak is that of its resident memory. The stages are
run one after another in one thread and are given in CPU time, so their sum is what one core needs.

Run with ``python benchmarks/bench_predict.py``; the figures go to results/predict.json. ``--rows``
sets the rows of the large file and ``--large`` which models get it; ``--against`` is the ``src``
folder of another version: both are then run in turns, and their answers must be the same, byte for
byte.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.tables.stream import TableStream
from hierlearn.datasets.tables.write import table_writer
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.answers import AnswerFormatter
from machine import versions, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FEATURES, LEAVES, LABELED = 10, 80, 5000
ROWS, SMALL = 2_000_000, 200_000
MODELS = {"default": (), "mlp": ("--recipe", "hcl", "--epochs", "10")}
BLOCK = 100_000


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows around the center of their leaf, and the leaves."""
    centers = np.random.default_rng(7).normal(size=(LEAVES, FEATURES))
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, LEAVES, count)
    return centers[leaves] + 0.7 * rng.normal(size=(count, FEATURES)), leaves


def path_of(leaf: int) -> str:
    """Return the path of a leaf: 5 top classes, 4 below each, 4 below each of those."""
    top, middle = leaf // 16, leaf // 4 % 4
    return f"c{top}/c{top}.{middle}/c{top}.{middle}.{leaf % 4}"


def fill(path: Path, rows: int, seed: int, *, labeled: bool = False) -> Path:
    """Write a table of so many rows."""
    names = [f"x{number}" for number in range(FEATURES)]
    line = ",".join(["%.5f"] * FEATURES)
    with path.open("w") as file:
        file.write(",".join([*names, *(["label"] * labeled)]) + "\n")
        for begin in range(0, rows, BLOCK):
            values, leaves = draw(min(BLOCK, rows - begin), seed + begin)
            for row, leaf in zip(values.tolist(), leaves.tolist(), strict=True):
                file.write(line % tuple(row) + (f",{path_of(leaf)}" if labeled else "") + "\n")
    return path


def command(words: Iterable[Any], source: str | None = None, **more: str) -> dict[str, float]:
    """Run hierlearn in a process of its own; return its seconds and its peak memory.

    Args:
        words: of the command line.
        source: the ``src`` folder of another version.
        more: variables of its environment.
    """
    own = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": str(Path(source or own).resolve()), **more}
    start = time.perf_counter()
    job = subprocess.Popen(
        [sys.executable, "-m", "hierlearn", *map(str, words)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(job.pid, 0)
    job.returncode = os.waitstatus_to_exitcode(status)
    if job.returncode:
        raise SystemExit(f"hierlearn {' '.join(map(str, words))} failed")
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024,
    }


def whole_commands(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the command with each model, on few and on many rows."""
    rows, against = options.rows, options.against
    files = {
        "start": fill(folder / "one.csv", 1, 1000),
        "small": fill(folder / "small.csv", min(rows, SMALL), 1000),
        "large": fill(folder / "large.csv", rows, 1000),
    }
    sizes = {"start": 1, "small": min(rows, SMALL), "large": rows}
    found: dict[str, Any] = {}
    for model in MODELS:
        found[model] = {}
        for size, path in files.items():
            if size == "large" and model not in options.large.split(","):
                continue
            runs: dict[str, list[dict[str, float]]] = {"new": [], "old": []}
            for _ in range(options.turns):
                for version, source in (("old", against), ("new", None)):
                    if version == "old" and against is None:
                        continue
                    out = folder / f"{version}.csv"
                    words = ("predict", folder / model, path, "--out", out, "--force")
                    runs[version].append(command(words, source))
                if against is not None:
                    same = (folder / "new.csv").read_bytes() == (folder / "old.csv").read_bytes()
                    if not same:
                        raise SystemExit(f"{model}: the answers on {size} rows differ")
            figures: dict[str, Any] = {"rows": sizes[size], **best(runs["new"])}
            figures["rows_per_second"] = sizes[size] / figures["seconds"]
            if against is not None:
                figures["before"] = best(runs["old"])
                figures["times_as_fast"] = figures["before"]["seconds"] / figures["seconds"]
            found[model][size] = figures
            print(model, size, figures, flush=True)
    return found


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the fastest run: what else the machine does only adds to it."""
    return min(runs, key=lambda run: run["seconds"])


def stages(folder: Path, path: Path, rows: int) -> dict[str, Any]:
    """Return the microseconds per row of each stage on one core."""
    found: dict[str, dict[str, float]] = {}
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for model in MODELS:
            found[model] = stages_of(Pipeline.load(folder / model), path, rows, folder / "s.csv")
    finally:
        torch.set_num_threads(before)
    return found


@torch.no_grad()
def stages_of(pipeline: Pipeline, path: Path, rows: int, out: Path) -> dict[str, float]:
    spent: dict[str, float] = {}

    def timed(stage: str, run: Callable[[], Any]) -> Any:
        start = time.process_time()
        found = run()
        spent[stage] = spent.get(stage, 0.0) + (time.process_time() - start) / rows * 1e6
        return found

    pipeline.network.eval()
    formatter = AnswerFormatter(pipeline)
    decoder = formatter.decoder
    chunks = iter(TableStream(path, features=pipeline.config["feature_names"]))
    with table_writer(out, formatter.names) as append:
        while (chunk := timed("reading", lambda: next(chunks, None))) is not None:
            for begin in range(0, len(chunk.lines), pipeline.batch_size()):
                inputs = chunk.inputs[begin : begin + pipeline.batch_size()]
                x = timed("preprocessing", lambda inputs=inputs: pipeline.rows(inputs))
                output = timed("network", lambda x=x: pipeline.network(x))
                p = timed(
                    "link",
                    lambda output=output: pipeline.scaled(pipeline.read(output)).probabilities,
                )
                classes = timed("decoder", lambda p=p: decoder(p))
                columns = timed(
                    "columns", lambda p=p, classes=classes: formatter.class_columns(p, classes)
                )
                shown = {name: columns[name] for name in formatter.names}
                timed("writing", lambda shown=shown: append(shown))
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--large", default=",".join(MODELS), help="models that get the large file")
    parser.add_argument("--against", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        labeled = fill(folder / "labeled.csv", LABELED, 1, labeled=True)
        for model, words in MODELS.items():
            train = ("train", labeled, "--label", "label", "--out", folder / model, *words)
            command(train, OMP_NUM_THREADS="1")
        figures = whole_commands(folder, options)
        small = min(options.rows, SMALL)
        parts = stages(folder, folder / "small.csv", small)
    for model, spent in parts.items():
        figures[model]["microseconds_per_row_on_one_core"] = spent
    figures["versions"] = versions("pyarrow")
    words = " ".join(["python benchmarks/bench_predict.py", *sys.argv[1:]])
    print(write("predict", figures, words).read_text())


if __name__ == "__main__":
    main()
