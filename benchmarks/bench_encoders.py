"""Frozen encoders from packages: heads on their vectors, chosen by validation rows.

    python benchmarks/bench_encoders.py DATA [SET ...]

DATA is a folder with one per set: ``clinc150``, ``edos`` and ``goemotions`` with a ``rows.csv.gz``
of the columns text, label and split; ``grocery`` with an ``images.csv`` of image, label and split,
and its images. GoEmotions trains on the first ROWS of its shuffled training rows. Vectors come from
the cache of features where they were computed before. Splits are the official ones, and nothing is
chosen by test rows: the head and the thresholds are those with the best figure on the validation
rows. The figures of sets that are not named stay as they are.

    exact       every label of the path is right
    hier-f      micro F1 over labels and their ancestors
    macro-f1    the mean over the classes of a task; of EDOS, tasks A, B and C, the latter two on
                sexist rows, among sexist classes; of GoEmotions, emotions, Ekman's, and sentiments
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import f1_score

from hierlearn import Dataset, Hierarchy, Labels, Plan, train
from hierlearn.datasets.images import read_image_table
from hierlearn.features.embed import EmbedPreprocessor
from machine import RESULTS, versions, write

ROWS = 16_384
SOFTMAX: dict[str, Any] = {"recipe": "linear", "loss": "leaf-ce", "decoder": "leaf"}
PIXELS = 128  # to which the photographs of 96 are enlarged
THRESHOLDS = np.arange(0.05, 0.6, 0.05)


def penalized(plan: dict[str, Any], penalty: float) -> dict[str, Any]:
    """Return a plan for a linear model of vectors as they are."""
    return {**plan, "standardize": False, "settings": {"l2_penalty": penalty}}


HEADS: dict[str, dict[str, Any]] = {
    "default (quick memory)": {},
    "nearest": {"recipe": "nearest"},
    "svm per parent": {"recipe": "linear"},
    "softmax, penalty 0.03": penalized(SOFTMAX, 0.03),
    "softmax, penalty 0.1": penalized(SOFTMAX, 0.1),
    "softmax, penalty 0.3": penalized(SOFTMAX, 0.3),
}
SEVERAL = {
    **{f"logistic, penalty {one}": penalized({"recipe": "linear"}, one) for one in (0.03, 0.3)},
    "nearest": {"recipe": "nearest"},
    "default (quick memory)": {},
}


def read(folder: Path, name: str) -> Dataset:
    """Return a set with its official splits."""
    if name == "grocery":
        path = folder / name / "images.csv"
        return read_image_table(path, image="image", label="label", split="split")
    csv.field_size_limit(1 << 30)
    with gzip.open(folder / name / "rows.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    where = np.array([row["split"] for row in rows])
    splits = {part: np.flatnonzero(where == part) for part in ("train", "valid", "test")}
    if name == "goemotions":
        order = np.random.default_rng(0).permutation(len(splits["train"]))
        splits["train"] = splits["train"][order[:ROWS]]
    labels = [row["label"].split(";") for row in rows]
    hierarchy = Hierarchy.from_paths(sorted({one for own in labels for one in own}))
    return Dataset([row["text"] for row in rows], labels, hierarchy, splits)


def encoded(data: Dataset, encoder: str | None, options: dict[str, Any]) -> tuple[dict, Any]:
    """Return the parts of a set, encoded, and what it took."""
    parts = {name: data.split(name) for name in ("train", "valid", "test")}
    if encoder is None:
        return parts, None
    step = EmbedPreprocessor(encoder, **options).fit(parts["train"].inputs)
    for name, part in parts.items():
        found = step.transform(part.inputs)
        parts[name] = Dataset(found, part.labels, part.hierarchy)
    step.cache, few = False, parts["test"].labels[:512]
    rows = np.asarray(step.step.transform(data.split("test").inputs[: len(few)]))
    begin = time.process_time()
    step.encode(rows)
    return parts, {
        "features": step.columns,
        "rows_per_cpu_second": round(len(few) / (time.process_time() - begin)),
    }


def figures(name: str, model: Any, part: Dataset, cuts: dict[str, float]) -> dict[str, float]:
    """Return what is measured of a part; thresholds that are not given yet are chosen by it."""
    hierarchy = part.hierarchy
    truth = Labels(part.labels, hierarchy).targets().numpy().astype(bool)
    answers = [[one] if isinstance(one, str) else list(one) for one in model.predict(part.inputs)]
    given = Labels(answers, hierarchy).targets().numpy().astype(bool)
    p = model.probabilities(part.inputs).numpy()
    names = hierarchy.names
    found = {
        "exact": float((truth == given).all(axis=1).mean()),
        "hier-f": float(2 * (truth & given).sum() / (truth.sum() + given.sum())),
    }
    depth = np.array([one.count("/") for one in names])
    if name == "grocery":
        coarse = [[names.index("/".join(one.split("/")[:2])) for one in own] for own in answers]
        right = truth[np.arange(len(truth)), np.ravel(coarse)]
        found["coarse"] = float(right.mean())
    if name == "edos":
        sexist = np.array([one.startswith("sexist") for one in names])
        found["macro-f1 A"] = macro(truth[:, depth == 0], given[:, depth == 0])
        rows = truth[:, names.index("sexist")]
        for level, task in ((1, "B"), (2, "C")):
            columns = np.flatnonzero(sexist & (depth == level))
            best = p[np.ix_(rows, columns)].argmax(axis=1)
            own = truth[np.ix_(rows, columns)]
            found[f"macro-f1 {task}"] = macro(own, np.eye(len(columns), dtype=bool)[best])
    if name == "goemotions":
        neutral = np.array([one == "neutral" for one in names])
        leaves = np.array([not hierarchy.children(one) for one in names])
        for task, columns in (
            ("emotions", leaves),
            ("Ekman", neutral | (depth == 1)),
            ("sentiments", depth == 0),
        ):
            own, scores = truth[:, columns], p[:, columns]
            found[f"macro-f1 {task}, as answered"] = macro(own, given[:, columns])
            if task not in cuts:
                cuts[task] = float(max(THRESHOLDS, key=lambda cut: macro(own, scores >= cut)))
            found[f"macro-f1 {task}"] = macro(own, scores >= cuts[task])
    return {key: round(100 * value, 2) for key, value in found.items()}


def macro(truth: Any, given: Any) -> float:
    return float(f1_score(truth, given, average="macro", zero_division=0))


def measure(name: str, parts: dict[str, Dataset], plan: dict[str, Any]) -> dict[str, Any]:
    """Train on the training rows alone; measure the validation and the test rows."""
    own = {"device": "cpu", **plan.get("settings", {})}
    begin = time.process_time()
    # The data has no split named valid, so nothing sees the validation rows.
    model = train(parts["train"], Plan(**{**plan, "settings": own}, calibration=False))
    took = time.process_time() - begin
    cuts: dict[str, float] = {}
    found = {part: figures(name, model, parts[part], cuts) for part in ("valid", "test")}
    return {**found, "thresholds": cuts, "cpu_seconds": round(took, 1)}


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder, *wanted = sys.argv[1:]
    before = RESULTS / "encoders.json"
    results: dict[str, Any]
    for name in wanted or ["clinc150", "edos", "goemotions", "grocery"]:
        data, results = read(Path(folder), name), {}
        first = {"goemotions": "macro-f1 emotions", "edos": "macro-f1 C"}.get(name, "exact")
        heads = SEVERAL if name == "goemotions" else HEADS
        encoders: list[tuple[str | None, dict[str, Any]]]
        encoders = [("minilm", {}), ("wordllama", {}), (None, {})]
        if name == "grocery":
            encoders = [("efficientnet", {"image_size": PIXELS})]
        for encoder, options in encoders:
            parts, cost = encoded(data, encoder, options)
            key = f"{name}, {encoder or 'words and characters'}" + (
                f", {options['image_size']} pixels" if options else ""
            )
            rows = {part: len(one) for part, one in parts.items()}
            results[key] = {"rows": rows, "encoder": cost, "heads": {}}
            own = heads if encoder else {"default": {}}
            if encoder == "wordllama":  # quick vectors, for quick heads
                own = {head: plan for head, plan in heads.items() if plan}
            for head, plan in own.items():
                found = measure(name, parts, plan)
                results[key]["heads"][head] = found
                print(key, head, found, flush=True)
            tried = results[key]["heads"]
            best = max(tried, key=lambda one: tried[one]["valid"][first])
            results[key]["best_by_validation"] = {"head": best, **tried[best]["test"]}
            if before.exists():
                results = {**json.loads(before.read_text())["figures"]["sets"], **results}
            found = {"versions": versions("transformers", "tokenizers"), "sets": results}
            write("encoders", found, "python benchmarks/bench_encoders.py DATA")


if __name__ == "__main__":
    main()
