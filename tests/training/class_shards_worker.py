"""Trainings whose last layer is shared out by classes. A script for torchrun.

torchrun --nproc-per-node 2 class_shards_worker.py FOLDER [CASE --die|--break RANK STEP]
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hierlearn import Dataset, Hierarchy
from hierlearn.pipeline import train
from hierlearn.pipeline.reporting import Reporting
from hierlearn.training.trainer import Trainer
from training.datasets import partial_problem, plan, problem, texts

WEIGHTS = np.random.default_rng(0).uniform(0, 2, 60)
STOP = 13  # steps after which some trainings end; the last checkpoint is of step 12
# "sea" and "pet" share two classes, which lie below different top classes.
DAG = Hierarchy.from_edges(
    [
        ("animal", "sea"),
        ("animal", "pet"),
        ("sea", "fish"),
        ("pet", "fish"),
        ("pet", "dog"),
        ("thing", "boat"),
        ("sea", "boat"),
        ("fish", "carp"),
        ("thing", "car"),
    ]
)


def shared_classes(rows=60):
    """Return rows of a DAG, some with two labels and some with none."""
    draw = np.random.default_rng(0)
    names = DAG.names
    labels = [
        [names[k] for k in draw.choice(len(names), draw.integers(0, 3), replace=False)]
        for _ in range(rows)
    ]
    inputs = draw.standard_normal((rows, 4)).astype(np.float32)
    splits = {"train": np.arange(48), "valid": np.arange(48, rows)}
    return Dataset(inputs, labels, DAG, splits, "dag", tuple("wxyz"))


# 36 or 48 rows in batches of 7: shares of 4 and 3, and a last batch with rows of one process only.
CASES = {
    "hcl": (problem, plan("hcl", batch_size=7, max_grad_norm=0.05), None),
    "hcl-paper, noise": (problem, plan("hcl-paper", dropout=0.3, batch_size=7, epochs=4), None),
    "hcl of epochs, stopping early": (
        problem,
        plan(
            "hcl",
            options={"curriculum": "epoch"},
            batch_size=7,
            epochs=8,
            patience=1,
            metric="hit@1",
            learning_rate=0.02,
        ),
        None,
    ),
    "what lies below is unknown": (
        partial_problem,
        plan("hcl", batch_size=7, unlabeled_descendants="ignore"),
        None,
    ),
    "rows without a label, weights": (
        partial_problem,
        plan("leaf-ce", batch_size=7, unlabeled_descendants="ignore"),
        WEIGHTS,
    ),
    "a DAG, hcl": (shared_classes, plan("hcl", batch_size=7), None),
    "a DAG, leaf-ce": (shared_classes, plan("leaf-ce", batch_size=7), None),
    "a DAG, mcloss": (shared_classes, plan("mcloss", batch_size=7), WEIGHTS),
    "a linear network": (problem, plan("bce", network="linear", batch_size=7), None),
    "words": (texts, plan("hxe", network="token-bag", batch_size=7), None),
    "bf16": (problem, plan("hcl", batch_size=7, precision="bf16"), None),
    "stopped by one, resumed by two": (problem, plan("bce", batch_size=7, epochs=4), None),
    "stopped by two, resumed by one": (
        problem,
        plan("hcl", batch_size=7, epochs=4, checkpoint_every=5),
        None,
    ),
}


class StopError(Exception):
    """The end of a training that is resumed elsewhere."""


def stop(step, steps):
    del steps
    if step == STOP:
        raise StopError


def run(case, out, parallel="classes", *, stops=False, resume=False):
    """Train a case into a folder."""
    make, chosen, weights = CASES[case]
    chosen = replace(chosen, settings={**chosen.settings, "parallel": parallel})
    reporting = Reporting(bar=False, on_step=stop if stops else None)
    try:
        return train(
            make(), chosen, out=out / case, weights=weights, reporting=reporting, resume=resume
        )
    except StopError:
        return None


def die_at(rank, step):
    """Let a process be killed before a step of the first attempt."""
    take = Trainer.train_step

    def train_step(self, *given):
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        if self.processes.rank == rank and self.step == step and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        take(self, *given)

    Trainer.train_step = train_step


def break_at(rank, step):
    """Let the weights of one process become NaN before a step."""
    take = Trainer.train_step

    def train_step(self, *given):
        take(self, *given)
        if self.processes.rank == rank and self.step == step:
            with torch.no_grad():
                self.layer[1][-1] = float("nan")

    Trainer.train_step = train_step


def main():
    """Run all cases, or one of them in which something happens to a process."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        case, what, rank, step = sys.argv[2:]
        {"--die": die_at, "--break": break_at}[what](int(rank), int(step))
        run(case, folder)
        return
    for case in CASES:
        run(
            case,
            folder,
            stops=case.startswith("stopped by two"),
            resume=case.startswith("stopped by one"),
        )


if __name__ == "__main__":
    main()
