"""Counting n-grams against scikit-learn: seconds, peak memory, one text, and compile time.

    OMP_NUM_THREADS=1 python benchmarks/bench_ngrams.py --data ../shared/data/open

Words, pairs of words and runs of 3 to 5 characters, each in 2 texts or more (words of sequences in
1, as no sequence occurs twice): ``TextPreprocessor`` and a union of two ``TfidfVectorizer`` with
the same columns, in turns in one process, after a warm-up that compiles. Each figure is the least
of the rounds. Seconds are those of the clock; CPU seconds are those of all threads, and their ratio
says more on a busy machine. Peak memory is what a fresh process of each holds at most, beyond what
it held once all was imported and the texts were there.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion

from hierlearn.features import TextPreprocessor, ngrams
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = "OMP_NUM_THREADS=1 python benchmarks/bench_ngrams.py --data ../shared/data/open"
FILES = {"clinc150": "text", "edos": "text", "rrna-16s": "sequence"}
WORDS = 50_000
MEBI = 2**20


def ours(min_df: int = 2) -> Any:
    return TextPreprocessor(ngrams=2, char_ngrams=5, min_df=min_df, char_min_df=2)


def union(min_df: int = 2) -> Any:
    same: dict[str, Any] = {"strip_accents": "unicode", "sublinear_tf": True, "dtype": np.float32}
    word = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b", "min_df": min_df}
    character = {"analyzer": "char_wb", "ngram_range": (3, 5), "min_df": 2}
    parts = {"words": word, "characters": character}
    return FeatureUnion([(name, TfidfVectorizer(**own, **same)) for name, own in parts.items()])


def drawn(count: int, words: int) -> list[str]:
    """Return texts of random words, a few of which are frequent, as in a language."""
    draw = np.random.default_rng(0)
    letters = np.array(list("eeeeettaaoinshrdlcumwfgypbvk"))
    names = ["".join(draw.choice(letters, size)) for size in draw.integers(2, 10, WORDS)]
    weight = 1 / np.arange(1, WORDS + 1)
    places = draw.choice(WORDS, (count, words), p=weight / weight.sum())
    return [" ".join(names[place] for place in row) for row in places]


def texts_of(name: str, folder: Path) -> list[str]:
    if name == "200,000 short":
        return drawn(200_000, 10)
    if name == "2,000 long":
        return [text[:5000] for text in drawn(2000, 1000)]
    with gzip.open(folder / name / "rows.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return [row[FILES[name]] for row in csv.DictReader(file)]


def measured(run: Callable[[], Any]) -> tuple[Any, np.ndarray]:
    """Return what is computed, and the seconds of the clock and of the CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    found = run()
    return found, np.array([time.perf_counter() - clock, time.process_time() - cpu])


def compare(texts: list[str], rounds: int, min_df: int) -> dict[str, Any]:
    """Return the seconds of both, in turns."""
    times: dict[str, list[Any]] = {}
    shapes = {}
    for _ in range(rounds):
        for name, make in (("ours", ours), ("scikit-learn", union)):
            model = make(min_df)
            _, fit = measured(lambda model=model: model.fit(texts))
            found, transform = measured(lambda model=model: model.transform(texts))
            shapes[name] = [*found.shape, found.nnz]
            times.setdefault(name, []).append([fit + transform, transform])
    assert len(set(map(tuple, shapes.values()))) == 1, shapes
    best = {name: np.min(each, axis=0) for name, each in times.items()}
    rows, columns, entries = shapes["ours"]
    found = {
        "texts": rows,
        "characters": sum(map(len, texts)),
        "columns": columns,
        "entries": entries,
    }
    for step, name in enumerate(("fit and transform", "transform")):
        found[name] = {
            side: {
                "seconds": round(float(best[side][step][0]), 3),
                "cpu_seconds": round(float(best[side][step][1]), 3),
            }
            for side in best
        }
        ratio = best["scikit-learn"][step] / best["ours"][step]
        found[name]["times_as_fast"] = round(float(ratio[0]), 1)
        found[name]["times_as_fast_cpu"] = round(float(ratio[1]), 1)
    return found


def peak() -> float:
    """Return the most memory that this process has held, in MiB.

    Not that of ``resource.getrusage``, which begins with that of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / MEBI


def memory(side: str, step: str, name: str, folder: Path) -> float:
    """Return the peak memory of one fit, or fit and transform, in this process, in MiB."""
    make = ours if side == "ours" else union
    texts = texts_of(name, folder)
    make().fit_transform(["oak elm " * (ngrams.FEWEST // 8), "oak elm"])  # loads the kernels
    before = peak()
    model = make().fit(texts)
    if step == "fit and transform":
        model.transform(texts)
    return peak() - before


def one_text() -> dict[str, float]:
    """Return the milliseconds of one short text, as a server asks for it."""
    texts = drawn(20_000, 10)
    found = {}
    for name, make in (("ours", ours), ("scikit-learn", union)):
        model = make().fit(texts)
        runs = [measured(lambda k=k, m=model: m.transform(texts[k : k + 1]))[1] for k in range(300)]
        found[name] = round(float(1000 * statistics.median(run[0] for run in runs[10:])), 3)
    return found


def first_use() -> dict[str, Any]:
    """Return the CPU seconds of compiling, and of loading what was compiled."""
    program = (
        "import json, time, numpy, scipy.sparse, sklearn.utils.sparsefuncs_fast\n"
        "from hierlearn.features import TextPreprocessor\n"
        "texts = ['oak elm ' * 100_000, 'fir oak']\n"
        "def lap():\n"
        "    global clock\n"
        "    before, clock = clock, time.process_time()\n"
        "    return round(clock - before, 2)\n"
        "clock = time.process_time()\n"
        "import numba; found = {'import of numba': lap()}\n"
        "model = TextPreprocessor(ngrams=2, char_ngrams=5).fit(texts); found['fit'] = lap()\n"
        "model.transform(texts); found['transform'] = lap()\n"
        "print(json.dumps(found))"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        found = {}
        for name in ("compiled", "loaded"):
            command = [sys.executable, "-c", program]
            run = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            found[name] = json.loads(run.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data/open"))
    parser.add_argument("--memory", nargs=3, metavar=("SIDE", "STEP", "NAME"))
    given = parser.parse_args()
    if given.memory:
        print(memory(*given.memory, given.data))
        return
    figures: dict[str, Any] = {"cpu_seconds_of_first_use": first_use()}
    print(figures, flush=True)
    figures["milliseconds_of_one_text"] = one_text()
    print(figures["milliseconds_of_one_text"], flush=True)
    ours().fit_transform(["oak elm " * (ngrams.FEWEST // 8), "oak elm"])  # compiles, or loads
    for name in (*FILES, "2,000 long", "200,000 short"):
        texts = texts_of(name, given.data)
        figures[name] = compare(
            texts,
            rounds=1 if len(texts) > 100_000 else 3,
            min_df=1 if name == "rrna-16s" else 2,  # of sequences, which have one word each
        )
        print(name, json.dumps(figures[name]), flush=True)
    name = "200,000 short"
    figures[name]["peak_mib"] = {
        step: {
            side: round(
                float(
                    subprocess.run(
                        [sys.executable, __file__, "--memory", side, step, name],
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                )
            )
            for side in ("ours", "scikit-learn")
        }
        for step in ("fit", "fit and transform")
    }
    print(figures[name]["peak_mib"])
    write("ngrams", figures, COMMAND)


if __name__ == "__main__":
    main()
