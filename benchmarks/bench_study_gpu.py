"""What CUDA graphs save in training on a GPU: the paper's tables, and ten seeds over one.

The rows of Tables 1 and 2 are trained with ten seeds and evaluated, one after the other,
with the files of both datasets read in between; pages are not written. An epoch of ten stacked
networks is then compared with an epoch of one, both warm.

    python benchmarks/bench_study_gpu.py --data-dir FOLDER

Without graphs one epoch in four is trained, unless ``--plain-part`` says otherwise; seconds of
steps can be compared, figures of accuracy cannot. The figures go to results/study_gpu.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hierlearn.datasets import Dataset, load_dataset
from hierlearn.lab import paper
from hierlearn.lab.runner import Task, run_task
from hierlearn.training import Plan
from hierlearn.training.prepare import prepare
from hierlearn.training.solvers.gradient import Trainer
from machine import write

SHOWN = ("hit@1", "mrr", "hier-dist")
ROWS = [row.candidate for row in paper.ROWS if row.tables != (0,)]
RATIOS = ("bce", "hcl-paper", "hxe", "leaf-ce", "hcl")


def tables(folder: Path, device: str, seeds: int, part: float, graphs: bool) -> Any:
    """Train and evaluate the rows of both tables; return seconds and figures.

    Args:
        folder: of the data.
        device: where to train.
        seeds: networks per row.
        part: of the paper's epochs.
        graphs: whether CUDA graphs are used.
    """
    begun = time.perf_counter()
    rows = {}
    for name, usual in paper.EPOCHS.items():
        dataset = load_dataset(name, data_dir=folder)
        settings = {"epochs": round(part * usual), "cuda_graphs": graphs, "device": device}
        protocol = paper.protocol(name, seeds=seeds, settings=settings)
        for candidate in ROWS:
            start = time.perf_counter()
            task = Task(
                candidate,
                protocol.plan(candidate),
                protocol.metrics,
                tuple(range(seeds)),
                device,
            )
            result = run_task(dataset, task)
            spent = [one["seconds"] for one in result.log]
            steps = result.log[-1]["step"] / len(spent)
            found = {
                "seconds": round(time.perf_counter() - start, 2),
                "seconds_of_epochs": round(sum(spent), 2),
                "milliseconds_of_a_step": round(1e3 * statistics.median(spent) / steps, 3),
            }
            for metric in SHOWN:
                values = [run["test"][metric] for run in result.runs]
                found[metric] = round(statistics.mean(values), 4)
                found[f"{metric}, deviation"] = round(statistics.stdev(values), 4)
            rows[f"{name}, {candidate.key}"] = found
            print(graphs, name, candidate.key, found, flush=True)
    total = round(time.perf_counter() - begun, 1)
    return {"part_of_epochs": part, "seconds_with_reading": total, "rows": rows}


def epoch_seconds(trainer: Trainer, rounds: int) -> float:
    """Return the median seconds of an epoch of a warm training."""
    for _ in range(4):
        trainer.train_epoch()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        trainer.train_epoch()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ten_over_one(dataset: Dataset, device: str, rounds: int, graphs: bool) -> dict[str, Any]:
    """Compare an epoch of ten stacked networks with one of a single network."""
    found = {}
    for loss in RATIOS:
        seconds = {}
        for size in (1, 10):
            settings = {**paper.SETTINGS, "epochs": 1000, "ensemble_size": size, "device": device}
            network = {"network": "mlp", "network_options": paper.NETWORK["options"]}
            plan = Plan(loss=loss, settings={**settings, "cuda_graphs": graphs}, **network)
            ready = prepare(replace(dataset, splits={}), plan, torch.device(device))
            trainer = Trainer(ready.network, ready.loss, ready.rows, ready.decision.settings)
            seconds[size] = epoch_seconds(trainer, rounds)
        found[loss] = {
            "milliseconds_of_a_step": {
                str(size): round(1e3 * value / trainer.steps_per_epoch, 3)
                for size, value in seconds.items()
            },
            "ten_over_one": round(seconds[10] / seconds[1], 2),
        }
        print(graphs, loss, found[loss], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--plain-part", type=float, default=0.25, help="of epochs without graphs")
    parser.add_argument("--small", action="store_true", help="try it out; write nothing")
    given = parser.parse_args()
    diatoms = load_dataset("diatoms", data_dir=given.data_dir)
    figures: dict[str, Any] = {}
    for name, graphs in (("with_graphs", True), ("without_graphs", False)):
        part = 0.02 if given.small else 1.0 if graphs else given.plain_part
        figures[name] = {
            "tables": tables(given.data_dir, given.device, given.seeds, part, graphs),
            "ten_over_one_on_diatoms": ten_over_one(
                diatoms, given.device, 1 if given.small else 15, graphs
            ),
        }
        print(name, figures[name]["tables"]["seconds_with_reading"], "s", flush=True)
    if not given.small:
        write("study_gpu", figures, "python benchmarks/bench_study_gpu.py --data-dir FOLDER")


if __name__ == "__main__":
    main()
