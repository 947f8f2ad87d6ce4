"""The default beside what a user would pick instead, on tables from elsewhere.

    pip install hiclass lightgbm
    python benchmarks/bench_trials.py --data ../shared/data/open --packages FOLDER

Exact answers, hierarchical F1 (of the closures of answer and label), the mean probability of the
answers beside the share that is right, seconds to fit and to predict, and the most memory beyond
that of before, in one run on one machine. Every model sees the same training rows. Where fewer than
1,000 rows are tested, figures are means over several splits, with their standard errors.

`--only` and `--methods` select; figures of other tables and methods in the file stay. Half of the
tables of packages, the final set of `trial_tables.py`, is tested with `--final` only: once, when
nothing is to be changed any more. `--valid` leaves test rows alone: a quarter of the training rows
is tested instead, and no file is written, so that a change can be judged.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from hierlearn import HierarchicalClassifier
from machine import RESULTS, write
from trial_tables import OPEN, OTHER, Table, final_set, read

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 2000  # distinct values from which on a column of words is a text
SEED = 0


def words() -> Any:
    """Return weighted words and pairs of words."""
    return TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))


def ngrams() -> Any:
    """Return weighted words, pairs of words and characters."""
    characters = TfidfVectorizer(
        sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 5), min_df=2
    )
    return make_union(words(), characters)


def columns(table: Table) -> Any:
    """Return numbers scaled, few values one-hot and many as words, as a user would write it."""
    if table.numbers:
        return StandardScaler()
    kinds = table.rows.dtypes
    numbers = [name for name in table.rows if pd.api.types.is_numeric_dtype(kinds[name])]
    others = [name for name in table.rows if name not in numbers]
    rare = [name for name in others if table.rows[name].nunique() > MANY]
    steps: list[Any] = [(make_pipeline(SimpleImputer(), StandardScaler()), numbers)]
    steps.append((OneHotEncoder(handle_unknown="ignore"), [n for n in others if n not in rare]))
    for name in rare:
        filled = FunctionTransformer(lambda cells: cells.fillna("").astype(str))
        steps.append((make_pipeline(filled, words()), name))
    return make_column_transformer(*steps)


def flat(features: Callable[[], Any], model: Callable[[], Any]) -> Callable[[Table], Any]:
    """Return what builds a model over whole paths."""
    return lambda table: make_pipeline(features() if table.texts else columns(table), model())


def per_parent(features: Callable[[], Any]) -> Callable[[Table], Any]:
    """Return what builds hiclass with a LinearSVC per parent."""

    def build(table: Table) -> Any:
        from hiclass import LocalClassifierPerParentNode

        local = LocalClassifierPerParentNode(local_classifier=LinearSVC())
        return make_pipeline(features() if table.texts else columns(table), local)

    return build


def boosted() -> Any:
    """Return LightGBM with its defaults."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, random_state=SEED, n_jobs=1)


DEFAULT = "hierlearn"
METHODS: dict[str, Callable[[Table], Any]] = {
    DEFAULT: lambda _: HierarchicalClassifier(),
    "LinearSVC, words": flat(words, LinearSVC),
    "LinearSVC, n-grams": flat(ngrams, LinearSVC),
    "hiclass, words": per_parent(words),
    "hiclass, n-grams": per_parent(ngrams),
    "RBF SVC": flat(words, lambda: SVC(C=10, random_state=SEED)),
    "extra trees": flat(words, lambda: ExtraTreesClassifier(300, random_state=SEED, n_jobs=2)),
    "forest": flat(words, lambda: RandomForestClassifier(300, random_state=SEED, n_jobs=2)),
    "LightGBM": flat(words, boosted),
}
FOR_TEXTS = {DEFAULT, *(name for name in METHODS if "SVC," in name or "hiclass" in name)}
FOR_TABLES = {name for name in METHODS if "n-grams" not in name and name != "LinearSVC, words"}


def closure(path: str) -> set[str]:
    """Return a path and everything above it."""
    parts = path.split("/")
    return {"/".join(parts[: n + 1]) for n in range(len(parts))}


def scores(answers: list[str], truth: list[str]) -> dict[str, float]:
    """Return exact answers and hierarchical F1, over all rows together."""
    pairs = [(closure(a), closure(b)) for a, b in zip(answers, truth, strict=True)]
    shared = sum(len(a & b) for a, b in pairs)
    total = sum(len(a) + len(b) for a, b in pairs)
    exact = np.mean([a == b for a, b in zip(answers, truth, strict=True)])
    return {"exact": float(exact), "hier-f1": 2 * shared / total}


def paths_of(found: Any) -> list[str]:
    """Return answers as paths; hiclass answers a row per level."""
    found = np.asarray(found, dtype=object)
    if found.ndim == 1:
        return [str(one) for one in found]
    return ["/".join(str(part) for part in row if part != "") for row in found]


