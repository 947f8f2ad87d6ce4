"""A baseline for ICD-10-CM: the nearest description by TF-IDF, without any training.

Every inclusion term gets the category of the description with the largest cosine similarity; ties
go to the first. All descriptions serve as neighbors, those of the validation split too. The
vectorizers are compared on the test rows themselves, so the figure of the best one is slightly
optimistic. Writes benchmarks/results/icd10cm_knn.json. Run:

    python benchmarks/bench_icd10cm_knn.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from hierlearn.datasets.icd10cm import load_icd10cm
from hierlearn.features import TextPreprocessor
from machine import write

CHUNK = 256  # test rows compared at a time; 256 x 98,186 similarities take 100 MB

# The last is the library's own default: sublinear, and words of a single letter count.
VECTORIZERS: dict[str, Any] = {
    "scikit-learn TfidfVectorizer()": TfidfVectorizer(dtype=np.float32),
    "scikit-learn TfidfVectorizer(sublinear_tf=True)": TfidfVectorizer(
        dtype=np.float32, sublinear_tf=True
    ),
    "scikit-learn TfidfVectorizer(sublinear_tf=True, min_df=2)": TfidfVectorizer(
        dtype=np.float32, sublinear_tf=True, min_df=2
    ),
    "hierlearn TextPreprocessor(ngrams=2)": TextPreprocessor(ngrams=2),
    "hierlearn TextPreprocessor('hashed')": TextPreprocessor("hashed"),
    "hierlearn TextPreprocessor()": TextPreprocessor(),
}


def nearest(vectorizer: Any, neighbors: list[str], texts: list[str]) -> np.ndarray:
    known = vectorizer.fit_transform(neighbors).T.tocsr()
    asked = vectorizer.transform(texts)
    return np.concatenate(
        [
            (asked[begin : begin + CHUNK] @ known).toarray().argmax(axis=1)
            for begin in range(0, len(texts), CHUNK)
        ]
    )


def measure(vectorizer: Any, dataset: Any, test: Any) -> dict[str, float]:
    count = len(dataset) - len(test)
    begin = time.perf_counter()
    best = nearest(vectorizer, dataset.inputs[:count], test.inputs)
    seconds = time.perf_counter() - begin
    given = [dataset.labels[row][0].split("/") for row in best]
    right = [labels[0].split("/") for labels in test.labels]
    share = {
        f"{level}_accuracy": round(
            float(np.mean([a[:depth] == b[:depth] for a, b in zip(given, right, strict=True)])), 4
        )
        for depth, level in enumerate(("chapter", "block", "category"), start=1)
    }
    return {**share, "seconds": round(seconds, 1)}


def main() -> None:
    begin = time.perf_counter()
    dataset = load_icd10cm()
    seconds = time.perf_counter() - begin
    test = dataset.split("test")
    rows = []
    for name, vectorizer in VECTORIZERS.items():
        rows.append({"vectorizer": name, **measure(vectorizer, dataset, test)})
        print(*rows[-1].values(), sep="  ", flush=True)
    figures = {
        "dataset": {
            "source": dataset.source,
            "classes": len(dataset.hierarchy),
            "neighbors": len(dataset) - len(test),
            "test": len(test),
            "loading_seconds": round(seconds, 2),
        },
        "results": rows,
    }
    path = write("icd10cm_knn", figures, "python benchmarks/bench_icd10cm_knn.py")
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
