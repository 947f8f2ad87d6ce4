"""The linear solver beside scikit-learn's LinearSVC: seconds, objectives, answers, and memory.

``tables``: texts of CSV files with the columns text, label and split, by the n-grams of recipe
``linear``, C = 2. LinearSVC is flat, at its own tolerance of 1e-4 and at that of liblinear, 0.1,
which is the solver's. Seconds of the CPU and of the clock are the least of several runs, all in one
process, in turns. ``objective`` is the sum over classes, beyond that of LinearSVC at 1e-6 and
relative to it. ``agree`` is how many test rows get the class that this one gives. ``warm`` is a fit
to all rows after one to 80 % of them.

``many``: 200,000 short texts of 3,000 leaves in 3 levels, made of words that are common, or more
frequent in a top class, its child or a leaf; peak memory is beyond what the process held before.
Run with ``python benchmarks/bench_linear.py NAME=FILE ... [--rows 200000]``; the figures go to
results/linear.json.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.svm import LinearSVC

from hierlearn import Hierarchy, Labels, LabelSpace
from hierlearn.datasets import Dataset, read_table
from hierlearn.features import make_preprocessor
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.sparse_linear import SparseLinearHead
from hierlearn.training.choose import Facts
from hierlearn.training.recipes import ngrams
from hierlearn.training.rows import Rows
from hierlearn.training.solvers.linear import fit_head, out_of_fold, rows_of_slope
from machine import write

COST = 2.0
CPU = torch.device("cpu")
REPEAT = 3


def timed(run: Any, threads: int = 1) -> dict[str, float]:
    """Return the CPU seconds and the seconds of a call."""
    torch.set_num_threads(threads)
    begun = time.perf_counter(), time.process_time()
    run()
    return {
        "cpu": round(time.process_time() - begun[1], 3),
        "wall": round(time.perf_counter() - begun[0], 3),
    }


def least(found: list[dict[str, float]]) -> dict[str, float]:
    """Return the least of each figure."""
    return {name: min(one[name] for one in found) for name in found[0]}


def objective(weights: Any, x: Any, numbers: Any) -> float:
    """Return the sum of the objectives of all classes; the last weights are the biases."""
    total = 0.0
    for number, own in enumerate(weights.T):
        side = np.where(numbers == number, 1.0, -1.0)
        short = np.maximum(0, 1 - side * (x @ own[:-1] + own[-1]))
        total += float(own @ own) / 2 + COST * float(short @ short)
    return total


def table(path: str) -> dict[str, Any]:
    """Return the figures of a CSV file."""
    data = read_table(path, label="label", text="text", split="split")
    parts = data.split("train"), data.split("test")
    labels, other = (Labels(one.labels, data.hierarchy) for one in parts)
    step: Any = make_preprocessor(None, parts[0], **ngrams(Facts.of(labels, "texts")))
    step.fit(parts[0].inputs)
    x, held = (sparse.csr_matrix(step.transform(one.inputs)) for one in parts)
    rows, space = Rows(x, labels, CPU), LabelSpace.from_labels(labels)
    classes, numbers = np.unique(labels.terminal[1], return_inverse=True)
    heads = {
        name: SparseLinearHead(x.shape[1], space, strategy=name) for name in ("flat", "per-parent")
    }
    for head in heads.values():
        fit_head(head, rows, 1 / COST)  # compiled before anything is timed
    wide = x.astype(np.float64)
    oracles = {tol: LinearSVC(C=COST, tol=tol, max_iter=100_000) for tol in (1e-6, 1e-4, 0.1)}
    oracles[1e-6].fit(wide, numbers)
    times: dict[str, list[dict[str, float]]] = {}
    for _ in range(REPEAT):
        for tol in (1e-4, 0.1):
            one = timed(lambda tol=tol: oracles[tol].fit(wide, numbers))
            times.setdefault(f"LinearSVC {tol}", []).append(one)
        for name, head in heads.items():
            for threads in (1, 2):
                one = timed(lambda head=head: fit_head(head, rows, 1 / COST), threads)
                times.setdefault(f"{name}, {threads} threads", []).append(one)
        for name, head in heads.items():
            duals: dict[int, Any] = {}
            left = np.arange(0, len(rows), 5)
            fit_head(head, rows, 1 / COST, left_out=left, duals=duals)
            one = timed(lambda head=head, duals=duals: fit_head(head, rows, 1 / COST, duals=duals))
            times.setdefault(f"{name}, warm", []).append(one)
    figures: dict[str, Any] = {"rows": len(rows), "columns": x.shape[1], "entries": x.nnz}
    figures["classes"] = len(classes)
    figures["seconds"] = {name: least(found) for name, found in times.items()}
    head = heads["flat"]
    fit_head(head, rows, 1 / COST)
    own = np.vstack([head.dense().numpy(), head.bias.numpy()])[:, classes].astype(np.float64)
    theirs = {tol: np.vstack([one.coef_.T, one.intercept_]) for tol, one in oracles.items()}
    best = objective(theirs[1e-6], wide, numbers)
    weights = {"flat": own, **{f"LinearSVC {tol}": one for tol, one in theirs.items()}}
    figures["objective"] = {
        name: objective(one, wide, numbers) / best - 1 for name, one in weights.items()
    }
    answers = {name: (held @ one[:-1] + one[-1]).argmax(axis=1) for name, one in weights.items()}
    oracle = answers[f"LinearSVC {1e-6}"]
    figures["agree"] = {name: float((one == oracle).mean()) for name, one in answers.items()}
    truth = other.terminal[1]
    figures["exact"] = {"LinearSVC": float((classes[oracle] == truth).mean())}
    for name, head in heads.items():
        out_of_fold(head, rows, [rows_of_slope(head, rows, 0)], 1 / COST)
        output = head(SparseRows.from_scipy(held))
        masses = head.link.log_masses(output.float_logits)
        figures["exact"][name] = float((masses.argmax(dim=1).numpy() == truth).mean())
        figures.setdefault("slope", {})[name] = round(float(head.slope), 2)
        size = head.values.nbytes + head.slots.nbytes + head.offsets.nbytes
        dense = x.shape[1] * len(head.bias) * 4
        figures.setdefault("bytes", {})[name] = {"sparse": size, "dense": dense}
    return figures


# ---------------------------------------- many rows and classes


def texts(count: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Return short texts and their classes."""
    rng = np.random.default_rng(seed)
    syllables = np.array([a + b for a in "bdfgklmnprstvz" for b in "aeiou"])
    words = ["".join(one) for one in rng.choice(syllables, (30_000, 3))]
    shape = (15, 15, 14)
    usual = 1 / np.arange(1, 2001)
    of_level = [rng.integers(0, len(words), (int(np.prod(shape[: n + 1])), 40)) for n in range(3)]
    leaf = rng.integers(0, 3000, count)
    numbers = [leaf // (15 * 14), leaf // 14, leaf]
    common = rng.choice(2000, (count, 3), p=usual / usual.sum())
    drawn = [common] + [
        of_level[n][numbers[n][:, None], rng.integers(0, 40, (count, size))]
        for n, size in enumerate((1, 1, 2))
    ]
    picked = np.concatenate(drawn, axis=1)
    found = [" ".join(words[number] for number in row) for row in picked.tolist()]
    return found, [[f"{a}/{b}/{c}"] for a, b, c in zip(*(n.tolist() for n in numbers), strict=True)]


class Peak:
    """The most memory of the process while a block runs, beyond what it held before."""

    def __enter__(self) -> Peak:
        self.before, self.most, self.over = self.resident(), 0, False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True
        self.thread.join()

    def watch(self) -> None:
        """Look every few milliseconds."""
        while not self.over:
            self.most = max(self.most, self.resident() - self.before)
            time.sleep(0.005)

    @staticmethod
    def resident() -> int:
        """Return the bytes that the process holds."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def many(count: int) -> dict[str, Any]:
    """Return the figures of many rows and classes."""
    rows_of_texts, paths = texts(count + 5000)
    hierarchy = Hierarchy.from_paths(sorted({one[0] for one in paths}))
    data = Dataset(rows_of_texts[:count], paths[:count], hierarchy)
    labels = Labels(data.labels, hierarchy)
    step: Any = make_preprocessor(None, data, **ngrams(Facts.of(labels, "texts")))
    step.fit(rows_of_texts[:count])
    x = sparse.csr_matrix(step.transform(rows_of_texts[:count]))
    held = SparseRows.from_scipy(sparse.csr_array(step.transform(rows_of_texts[count:])))
    names = labels.hierarchy.names
    truth = np.array([names.index(one[0]) for one in paths[count:]])
    rows, space = Rows(x, labels, CPU, dense=0), LabelSpace.from_labels(labels)
    figures: dict[str, Any] = {"rows": count, "columns": x.shape[1], "entries": x.nnz}
    figures |= {"leaves": len(space.terminals), "bytes of features": x.nnz * 8}
    for threads in (1, 2):
        head = SparseLinearHead(x.shape[1], space)
        with Peak() as peak:
            found = timed(lambda head=head: fit_head(head, rows, 1 / COST), threads)
        figures[f"per-parent, {threads} threads"] = {**found, "peak MB": peak.most >> 20}
    with Peak() as peak:
        fold = rows_of_slope(head, rows, 0)
        found = timed(lambda: out_of_fold(head, rows, [fold], 1 / COST))
    figures["per-parent, with its slope"] = {**found, "peak MB": peak.most >> 20}
    figures["slope"] = round(float(head.slope), 2)
    figures["weights MB"] = (head.values.nbytes + head.slots.nbytes) >> 20
    answers = []

    def predict() -> None:
        for part in torch.arange(len(held)).split(1000):
            output = head(held.take(part))
            answers.append(head.link.log_masses(output.float_logits).argmax(dim=1))

    figures["predict 5,000"] = timed(predict)
    figures["exact"] = float((torch.cat(answers).numpy() == truth).mean())
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help="NAME=FILE")
    parser.add_argument("--rows", type=int, default=200_000)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"tables": {}}
    for one in arguments.tables:
        name, _, path = one.partition("=")
        figures["tables"][name] = table(path)
        print(name, figures["tables"][name], flush=True)
    if arguments.rows:
        figures["many"] = many(arguments.rows)
        print(figures["many"], flush=True)
    named = " ".join(f"{one.partition('=')[0]}=FILE" for one in arguments.tables)
    write("linear", figures, f"python benchmarks/bench_linear.py {named}")