def targets(name: str, paths: Any) -> Any:
    """Return what a method learns: paths, or levels for hiclass."""
    if not name.startswith("hiclass"):
        return paths
    split = [path.split("/") for path in paths]
    depth = max(map(len, split))
    return np.array([row + [""] * (depth - len(row)) for row in split], dtype=object)


def confidence(model: Any, inputs: Any, answers: list[str], truth: list[str]) -> dict[str, float]:
    """Return the mean probability of the answers, the share that is right, and their error.

    An answer is right if it is the label or lies above it, as its probability says.
    """
    names = list(model.hierarchy_.names)
    place = {name: number for number, name in enumerate(names)}
    p = np.asarray(model.predict_node_proba(inputs))
    sure = np.array([p[row, place[answer]] for row, answer in enumerate(answers)])
    right = np.array([one in closure(true) for one, true in zip(answers, truth, strict=True)])
    bins = np.minimum((sure * 10).astype(int), 9)
    gaps = [
        (bins == one).mean() * abs(sure[bins == one].mean() - right[bins == one].mean())
        for one in set(bins.tolist())
    ]
    found = {"confidence": sure.mean(), "right": right.mean(), "calibration-error": sum(gaps)}
    return {name: float(value) for name, value in found.items()}


def memory(field: str) -> float:
    """Return a figure of this process in GB: VmRSS, what is used now, or VmHWM, the most so far."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1e6


def measure(name: str, table: Table) -> dict[str, float]:
    """Fit, predict and evaluate one method on one split of a table."""
    train, test = table.rows[~table.test], table.rows[table.test]
    one_text = table.texts
    take = (lambda rows: rows["text"].tolist()) if one_text else (lambda rows: rows)
    truth = [str(path) for path in table.paths[table.test]]
    model = METHODS[name](table)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forgets the most so far
    before = memory("VmRSS")
    begun, spent = time.perf_counter(), time.process_time()
    model.fit(take(train), targets(name, table.paths[~table.test]))
    fitted = time.perf_counter()
    answers = paths_of(model.predict(take(test)))
    seconds = {"fit": fitted - begun, "predict": time.perf_counter() - fitted}
    seconds["cpu"] = time.process_time() - spent  # of both, which other processes do not change
    found = {**scores(answers, truth), **seconds, "memory": memory("VmHWM") - before}
    if name == DEFAULT:
        found |= confidence(model, take(test), answers, truth)
    return found


def mean(figures: list[dict[str, float]]) -> dict[str, float]:
    """Return means over splits, and the standard errors of those of the answers."""
    found = {key: float(np.mean([one[key] for one in figures])) for key in figures[0]}
    if len(figures) > 1:
        for key in ("exact", "hier-f1"):
            spread = np.std([one[key] for one in figures], ddof=1)
            found[f"{key}-error"] = float(spread / np.sqrt(len(figures)))
    return {key: round(value, 4) for key, value in found.items()}


def main() -> None:
    """Measure what was asked for, and write the file after every table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data/open"))
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--methods", default=",".join(METHODS).replace(", ", "; "))
    parser.add_argument("--splits", type=int, help="1 to 5, by the number of test rows")
    parser.add_argument("--final", action="store_true")
    parser.add_argument("--valid", action="store_true")
    parser.add_argument("--out", default="trials")
    asked = parser.parse_args()
    path = RESULTS / f"{asked.out}.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else {}
    methods = [name.replace("; ", ", ") for name in asked.methods.split(",")]
    last = final_set()
    every = [name for name in [*OPEN, *OTHER] if (name in last) == asked.final]
    for name in asked.only.split(",") if asked.only else every:
        if name in last and not asked.final:
            raise SystemExit(f"{name} is of the final set: --final, once")

        def split(seed: int, name: str = name) -> Table:
            if not asked.valid:
                return read(name, asked.data, asked.packages, seed)
            return read(name, asked.data, asked.packages).held_out(seed)

        table = split(0)
        if not table.test.any():
            continue
        # A split that comes with a set is the only one.
        count = asked.splits or (1 if table.given else min(5, -(-1000 // int(table.test.sum()))))
        fitting = FOR_TEXTS if table.texts else FOR_TABLES
        figures = kept.setdefault(name, {})
        figures["rows"] = [int((~table.test).sum()), int(table.test.sum())]
        figures["classes"] = len(set(table.paths))
        figures["splits"] = count
        for method in methods:
            if method in fitting:
                found = [measure(method, split(seed)) for seed in range(count)]
                figures[method] = mean(found)
                print(name, method, json.dumps(figures[method]), flush=True)
        if not asked.valid:
            write(asked.out, kept, "python benchmarks/bench_trials.py --packages FOLDER [--final]")


if __name__ == "__main__":
    main()
