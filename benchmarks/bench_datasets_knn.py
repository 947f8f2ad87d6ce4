"""A baseline for the named datasets: the labels of the nearest row, without any training.

Every test row gets the labels of its nearest neighbor among the rows of "train" and "valid"; ties
go to the first. Texts are compared by the cosine of their TF-IDF, with several vectorizers, pixels
by their distance. The vectorizers are compared on the test rows themselves, so the figure of the
best one is slightly optimistic; the docs quote the library's own default.

``match_by_level`` is the share of test rows whose classes are right from level 1 down to that level
(on a tree with one path per row, the accuracy of the level); ``hierarchical_f1`` counts classes
with their ancestors over all rows. Writes benchmarks/results/datasets_knn.json. Run:

    python benchmarks/bench_datasets_knn.py [--data-dir FOLDER] [NAME ...]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from hierlearn.datasets import DATASETS, Dataset
from hierlearn.features import TextPreprocessor
from machine import write

CHUNK = 256  # test rows compared at a time; 256 x 98,186 similarities take 100 MB
NAMES = ("icd10cm", "esco", "medline", "naics", "cwe", "omniglot")

# The last is the library's own default: sublinear, and words of a single letter count.
VECTORIZERS: dict[str, Any] = {
    "scikit-learn TfidfVectorizer()": lambda: TfidfVectorizer(dtype=np.float32),
    "scikit-learn TfidfVectorizer(sublinear_tf=True)": lambda: TfidfVectorizer(
        dtype=np.float32, sublinear_tf=True
    ),
    "scikit-learn TfidfVectorizer(sublinear_tf=True, min_df=2)": lambda: TfidfVectorizer(
        dtype=np.float32, sublinear_tf=True, min_df=2
    ),
    "hierlearn TextPreprocessor(ngrams=2)": lambda: TextPreprocessor(ngrams=2),
    "hierlearn TextPreprocessor()": TextPreprocessor,
}


def nearest_texts(vectorizer: Any, neighbors: list[str], texts: list[str]) -> np.ndarray:
    known = vectorizer.fit_transform(neighbors).T.tocsr()
    asked = vectorizer.transform(texts)
    return np.concatenate(
        [
            (asked[begin : begin + CHUNK] @ known).toarray().argmax(axis=1)
            for begin in range(0, len(texts), CHUNK)
        ]
    )


def nearest_rows(neighbors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    # The squared distance without the part that all neighbors share.
    return (np.square(neighbors).sum(axis=1) - 2 * rows @ neighbors.T).argmin(axis=1)


def scores(dataset: Dataset, given: list[list[str]], right: list[list[str]]) -> dict[str, Any]:
    """Compare label sets, with all their ancestors."""
    hierarchy = dataset.hierarchy
    matches = np.zeros(hierarchy.depth)
    common = total = 0
    for begin in range(0, len(right), CHUNK):
        answers = hierarchy.encode(given[begin : begin + CHUNK]).numpy()
        truth = hierarchy.encode(right[begin : begin + CHUNK]).numpy()
        common += int((answers & truth).sum())
        total += int(answers.sum()) + int(truth.sum())
        same = answers == truth
        still = np.ones(len(truth), dtype=bool)
        for level, columns in enumerate(hierarchy.level_slices):
            still &= same[:, columns].all(axis=1)
            matches[level] += still.sum()
    return {
        "match_by_level": [round(float(one), 4) for one in matches / len(right)],
        "hierarchical_f1": round(2 * common / total, 4),
    }


def measure(dataset: Dataset) -> list[dict[str, Any]]:
    rows = np.concatenate([dataset.splits["train"], dataset.splits["valid"]])
    known = dataset.take(np.sort(rows))
    test = dataset.split("test")
    ways: dict[str, Any] = {"pixels": lambda: nearest_rows(known.inputs, test.inputs)}
    if dataset.is_text:
        ways = {
            name: lambda make=make: nearest_texts(make(), known.inputs, test.inputs)
            for name, make in VECTORIZERS.items()
        }
    found = []
    for name, nearest in ways.items():
        begin = time.perf_counter()
        best = nearest()
        seconds = time.perf_counter() - begin
        figures = scores(dataset, [known.labels[row] for row in best], test.labels)
        found.append({"compared": name, **figures, "seconds": round(seconds, 1)})
        print(dataset.name, *found[-1].values(), sep="  ", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--data-dir", help="a folder with the files, where they are not cached")
    given = parser.parse_args()
    figures = {}
    for name in given.names:
        entry = DATASETS[name]
        options = {"data_dir": given.data_dir} if "data_dir" in entry.options else {}
        begin = time.perf_counter()
        dataset = entry(**options)
        seconds = time.perf_counter() - begin
        figures[name] = {
            "source": dataset.source,
            "classes": len(dataset.hierarchy),
            "levels": dataset.hierarchy.depth,
            "neighbors": len(dataset.splits["train"]) + len(dataset.splits["valid"]),
            "test": len(dataset.splits["test"]),
            "loading_seconds": round(seconds, 2),
            "results": measure(dataset),
        }
    path = write("datasets_knn", figures, "python benchmarks/bench_datasets_knn.py")
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
