"""``hierlearn predict`` in one process and on Ray: the same bytes, seconds and memory of both.

Two million rows with ids are predicted by the plain network of bench_predict.py, by one process and
on a Ray cluster that the command starts on this machine, with one worker per core. The answers of
Ray are a folder of CSV parts. Both are sorted by id, and the SHA-256 of the sorted lines must be
the same. The memory is that of the command with all processes that it starts, each page counted
once (the proportional set size, sampled). "start" is the same command on one row.

Run with ``python benchmarks/bench_predict_ray.py``; the figures go to results/predict_ray.json.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_predict import BLOCK, FEATURES, LABELED, MODELS, command, draw, fill
from machine import versions, write

if TYPE_CHECKING:
    from collections.abc import Iterable

ROWS = 2_000_000
SAMPLE = 0.5  # seconds between two looks at the memory


def fill_with_ids(path: Path, rows: int) -> Path:
    """Write a table of so many rows, each with an id."""
    line = ",".join(["r%08d", *["%.5f"] * FEATURES])
    with path.open("w") as file:
        file.write(",".join(["id", *(f"x{number}" for number in range(FEATURES))]) + "\n")
        for begin in range(0, rows, BLOCK):
            values, _ = draw(min(BLOCK, rows - begin), 1000 + begin)
            for number, row in enumerate(values.tolist(), begin):
                file.write(line % (number, *row) + "\n")
    return path


def family(root: int) -> list[int]:
    """Return a process and all that it has started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = entry.read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [root]
    for one in found:
        found += children.get(one, [])
    return found


def memory_of(pid: int) -> float:
    """Return the MiB of a process, pages that are shared divided among those who share them."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def measured(words: Iterable[Any]) -> dict[str, float]:
    """Run hierlearn; return its seconds and the peak of the memory of all of its processes."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    begin = time.perf_counter()
    job = subprocess.Popen(
        [sys.executable, "-m", "hierlearn", *map(str, words)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    peak = 0.0
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(SAMPLE):
            peak = max(peak, sum(map(memory_of, family(job.pid))))

    watcher = threading.Thread(target=look)
    watcher.start()
    code = job.wait()
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    if code:
        raise SystemExit(f"hierlearn {' '.join(map(str, words))} failed")
    return {"seconds": seconds, "peak_mib": peak}


def sorted_digest(paths: Iterable[Path]) -> tuple[str, int]:
    """Return the SHA-256 of the rows of CSV files, sorted by id, and how many there are."""
    rows: list[bytes] = []
    for path in paths:
        rows += path.read_bytes().splitlines(keepends=True)[1:]
    rows.sort()  # the id comes first, and all ids have the same length
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row)
    return digest.hexdigest(), len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        labeled = fill(folder / "labeled.csv", LABELED, 1, labeled=True)
        model = folder / "mlp"
        words = ("train", labeled, "--label", "label", "--out", model, *MODELS["mlp"])
        command(words, OMP_NUM_THREADS="1")
        files = {
            "start": fill_with_ids(folder / "one.csv", 1),
            "all": fill_with_ids(folder / "rows.csv", options.rows),
        }
        runs: dict[str, dict[str, list[dict[str, float]]]] = {"process": {}, "ray": {}}
        for _ in range(options.turns):
            for size, path in files.items():
                given = ("predict", model, path, "--id-column", "id", "--force")
                one = (*given, "--out", folder / f"{size}-one.csv")
                runs["process"].setdefault(size, []).append(measured(one))
                many = (*given, "--out", folder / size, "--engine", "ray", "--part-format", "csv")
                runs["ray"].setdefault(size, []).append(measured(many))
        parts = sorted((folder / "all").glob("part-*.csv"))
        digests = {
            "process": sorted_digest([folder / "all-one.csv"]),
            "ray": sorted_digest(parts),
        }
    if digests["process"] != digests["ray"]:
        raise SystemExit(f"the answers differ: {digests}")
    figures: dict[str, Any] = {"rows": options.rows, "parts": len(parts)}
    for engine, sizes in runs.items():
        start = statistics.median(one["seconds"] for one in sizes["start"])
        seconds = statistics.median(one["seconds"] for one in sizes["all"])
        figures[engine] = {
            "start_seconds": start,
            "seconds": seconds,
            "rows_per_second": options.rows / seconds,
            "rows_per_second_without_start": options.rows / (seconds - start),
            "peak_mib": max(one["peak_mib"] for one in sizes["all"]),
            "peak_mib_at_start": max(one["peak_mib"] for one in sizes["start"]),
            "sha256_sorted_by_id": digests[engine][0],
        }
    figures["versions"] = versions("pyarrow", "ray")
    words = " ".join(["python benchmarks/bench_predict_ray.py", *sys.argv[1:]])
    print(write("predict_ray", figures, words).read_text())


if __name__ == "__main__":
    main()
