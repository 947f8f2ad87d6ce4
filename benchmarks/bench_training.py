"""What training costs relative to a plain PyTorch loop, ensembles, and prediction.

The plain loop is what a user of torch would write: two linear layers, ReLU, dropout, AdamW,
binary cross entropy, batches by a random index. Epochs of both alternate, so that a busy moment of
the machine affects both; medians and their ratio. On Diatoms if its files are there (environment
variable HIERLEARN_DATA), else on random rows of the same shape.
Run with ``python benchmarks/bench_training.py``; the figures go to results/training.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hierlearn.datasets import Dataset, load_dataset
from hierlearn.errors import HierlearnError
from hierlearn.pipeline import Pipeline
from hierlearn.training import Plan
from hierlearn.training.prepare import prepare
from hierlearn.training.solvers.gradient import Trainer
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 128
CPU = torch.device("cpu")


def diatoms() -> tuple[Dataset, str]:
    """Return Diatoms, or rows of its shape."""
    try:
        return load_dataset("diatoms"), "diatoms"
    except HierlearnError:
        made = load_dataset("synthetic", rows=2065, features=371)
        return made, "random rows of the shape of diatoms"


def trainer(dataset: Dataset, loss: str, ensemble_size: int = 1) -> Trainer:
    """Return a trainer of many epochs, each call of train_epoch trains one of them."""
    settings = {
        "epochs": 1000,
        "ensemble_size": ensemble_size,
        "batch_size": BATCH,
        "device": "cpu",
    }
    prepared = prepare(dataset, Plan(loss=loss, settings=settings), CPU)
    return Trainer(prepared.network, prepared.loss, prepared.rows, prepared.decision.settings)


def plain_loop(reference: Trainer) -> Callable[[], None]:
    """Return an epoch of the same training in plain PyTorch, with cross entropy."""
    inputs: Any = reference.rows.inputs
    targets = reference.rows.targets(torch.arange(len(inputs))).float()
    network = nn.Sequential(
        nn.Linear(inputs.shape[1], 800),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(800, targets.shape[1]),
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.0)

    def epoch() -> None:
        for index in torch.randperm(len(inputs)).split(BATCH):
            loss = binary_cross_entropy_with_logits(network(inputs[index]), targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def alternate(epochs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each; all alternate."""
    times: dict[str, list[float]] = {name: [] for name in epochs}
    for run in epochs.values():
        run()
    for _ in range(rounds):
        for name, run in epochs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(runs) for name, runs in times.items()}


def epochs(dataset: Dataset, rounds: int) -> dict[str, Any]:
    """Time an epoch of each loss and of the plain loop."""
    runs = {name: trainer(dataset, name) for name in ("bce", "hcl", "mcloss", "leaf-ce")}
    steps: dict[str, Callable[[], object]] = {"plain PyTorch, bce": plain_loop(runs["bce"])}
    steps |= {name: one.train_epoch for name, one in runs.items()}
    found = alternate(steps, rounds)
    base = found["plain PyTorch, bce"]
    return {
        name: {"milliseconds": round(1e3 * value, 2), "ratio": round(value / base, 3)}
        for name, value in found.items()
    }


def ensembles(dataset: Dataset, rounds: int) -> dict[str, Any]:
    """Time an epoch of an ensemble of ten relative to one network."""
    found = {}
    for loss in ("bce", "hcl"):
        one, ten = trainer(dataset, loss), trainer(dataset, loss, ensemble_size=10)
        pair = alternate({"one": one.train_epoch, "ten": ten.train_epoch}, rounds)
        found[loss] = {
            "milliseconds": {name: round(1e3 * value, 2) for name, value in pair.items()},
            "ten_cost_as_many_single_ones": round(pair["ten"] / pair["one"], 2),
        }
    return found


def prediction(dataset: Dataset, rows: int, rounds: int) -> dict[str, Any]:
    """Time the probabilities of many rows relative to their matmuls alone."""
    prepared = prepare(dataset, Plan(loss="bce", settings={"device": "cpu"}), CPU)
    pipeline = Pipeline.from_prepared(prepared)
    first, last = (value.detach() for value in prepared.network.parameters() if value.dim() == 2)
    inputs = np.random.default_rng(0).normal(size=(rows, len(first))).astype(np.float32)
    tensor = torch.from_numpy(inputs)

    def matmuls() -> None:
        for part in tensor.split(4096):
            part @ first @ last

    pair = alternate(
        {"matmuls": matmuls, "probabilities": lambda: list(pipeline.stream_probabilities(inputs))},
        rounds,
    )
    return {
        "rows": rows,
        "seconds": {name: round(value, 3) for name, value in pair.items()},
        "ratio": round(pair["probabilities"] / pair["matmuls"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="try it out; write nothing")
    small = parser.parse_args().small
    dataset, what = diatoms()
    figures = {
        "data": what,
        "an_epoch": epochs(dataset, 2 if small else 21),
        "ten_seeds": ensembles(dataset, 1 if small else 9),
        "predicting": prediction(dataset, 2_000 if small else 100_000, 1 if small else 5),
    }
    print(figures)
    if not small:
        path = write("training", figures, "python benchmarks/bench_training.py")
        print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
