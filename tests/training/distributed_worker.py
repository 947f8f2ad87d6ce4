"""Trainings that several processes share. A script for torchrun.

    torchrun --nproc-per-node 2 distributed_worker.py FOLDER CASE... [--die RANK STEP HOW]

The process RANK dies after STEP steps of the first attempt, by a signal or by an exit.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import distributed

from hierlearn.datasets import Images
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.settings import Plan
from hierlearn.training.solvers.gradient import Trainer
from training.datasets import neighbor_plan, partial_problem, plan, problem, texts

SOFT = {"floor": 0.0, "link": "softmax", "scope": "ancestors", "normalize": "mean"}
WEIGHTS = np.random.default_rng(0).uniform(0, 2, 60)


def noisy(plan, **options):
    """Return a plan with more options of its network."""
    return replace(plan, network_options={**plan.network_options, **options})


def pictures():
    """Return small images of noise with the labels of the problem."""
    dataset = problem()
    drawn = np.random.default_rng(0).integers(0, 256, (len(dataset), 8, 8), dtype=np.uint8)
    return replace(dataset, inputs=Images.from_array(drawn), feature_names=())


def image_plan(loss, head=None, **settings):
    """Return a plan of a small CNN on images that are changed at random."""
    return Plan(
        loss=loss,
        network="cnn",
        network_options={"width": 8, "depth": 2, "augment": "light"},
        head=head,
        preprocessing_options={"image_size": 8},
        settings={"batch_size": 7, "epochs": 3, "device": "cpu", **settings},
    )


# 36 rows in batches of 7: shares of 4 and 3, and one row at the end that the second process lacks.
CASES = {
    "cross entropy": (problem, plan("bce", batch_size=7), None),
    "curriculum of batches": (problem, plan("hcl", batch_size=7, max_grad_norm=0.05), None),
    "curriculum of epochs, stacked, stopping early": (
        problem,
        plan(
            "hcl",
            options=SOFT,
            batch_size=7,
            ensemble_size=2,
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
    "a loss of rows, some without a label": (
        partial_problem,
        plan("leaf-ce", batch_size=7, unlabeled_descendants="ignore"),
        None,
    ),
    "a teacher, stacked": (
        partial_problem,
        plan("teacher", batch_size=7, ensemble_size=2, epochs=6, unlabeled_descendants="ignore"),
        WEIGHTS,
    ),
    "weights of rows": (problem, plan("mixed", batch_size=7), WEIGHTS),
    "weights of rows in a curriculum": (problem, plan("hcl", batch_size=7), WEIGHTS),
    "sparse rows": (texts, plan("leaf-ce", network="token-bag", batch_size=7), None),
    "neighbors": (problem, neighbor_plan(batch_size=7, ensemble_size=2), WEIGHTS),
    "neighbors, stopping early": (
        problem,
        neighbor_plan(batch_size=7, epochs=8, patience=1, metric="hit@1", learning_rate=0.02),
        None,
    ),
    # Some rows have no label: a mean over rows divides by another share of the batch.
    "joint heads": (
        partial_problem,
        neighbor_plan(batch_size=7, joint={"soft-labels": 3.0}, head={"learn_scale": True}),
        None,
    ),
    "joint heads, stacked, what lies below is unknown": (
        partial_problem,
        neighbor_plan(
            batch_size=7,
            joint={"leaf-ce": 1.0, "mcloss": 2.0},
            ensemble_size=2,
            unlabeled_descendants="ignore",
        ),
        None,
    ),
}
CASES |= {
    "batches in parts": (partial_problem, plan("leaf-ce", batch_size=7, accumulate=3), None),
    "batches in parts, joint heads, noise": (
        problem,
        neighbor_plan(
            batch_size=7, accumulate=4, joint={"soft-labels": 3.0}, dropout=0.3, ensemble_size=2
        ),
        WEIGHTS,
    ),
    "levels one after another": (
        partial_problem,
        plan(
            "bce",
            network="hmc-lmlp",
            batch_size=7,
            dropout=0.3,
            epochs=4,
            unlabeled_descendants="ignore",
        ),
        None,
    ),
    "levels one after another, batches in parts, stacked, stopping early": (
        problem,
        plan(
            "focal",
            network="hmc-lmlp",
            batch_size=7,
            accumulate=2,
            ensemble_size=2,
            epochs=8,
            patience=1,
            metric="hit@1",
            learning_rate=0.02,
        ),
        WEIGHTS,
    ),
    "early heads": (
        partial_problem,
        plan("leaf-ce", network="early-heads", batch_size=7, dropout=0.3, ensemble_size=2),
        None,
    ),
    "noise": (problem, plan("hcl", dropout=0.3, batch_size=7, epochs=4), None),
    "noise, stacked": (problem, plan("hcl", dropout=0.5, batch_size=7, ensemble_size=2), None),
    "noise of candidates": (
        problem,
        noisy(
            neighbor_plan(batch_size=7, dropout=0.3, ensemble_size=2),
            input_dropout=0.2,
            input_noise=0.1,
        ),
        WEIGHTS,
    ),
    "noise of words": (
        texts,
        plan("leaf-ce", network="token-bag", batch_size=7, dropout=0.3),
        None,
    ),
}


CASES |= {
    "images": (pictures, image_plan("leaf-ce"), None),
    "images, a memory, stacked": (pictures, image_plan("bce", "neighbors", ensemble_size=2), None),
    "images, batches in parts": (pictures, image_plan("hcl", accumulate=2), WEIGHTS),
}


def run(case, folder, **options):
    """Train a case into a folder."""
    make, chosen, weights = CASES[case]
    return train(
        make(),
        chosen,
        out=folder / case,
        weights=weights,
        reporting=Reporting(bar=False),
        **options,
    )


def die_at(rank, step, how):
    """Let a process end without a word before a step."""
    take = Trainer.train_step

    def train_step(self, *given):
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        if self.processes.rank == rank and self.step == step and not again:
            os.kill(os.getpid(), signal.SIGKILL) if how == "signal" else os._exit(7)
        take(self, *given)

    Trainer.train_step = train_step


def main():
    """Run the cases named on the command line."""
    words = sys.argv[1:]
    if "--die" in words:
        place = words.index("--die")
        rank, step, how = words[place + 1 :]
        die_at(int(rank), int(step), how)
        words = words[:place]
    for case in words[1:]:
        run(case, Path(words[0]))
        assert not distributed.is_initialized()  # every training joins the others and leaves them


if __name__ == "__main__":
    main()
