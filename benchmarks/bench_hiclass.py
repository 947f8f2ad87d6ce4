"""hierlearn with no option set beside hiclass, on the splits of the named text datasets.

    pip install hiclass
    python benchmarks/bench_hiclass.py

hiclass is what its users would begin with: a LinearSVC per parent node on weighted words; and the
same on the n-grams that hierlearn takes, words, pairs of words and characters. Accuracy by level on
the test rows; seconds to fit, features included, the median of three.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from hiclass import LocalClassifierPerParentNode
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC

from hierlearn import HierarchicalClassifier
from hierlearn.datasets import load_dataset
from hierlearn.lab.demo import right_levels
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.datasets.dataset import Dataset

SETS: dict[str, dict[str, Any]] = {"icd10cm": {"size": "small"}, "naics": {}}
REPEATS = 3


def with_hiclass(texts: list[str], paths: list[str]) -> Callable[[list[str]], list[str]]:
    """Fit hiclass, and return what predicts paths."""
    return per_parent(TfidfVectorizer(sublinear_tf=True), texts, paths)


def with_ngrams(texts: list[str], paths: list[str]) -> Callable[[list[str]], list[str]]:
    """Fit hiclass on words, pairs of words and characters."""
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    characters = TfidfVectorizer(
        sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 5), min_df=2
    )
    return per_parent(make_union(words, characters), texts, paths)


def per_parent(
    features: Any, texts: list[str], paths: list[str]
) -> Callable[[list[str]], list[str]]:
    """Fit a LinearSVC per parent node on features of texts."""
    levels = np.array([path.split("/") for path in paths], dtype=object)
    local = LocalClassifierPerParentNode(local_classifier=LinearSVC())
    model = make_pipeline(features, local).fit(texts, levels)
    return lambda new: ["/".join(row) for row in model.predict(new)]


def with_hierlearn(texts: list[str], paths: list[str]) -> Callable[[list[str]], list[str]]:
    """Fit the default of hierlearn, and return what predicts paths."""
    model = HierarchicalClassifier().fit(texts, paths)
    return lambda new: list(model.predict(new))


def run(dataset: Dataset, fit: Callable[..., Any]) -> dict[str, Any]:
    """Fit several times, and evaluate once."""
    rows, test = dataset.split("train"), dataset.split("test")
    seconds = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        predict = fit(list(rows.inputs), [labels[0] for labels in rows.labels])
        seconds.append(time.perf_counter() - begun)
    right = right_levels(dataset, predict(list(test.inputs)))
    return {
        "accuracy_by_level": right.mean(axis=0).tolist(),
        "seconds": statistics.median(seconds),
        "all_seconds": seconds,
    }


def main() -> None:
    """Run both on every set."""
    found: dict[str, Any] = {"threads": torch.get_num_threads()}
    for name, options in SETS.items():
        dataset = load_dataset(name, **options)
        found[name] = {
            "training_rows": len(dataset.splits["train"]),
            "test_rows": len(dataset.splits["test"]),
            "hiclass": run(dataset, with_hiclass),
            "hiclass_ngrams": run(dataset, with_ngrams),
            "hierlearn": run(dataset, with_hierlearn),
        }
        print(name, found[name])
    write("hiclass", found, "python benchmarks/bench_hiclass.py")


if __name__ == "__main__":
    main()
