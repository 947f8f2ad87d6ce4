"""Few rows of a new class: how many of its rows does a model find that only remembers them?

One class at a time is kept out of training; then ten of its training rows are remembered. ``new``
is the share of its test rows that are answered right and ``old`` that of all other test rows, with
rows of the new class weighed as ``memory/store.py`` does, and with every row counting once;
``before`` is that of the others before anything is remembered. The model is what ``fit`` trains
with no option named. A random 30 % of every class are test rows; classes are drawn by seed. That
a new class counts as 1.5 usual ones was chosen by remembered rows left out in turn, on sets
generated with other seeds, PBMC68k and the digits, whose test rows had been looked at, too; the
mean in the rule by test rows of such sets.

Sets: a generated one of ten classes of very unequal size, each in several clusters; the digits of
scikit-learn; and, where they are, ESC-50 and PBMC68k (CSV with a column ``label``), Diatoms and
ImCLEF07D (ARFF). Run with ``python benchmarks/bench_remember.py [--tables FOLDER] [--data
FOLDER]``; the figures of every set go to results/remember.json as they come.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hierlearn import HierarchicalClassifier, Hierarchy, load_dataset
from hierlearn.networks.memories import embeddings_of, remembered, set_memory
from machine import write

ROWS = 10  # of a new class that are remembered
COMMAND = "python benchmarks/bench_remember.py --tables FOLDER --data FOLDER"
LEAST = 25  # rows of a class that is kept out
COLUMNS = {"esc50": "a", "pbmc68k-700": ""}  # how the input columns of a table begin


def digits() -> tuple[Any, Any]:
    """Return the digits, below three made-up kinds."""
    from sklearn.datasets import load_digits

    found = load_digits()
    kinds = np.array(["round", "line", "mixed", "round", "line", "mixed", *["round"] * 4])
    kinds[7] = "line"
    return found.data, np.array([f"{kinds[one]}/{one}" for one in found.target])


def generated() -> tuple[Any, Any]:
    """Return rows of ten species, from 60 to 1,700 each, recorded in several places."""
    draw = np.random.default_rng(0)
    sizes = [1700, 560, 336, 270, 236, 155, 135, 80, 74, 60]
    families = list("adfadadddb")
    mixing = draw.normal(size=(22, 22)) * np.exp(-0.12 * np.arange(22))[:, None]
    centers = {one: draw.normal(size=22) * 0.5 for one in sorted(set(families))}
    rows, labels = [], []
    for number, (size, family) in enumerate(zip(sizes, families, strict=True)):
        places = draw.normal(size=(max(5, min(14, size // 14)), 22)) * 0.68
        own = centers[family] + draw.normal(size=22) * 0.45
        at = places[draw.integers(0, len(places), size)]
        rows.append((own + at + draw.normal(size=(size, 22)) * 0.6) @ mixing.T)
        labels += [f"{family}/s{number}"] * size
    return np.concatenate(rows), np.array(labels)


def table(path: Path, begin: str) -> tuple[Any, Any]:
    """Return the numbers and labels of a CSV."""
    import pandas as pd

    frame = pd.read_csv(path)
    columns = [one for one in frame if one not in ("id", "label", "fold") and one.startswith(begin)]
    return frame[columns].to_numpy(float), frame["label"].to_numpy(str)


def sets(data: Path | None, tables: Path | None) -> dict[str, tuple[Any, Any]]:
    """Return inputs and labels of the sets that are there."""
    found = {"generated": generated()}
    for name, begin in COLUMNS.items() if tables else ():
        found[name] = table(tables / name / "rows.csv.gz", begin)
    found["digits"] = digits()
    for name in ("diatoms", "imclef07d") if data else ():
        dataset = load_dataset(name, data_dir=str(data)).split("train")
        found[name] = np.asarray(dataset.inputs), np.array([row[0] for row in dataset.labels])
    return found


def measure(X: Any, y: Any, new: str, seed: int) -> dict[str, float]:
    """Keep a class out, remember ten rows of it, and count."""
    draw = np.random.default_rng(seed)
    test = np.zeros(len(y), dtype=bool)
    for name in np.unique(y):
        rows = draw.permutation(np.flatnonzero(y == name))
        test[rows[: max(1, int(0.3 * len(rows)))]] = True
    train, is_new = ~test & (y != new), y == new
    few = draw.permutation(np.flatnonzero(is_new & ~test))[:ROWS]
    clf = HierarchicalClassifier(random_state=seed).fit(X[train], y[train])

    def right(rows: Any) -> float:
        return float((clf.predict(X[rows]) == y[rows]).mean())

    before = right(test & ~is_new)
    names = {*clf.hierarchy_.names, *y}
    clf.remember(X[few], y[few], hierarchy=Hierarchy.from_paths(sorted(names)))
    found = {"before": before, "new": right(test & is_new), "old": right(test & ~is_new)}
    network = clf.pipeline_.network
    rows = remembered(network)
    assert rows is not None
    set_memory(network, embeddings_of(network), replace(rows, later=None))
    return {**found, "new_unweighed": right(test & is_new), "old_unweighed": right(test & ~is_new)}


def main() -> None:
    """Measure on every set, and write results/remember.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the ARFF files")
    parser.add_argument("--tables", type=Path, help="folder of the CSV files")
    parser.add_argument("--classes", type=int, default=3, help="kept out of every set, in turn")
    parser.add_argument("--only", nargs="+", help="names of sets; by default all that are there")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    only = f" --only {' '.join(given.only)}" if given.only else ""
    for name, (X, y) in sets(given.data, given.tables).items():
        if given.only and name not in given.only:
            continue
        names, counts = np.unique(y, return_counts=True)
        fit = names[counts >= LEAST]
        chosen = np.random.default_rng(5).permutation(fit)[: given.classes]
        parts = [measure(X, y, str(one), seed) for seed, one in enumerate(chosen)]
        figures[name] = {
            "rows": len(y),
            "classes": len(names),
            "kept_out": [str(one) for one in chosen],
            **{key: round(statistics.mean(one[key] for one in parts), 4) for key in parts[0]},
        }
        print(name, figures[name], flush=True)
        write("remember", figures, f"{COMMAND} --classes {given.classes}{only}")


if __name__ == "__main__":
    main()
