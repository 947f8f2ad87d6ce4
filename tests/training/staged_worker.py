"""A training in stages in a process that is killed. A script.

    python staged_worker.py FOLDER STEP

It kills itself after some step, of those of all attempts together.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from training.datasets import partial_problem, plan

CHOSEN = plan(
    "bce",
    network="hmc-lmlp",
    dropout=0.3,
    weight_decay=0.1,
    epochs=6,  # of six steps each, two per level
    checkpoint_every=2,
    ensemble_size=2,
)


def main():
    """Train until the step."""
    folder, moment = Path(sys.argv[1]), int(sys.argv[2])

    def die(step, steps):
        if step == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    reporting = Reporting(bar=False, on_step=die)
    train(partial_problem(), CHOSEN, out=folder, resume=folder.exists(), reporting=reporting)


if __name__ == "__main__":
    main()
