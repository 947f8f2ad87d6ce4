"""What a memory costs in training: an epoch of it beside an epoch of the plain MLP, in one run.

    python benchmarks/bench_neighbors_cost.py --data ../shared/data/hmc

Three trainings of every set take turns, epoch by epoch, so that a busy machine slows all alike:

    mlp        the paper's network with cross entropy
    same       the same network with a neighbor head and 1,024 candidates per step
    recipe     the recipe "neighbors", wider and with joint heads

Seconds are medians over the epochs. Predicting is that of the test rows, in milliseconds per row.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from bench_neighbors import load
from hierlearn.pipeline import Pipeline
from hierlearn.training.inference import memorize
from hierlearn.training.prepare import prepare
from hierlearn.training.settings import Plan
from hierlearn.training.solvers.gradient import Trainer
from machine import write

COMMAND = "python benchmarks/bench_neighbors_cost.py --data ../shared/data/hmc"
PLANS: dict[str, dict[str, Any]] = {
    "mlp": {"loss": "bce"},
    "same": {"loss": "bce", "head": "neighbors", "head_options": {"candidates": 1024}},
    "recipe": {"recipe": "neighbors"},
}


def run_set(name: str, folder: Path, epochs: int, device: torch.device) -> dict[str, Any]:
    """Return seconds per epoch and milliseconds per predicted row of every training."""
    dataset = load(name, folder)
    rows, test = dataset.split("train"), dataset.split("test")
    trainers: dict[str, Trainer] = {}
    pipelines: dict[str, Pipeline] = {}
    seconds: dict[str, list[float]] = {key: [] for key in PLANS}
    for key, plan in PLANS.items():
        settings = {"epochs": epochs + 1, "device": device.type}
        prepared = prepare(rows, Plan(**plan, settings=settings), device)
        pipelines[key] = Pipeline.from_prepared(prepared)
        trainers[key] = Trainer(
            prepared.network, prepared.loss, prepared.rows, prepared.decision.settings
        )
        trainers[key].on_epoch = lambda record, key=key: seconds[key].append(record["seconds"])  # type: ignore[misc]
    for _ in range(epochs + 1):
        for trainer in trainers.values():
            trainer.train_epoch()
    found: dict[str, Any] = {"rows": len(rows), "classes": len(dataset.hierarchy)}
    for key, pipeline in pipelines.items():
        memorize(pipeline.network, trainers[key].rows)
        begun = time.perf_counter()
        pipeline.probabilities(test.inputs)
        per_row = (time.perf_counter() - begun) / len(test) * 1000
        median = statistics.median(seconds[key][1:])
        found[key] = {"seconds_per_epoch": median, "milliseconds_per_predicted_row": per_row}
    for key in ("same", "recipe"):
        found[key]["times_mlp"] = (
            found[key]["seconds_per_epoch"] / found["mlp"]["seconds_per_epoch"]
        )
    return found


def main() -> None:
    """Run both sets, and write results/neighbors_cost.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the ARFF files")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    found = {}
    for name in ("diatoms", "imclef07d"):
        found[name] = run_set(name, given.data, given.epochs, torch.device(given.device))
        print(name, found[name], flush=True)
    gpu = given.device != "cpu"
    write("neighbors_cost" + "_gpu" * gpu, found, COMMAND + " --device cuda" * gpu)


if __name__ == "__main__":
    main()
