"""A training on Parquet files that several processes share. A script for torchrun.

    torchrun --nproc-per-node 2 parquet_worker.py ROWS OUT [--die RANK STEP HOW]

Every process notes which bytes of the files it read in each epoch, in ``OUT/reads-RANK.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import counted_files
from hierlearn.datasets import stream_table
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.settings import Plan
from hierlearn.training.solvers.gradient import Trainer
from training.distributed_worker import die_at

CLASSES = ["a/b", "a/c", "d", "d/e/f"]
SIZES = [400, 130, 260, 333]  # rows of each file
GROUPS = [50, 30, 64, 100]  # rows of its row groups
ROWS = sum(SIZES)
BATCH = 25


def write_files(folder):
    """Write files of rows with uneven row groups."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(5)
    for number, (rows, group) in enumerate(zip(SIZES, GROUPS, strict=True)):
        kinds = draw.integers(0, 4, rows)
        values = kinds[:, None] + draw.standard_normal((rows, 20))
        columns = {f"x{k}": values[:, k] for k in range(20)}
        columns["y"] = [CLASSES[kind] for kind in kinds]
        path = folder / f"part-{number}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=group, compression="none")
    return folder


def plan(**settings):
    """Return a small plan with dropout, so that noise matters."""
    chosen = {"batch_size": BATCH, "epochs": 3, "device": "cpu", "checkpoint_every": 4, **settings}
    options = {"width": 8, "dropout": 0.2}
    return Plan(
        loss="hcl", network="mlp", network_options=options, calibration=False, settings=chosen
    )


def note_reads(out):
    """Note the bytes that this process reads before the first epoch and in each epoch."""
    whole, reads = Trainer.train_epoch, []

    def train_epoch(self):
        reads.extend([] if reads else [counted_files.count()])
        counted_files.begin()
        whole(self)
        reads.append(counted_files.count())
        rank = self.processes.rank
        (out / f"reads-{rank}.json").write_text(json.dumps(reads))

    Trainer.train_epoch = train_epoch


def run(rows, out, window=150, **options):
    """Train on the files of a folder."""
    counted_files.register()
    dataset = stream_table(counted_files.address(rows), window=window, label="y")
    return train(dataset, plan(), out=out / "model", reporting=Reporting(bar=False), **options)


def main():
    """Run the training of the command line."""
    rows, out, *words = sys.argv[1:]
    if words:
        rank, step, how = words[1:]
        die_at(int(rank), int(step), how)
    note_reads(Path(out))
    run(Path(rows), Path(out))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
