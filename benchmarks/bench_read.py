"""Speed of reading CSV files of about 33 MB, beside pandas.

Each table is read by ``read_table`` and by ``pandas.read_csv`` in turns, and the ratio of each turn
is taken, so that what else runs on the machine slows both. ``read_table`` also makes Python strings
of texts, finds the kinds of columns, parses dates and labels and builds the taxonomy; pandas leaves
strings in Arrow's memory. The ratio to pandas with ``dtype=object`` compares reading into strings.

Run with ``python benchmarks/bench_read.py``; the figures go to results/read.json.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from hierlearn.datasets import read_table
from hierlearn.datasets.tables import delimited
from machine import versions, write

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = 9
BYTES = 33_000_000


def fill(path: Path, header: str, rows: Callable[[int], str]) -> Path:
    """Write rows until the file is large enough."""
    with path.open("w") as file:
        size = file.write(header + "\n")
        number = 0
        while size < BYTES:
            size += file.write(rows(number) + "\n")
            number += 1
    return path


def tables(folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Write the files; return each with the options of ``read_table``."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2000, 60))
    words = [f"word{number}" for number in range(5000)]
    texts = [" ".join(words[place] for place in rng.integers(0, 5000, 12)) for _ in range(5000)]

    def label(number: int) -> str:
        return f"a{number % 7}/b{number % 31}"

    def numbers(number: int) -> str:
        row = values[number % 2000] + number
        return ",".join(f"{value:.5f}" for value in row) + f",{label(number)}"

    def text(number: int) -> str:
        return f'"{texts[number % 5000]}, {number}",{label(number)}'

    def mixed(number: int) -> str:
        day = f"2024-0{number % 9 + 1}-1{number % 10}"
        return (
            f'S{number},"{texts[number % 5000]}, {number}",{number / 7:.3f},brand{number % 50},'
            f"{day},{'yes' if number % 2 else 'no'},{label(number)}"
        )

    names = ",".join(f"x{number}" for number in range(60))
    return {
        "60 numbers": (fill(folder / "numbers.csv", f"{names},class", numbers), {}),
        "one text": (fill(folder / "text.csv", "text,class", text), {"text": "text"}),
        "mixed": (
            fill(folder / "mixed.csv", "sku,text,price,brand,day,used,class", mixed),
            {"ignore": ["sku"]},
        ),
    }


def timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Read a file with each reader in turns."""
    ours, theirs, objects, plain = [], [], [], []
    has_arrow = delimited.has_arrow
    for _ in range(TURNS + 1):  # the first turn warms up
        theirs.append(timed(lambda: pd.read_csv(path)))
        objects.append(timed(lambda: pd.read_csv(path, dtype=object)))
        ours.append(timed(lambda: read_table(path, label="class", **options)))
    try:
        delimited.has_arrow = lambda: False
        plain.extend(timed(lambda: read_table(path, label="class", **options)) for _ in range(3))
    finally:
        delimited.has_arrow = has_arrow

    def ratio(others: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(ours[1:], others[1:], strict=True))

    return {
        "megabytes": path.stat().st_size / 1e6,
        "read_table_seconds": statistics.median(ours[1:]),
        "fastest_read_table_seconds": min(ours[1:]),
        "pandas_seconds": statistics.median(theirs[1:]),
        "fastest_pandas_seconds": min(theirs[1:]),
        "pandas_objects_seconds": statistics.median(objects[1:]),
        "median_ratio": ratio(theirs),
        "median_ratio_to_objects": ratio(objects),
        "without_pyarrow_seconds": statistics.median(plain),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        figures: dict[str, Any] = {
            name: measure(path, options) for name, (path, options) in tables(Path(folder)).items()
        }
    figures["versions"] = versions("pandas", "pyarrow")
    path = write("read", figures, "python benchmarks/bench_read.py")
    print(path.read_text())


if __name__ == "__main__":
    main()
