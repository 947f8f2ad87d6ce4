"""Texts: features and models against linear SVMs and 1-NN, accuracy per level and seconds.

    OMP_NUM_THREADS=2 python benchmarks/bench_texts.py [NAME ROWS.csv ...]

6,000 descriptions drawn from the training split of the embedded ICD-10-CM, three quarters to train
and one to evaluate: chapters, blocks and categories. A further set is a CSV file with the columns
``text`` and ``label``, a path with slashes. Seconds are those of features, training and predictions
together. Every figure is the mean over two random splits.

    default             HierarchicalClassifier() on the raw texts
    linear              recipe linear on the same features as the other models
    SVC per parent      greedy from the top down, one LinearSVC per parent
    SVC                 one LinearSVC of all categories
    1-NN                the label of the training text with the largest cosine
"""

from __future__ import annotations

import csv
import os
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.svm import LinearSVC

from hierlearn import HierarchicalClassifier
from hierlearn.datasets import DATASETS
from hierlearn.features import TextPreprocessor
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Texts = list[str]

ROWS, SPLITS = 6000, 2
FEATURES: dict[str, dict[str, Any]] = {
    "words": {},
    "words, pairs": {"ngrams": 2},
    "words, pairs, characters": {"ngrams": 2, "char_ngrams": 5},
}


class PerParent:
    """One LinearSVC per parent, read from the top down."""

    def fit(self, x: Any, labels: Texts) -> PerParent:
        """Train below every parent on its rows."""
        paths = [tuple(label.split("/")) for label in labels]
        below: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for row, path in enumerate(paths):
            for level in range(len(path)):
                below[path[:level]].append(row)
        self.models: dict[tuple[str, ...], Any] = {}
        for parent, rows in below.items():
            steps = np.array([paths[row][len(parent)] for row in rows])
            one = len(set(steps)) == 1
            self.models[parent] = str(steps[0]) if one else LinearSVC().fit(x[rows], steps)
        return self

    def predict(self, x: Any) -> Texts:
        """Follow the best child of each class."""
        found: list[tuple[str, ...]] = [()] * x.shape[0]
        while True:
            at: dict[tuple[str, ...], list[int]] = defaultdict(list)
            for row, path in enumerate(found):
                if path in self.models:
                    at[path].append(row)
            if not at:
                return ["/".join(path) for path in found]
            for path, rows in at.items():
                model = self.models[path]
                steps = [model] * len(rows) if isinstance(model, str) else model.predict(x[rows])
                for row, step in zip(rows, steps, strict=True):
                    found[row] = (*path, str(step))


class Nearest:
    """The label of the nearest training row; rows are of length 1."""

    def fit(self, x: Any, labels: Texts) -> Nearest:
        """Keep the rows."""
        self.x, self.labels = x, labels
        return self

    def predict(self, x: Any) -> Texts:
        """Look up the largest product."""
        return [self.labels[one] for one in np.asarray((x @ self.x.T).argmax(axis=1)).ravel()]


MODELS: dict[str, Callable[[], Any]] = {
    "linear": lambda: HierarchicalClassifier(random_state=0),
    "SVC per parent": PerParent,
    "SVC": LinearSVC,
    "1-NN": Nearest,
}


def main() -> None:
    """Run all methods on all sets, and write results/texts.json."""
    warnings.filterwarnings("ignore")  # LinearSVC counts classes, and iterations
    sets = {"icd10cm": descriptions()}
    for name, path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        sets[name] = read(path)
    found = {name: run(name, *rows) for name, rows in sets.items()}
    load = dict(zip(("1 min", "5 min", "15 min"), os.getloadavg(), strict=True))
    write("texts", {**found, "load": load}, "python benchmarks/bench_texts.py")


def descriptions() -> tuple[Texts, Texts]:
    """Return texts and labels of ICD-10-CM."""
    data = DATASETS["icd10cm"]()
    rows = np.random.default_rng(0).permutation(data.splits["train"])[:ROWS]
    return [data.inputs[row] for row in rows], [data.labels[row][0] for row in rows]


def read(path: str) -> tuple[Texts, Texts]:
    """Return the columns text and label of a CSV file."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def run(name: str, texts: Texts, labels: Texts) -> dict[str, Any]:
    """Return the figures of every method on a set."""
    cut = len(texts) * 3 // 4
    found: dict[str, list[list[float]]] = defaultdict(list)
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(texts))
        train, test = order[:cut], order[cut:]
        given = [texts[row] for row in train], [labels[row] for row in train]
        asked = [texts[row] for row in test], [labels[row] for row in test]
        default = HierarchicalClassifier(random_state=0)
        found["default"].append(figures(default, *given, *asked))
        for features, options in FEATURES.items():
            for model, make in MODELS.items():
                step = TextPreprocessor(**options)
                found[f"{features}: {model}"].append(figures(make(), *given, *asked, step))
    about = {"training_rows": cut, "rows": len(texts) - cut, "classes": len(set(labels))}
    means = {}
    for method, values in found.items():
        *accuracy, seconds = np.mean(values, axis=0).tolist()
        means[method] = {"accuracy_by_level": accuracy, "seconds": seconds}
        print(name, method, [round(one, 4) for one in accuracy], f"{seconds:.1f} s", flush=True)
    return {**about, "splits": SPLITS, "methods": means}


def figures(
    model: Any,
    texts: Texts,
    labels: Texts,
    asked: Texts,
    truth: Texts,
    step: TextPreprocessor | None = None,
) -> list[float]:
    """Return the accuracy at every level, and the seconds."""
    begun = time.perf_counter()
    x: Any = texts if step is None else step.fit(texts).transform(texts).tocsr()
    model.fit(x, labels)
    answers = model.predict(asked if step is None else step.transform(asked).tocsr())
    seconds = time.perf_counter() - begun
    return [*by_level(answers, truth), seconds]


def by_level(answers: Texts | NDArray[Any], truth: Texts) -> list[float]:
    """Return how often answer and truth agree down to each level."""
    pairs = [(a.split("/"), b.split("/")) for a, b in zip(answers, truth, strict=True)]
    levels = max(len(b) for _, b in pairs)
    return [float(np.mean([a[: k + 1] == b[: k + 1] for a, b in pairs])) for k in range(levels)]


if __name__ == "__main__":
    main()
