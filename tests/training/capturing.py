"""Trainings with and without captured steps, on any device."""

from hierlearn.training.prepare import PrepareOptions, prepare
from hierlearn.training.solvers.captured import CapturedSteps
from hierlearn.training.solvers.gradient import Trainer
from training.datasets import without_times


def trainer_on(device, dataset, chosen, *, weights=None, network=None, loss=None, processes=None):
    ready = prepare(dataset, chosen, device, PrepareOptions(weights=weights, network=network))
    return Trainer(
        ready.network,
        ready.loss if loss is None else loss(ready.label_space),
        ready.rows,
        ready.decision.settings,
        valid=ready.valid,
        read=ready.read,
        processes=processes,
    )


def train(trainer, recorder=None):
    """Train, and return the records of the epochs."""
    records = []
    trainer.on_epoch = records.append
    if recorder is not None:
        trainer.captured = CapturedSteps(recorder(trainer))
    trainer.train()
    return without_times(records)
