"""Texts with no option set, beside a linear SVM: accuracy per level, and seconds.

    python benchmarks/bench_texts.py

6,000 descriptions drawn from the training split of the embedded ICD-10-CM, three quarters to train
and one to evaluate: chapters, blocks and categories. LinearSVC is flat, on scikit-learn's TF-IDF of
the same words; "hcl" is what ``auto`` chose for texts before the recipe "linear".
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from hierlearn import HierarchicalClassifier
from hierlearn.datasets import DATASETS
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, LEVELS = 6000, 3
WORDS = {"token_pattern": r"(?u)\b\w+\b", "sublinear_tf": True}
METHODS: dict[str, Callable[[], Any]] = {
    "LinearSVC": lambda: make_pipeline(TfidfVectorizer(**WORDS), LinearSVC()),
    "auto": lambda: HierarchicalClassifier(random_state=0),
    "hcl": lambda: HierarchicalClassifier("hcl", random_state=0),
}


def main() -> None:
    """Run all methods, and write results/texts.json."""
    data = DATASETS["icd10cm"]()
    rows = np.random.default_rng(0).permutation(data.splits["train"])[:ROWS]
    texts = [data.inputs[row] for row in rows]
    labels = [data.labels[row][0] for row in rows]
    cut = ROWS * 3 // 4
    found: dict[str, Any] = {"training_rows": cut, "rows": ROWS - cut, "classes": len(set(labels))}
    for name, make in METHODS.items():
        begun = time.perf_counter()
        model = make().fit(texts[:cut], labels[:cut])
        answers = model.predict(texts[cut:])
        seconds = time.perf_counter() - begun
        pairs = [(a.split("/"), b.split("/")) for a, b in zip(answers, labels[cut:], strict=True)]
        accuracy = [
            float(np.mean([a[:level] == b[:level] for a, b in pairs]))
            for level in range(1, LEVELS + 1)
        ]
        found[name] = {"accuracy_by_level": accuracy, "seconds": seconds}
        print(name, found[name], getattr(model, "recipe_", ""), flush=True)
    write("texts", found, "python benchmarks/bench_texts.py")


if __name__ == "__main__":
    main()
