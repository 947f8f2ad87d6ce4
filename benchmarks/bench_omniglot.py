"""A small CNN on Omniglot: the neighbor head beside flat softmax, and new characters.

    python benchmarks/bench_omniglot.py --seeds 5 [--data ../shared/data/omniglot]

2,720 drawings, 28 x 28 pixels, of 136 characters in 5 alphabets; twelve people train, three
validate and five test, and no hand is in two splits. All methods share the CNN, the augmentation
and the optimizer; learning rate and epochs are chosen for each from the same grid, by accuracy on
the validation rows with seed 0. Test rows are read once, at the end.

Seen: all characters are trained, and tested on the drawings of the test people.

New: 20 % of the characters, drawn by the seed, are left out of training. The neighbor head then
remembers their drawings of the training people, without training. A softmax has no output for a
new class; beside its plain answer, wrong on all of them, its penultimate features are compared
with the mean of each class (old and new, of the same drawings), and with the nearest drawing.
Tested on all characters, on the old ones, and on the new ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets import Images
from hierlearn.lab.corpora.omniglot import load_omniglot
from hierlearn.pipeline.remember import remember
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training.settings import Plan
from machine import write

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.pipeline import Pipeline

COMMAND = "python benchmarks/bench_omniglot.py --seeds 5 --jobs 14"
SIDE = 28
NEW = 0.2  # of the characters
AUGMENT = {"augment": "light"}
METHODS: dict[str, dict[str, Any]] = {
    "neighbors": {"recipe": "quick"},
    "neighbors, joint": {"recipe": "quick", "joint": {"leaf-ce": 1.0}},
    "softmax": {"loss": "leaf-ce", "network": "cnn"},
    "hcl": {"recipe": "hcl", "network": "cnn"},  # what to use by default, beside the neighbor head
}
EPOCHS = (30, 60, 120)
RATES = (1e-3, 3e-3)
QUIET = Reporting(bar=False)


def load(folder: str | None) -> Dataset:
    """Return the drawings as images, dark on white."""
    dataset = load_omniglot(SIDE, data_dir=folder)
    ink: Any = dataset.inputs
    pixels = (255 * (1 - ink)).round().astype(np.uint8).reshape(-1, SIDE, SIDE)
    return replace(dataset, inputs=Images.from_array(pixels, dataset.ids))


def fit(rows: Dataset, method: str, choice: dict[str, Any], seed: int, device: str) -> Pipeline:
    """Train a method on all of some rows."""
    settings = {**choice, "seed": seed, "device": device}
    plan = Plan(
        **METHODS[method],
        network_options=AUGMENT,
        preprocessing_options={"image_size": SIDE},
        settings=settings,
    )
    return train(replace(rows, splits={}), plan, reporting=QUIET)


def truth(rows: Dataset) -> np.ndarray:
    """Return the character of each row, as its path."""
    return np.array([row[0] for row in rows.labels])


def answers(pipeline: Pipeline, rows: Dataset) -> np.ndarray:
    """Return the most probable character of each row, as its path."""
    leaves = np.flatnonzero(np.asarray(pipeline.hierarchy.levels) == 2)
    p = pipeline.probabilities(rows.inputs)[:, leaves]
    return np.array(pipeline.hierarchy.names)[leaves[p.argmax(dim=1).numpy()]]


def alphabets(paths: np.ndarray) -> np.ndarray:
    """Return the alphabet of each character."""
    return np.array([path.partition("/")[0] for path in paths])


def accuracy(found: np.ndarray, rows: Dataset) -> dict[str, float]:
    """Return how often the character and the alphabet are right."""
    wanted = truth(rows)
    return {
        "character": float((found == wanted).mean()),
        "alphabet": float((alphabets(found) == alphabets(wanted)).mean()),
    }


@torch.no_grad()
def features(pipeline: Pipeline, rows: Dataset) -> torch.Tensor:
    """Return (N, F) the penultimate features of rows."""
    network: Any = pipeline.network.eval()
    found: torch.Tensor = network.encoder(pipeline.rows(rows.inputs))
    return found.double().cpu()


def by_class_mean(pipeline: Pipeline, known: Dataset, rows: Dataset) -> np.ndarray:
    """Return the character with the nearest mean of features."""
    names, number = np.unique(truth(known), return_inverse=True)
    held = features(pipeline, known)
    means = torch.stack(
        [held[torch.from_numpy(number == one)].mean(0) for one in range(len(names))]
    )
    return names[torch.cdist(features(pipeline, rows), means).argmin(dim=1).numpy()]


def by_nearest(pipeline: Pipeline, known: Dataset, rows: Dataset) -> np.ndarray:
    """Return the character of the drawing with the nearest features."""
    distances = torch.cdist(features(pipeline, rows), features(pipeline, known))
    return truth(known)[distances.argmin(dim=1).numpy()]


def validated(dataset: Dataset, method: str, choice: dict[str, Any], device: str) -> Any:
    """Return a choice with its accuracy on the validation rows."""
    pipeline = fit(dataset.split("train"), method, choice, 0, device)
    valid = dataset.split("valid")
    return {**choice, "valid": accuracy(answers(pipeline, valid), valid)}


def choose(dataset: Dataset, epochs: tuple[int, ...], device: str, pool: Executor) -> Any:
    """Return the choice of every method by its validation rows, and all that was tried."""
    grid = [{"epochs": count, "learning_rate": rate} for count, rate in product(epochs, RATES)]
    jobs = {
        method: [pool.submit(validated, dataset, method, one, device) for one in grid]
        for method in METHODS
    }
    found: dict[str, Any] = {}
    for method, running in jobs.items():
        tried = [job.result() for job in running]
        print(method, *tried, sep="\n", flush=True)
        best = max(tried, key=lambda one: one["valid"]["character"])
        choice = {name: best[name] for name in ("epochs", "learning_rate")}
        found[method] = {"choice": choice, "tried": tried}
    return found


def run_seen(dataset: Dataset, method: str, choice: dict[str, Any], seed: int, device: str) -> Any:
    """Return the accuracy on the test people, all characters trained."""
    begun = time.perf_counter()
    pipeline = fit(dataset.split("train"), method, choice, seed, device)
    seconds = time.perf_counter() - begun
    test = dataset.split("test")
    return {**accuracy(answers(pipeline, test), test), "seconds": seconds}


def run_new(dataset: Dataset, choices: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
    """Return the accuracies where a part of the characters is only remembered."""
    rows, test = dataset.split("train"), dataset.split("test")
    characters = np.unique(truth(rows))
    drawn = np.random.default_rng(seed).permutation(characters)[: round(NEW * len(characters))]
    is_new, asks_new = np.isin(truth(rows), drawn), np.isin(truth(test), drawn)
    old, added = rows.take(~is_new), rows.take(is_new)
    decided, seconds = {}, 0.0
    for method in ("neighbors", "neighbors, joint"):
        memory = fit(old, method, choices[method]["choice"], seed, device)
        begun = time.perf_counter()
        remember(memory, added.inputs, added.labels, hierarchy=dataset.hierarchy)
        seconds = time.perf_counter() - begun
        decided[f"{method}, remembered"] = answers(memory, test)
    softmax = fit(old, "softmax", choices["softmax"]["choice"], seed, device)
    decided |= {
        "softmax, class mean of features": by_class_mean(softmax, rows, test),
        "softmax, nearest features": by_nearest(softmax, rows, test),
        "softmax alone": answers(softmax, test),
    }
    parts = {"all": test, "old": test.take(~asks_new), "new": test.take(asks_new)}
    masks = {"all": np.ones(len(test), dtype=bool), "old": ~asks_new, "new": asks_new}
    found: dict[str, Any] = {
        name: {part: accuracy(one[masks[part]], parts[part]) for part in parts}
        for name, one in decided.items()
    }
    found["remember_seconds"] = seconds
    found["new_characters"], found["remembered_rows"] = len(drawn), len(added)
    return found


def summarize(runs: list[Any]) -> Any:
    """Return mean, standard deviation and values of every figure of several runs."""
    first = runs[0]
    if isinstance(first, dict):
        return {key: summarize([run[key] for run in runs]) for key in first}
    spread = statistics.stdev(runs) if len(runs) > 1 else 0.0
    return {"mean": statistics.mean(runs), "std": spread, "by_seed": runs}


def main() -> None:
    """Choose on validation rows, run both protocols, and write results/omniglot.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None, help="folder of the zip file; else HIERLEARN_DATA")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", default=",".join(map(str, EPOCHS)), help="to choose from")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    parser.add_argument("--name", default="omniglot", help="of the file of results")
    given = parser.parse_args()
    dataset = load(given.data)
    epochs = tuple(int(one) for one in given.epochs.split(","))
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        choices = choose(dataset, epochs, given.device, pool)
        seen = {
            method: [
                pool.submit(run_seen, dataset, method, chosen["choice"], seed, given.device)
                for seed in range(given.seeds)
            ]
            for method, chosen in choices.items()
        }
        new = [
            pool.submit(run_new, dataset, choices, seed, given.device)
            for seed in range(given.seeds)
        ]
        found = {
            "seeds": given.seeds,
            "jobs": given.jobs,
            "side": SIDE,
            "rows": {name: len(rows) for name, rows in dataset.splits.items()},
            "augment": AUGMENT["augment"],
            "choices": choices,
            "seen": {
                method: summarize([job.result() for job in jobs]) for method, jobs in seen.items()
            },
            "new": summarize([job.result() for job in new]),
        }
    write(given.name, found, COMMAND)


if __name__ == "__main__":
    main()
