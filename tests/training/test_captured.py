"""Captured steps end as plain ones do; what cannot be captured is trained without graphs.

On the CPU a recorder stands in that runs a step again instead of replaying a graph, so that the
decisions around it are tested everywhere; test_captured_gpu.py compares the graphs themselves.
"""

import numpy as np
import pytest
import torch

from hierlearn.losses.bce import BCELoss
from hierlearn.training.checkpoint import Checkpoint
from hierlearn.training.processes import Processes
from hierlearn.training.solvers import captured
from hierlearn.training.solvers.captured import (
    CapturedSteps,
    Snapshot,
    StepResult,
    unsupported_reason,
)
from training.capturing import train, trainer_on
from training.datasets import (
    CPU,
    assert_identical,
    neighbor_plan,
    partial_problem,
    plan,
    problem,
    state,
    texts,
)


@pytest.fixture(autouse=True)
def _capture_short_trainings(monkeypatch):
    monkeypatch.setattr(captured, "FEWEST", 1)


class Rerun:
    """Takes the recorded step again, with the rows that it is given then."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.recorded = self.plain = 0

    def run(self, step, *, strict=False):
        self.plain += 1
        if strict:
            self.check()
        return step()

    def check(self):
        pass

    def record(self, step):
        before = Snapshot(self.trainer)
        found = step()
        taken = StepResult(found.losses.clone(), clone(found.selection))
        before.restore()
        self.recorded += 1

        def replay():
            again = step()  # into the same memory, as a graph does
            taken.losses.copy_(again.losses)
            if taken.selection is not None:
                taken.selection.copy_(again.selection)

        return replay, taken


class WithOldRows(Rerun):
    """Replays the rows that it was recorded with."""

    def record(self, step):
        (rows,) = [one.cell_contents for one in step.__closure__ if is_index(one.cell_contents)]
        replay, taken = super().record(step)
        old = rows.clone()
        return lambda: (rows.copy_(old), replay()), taken


class WithoutUpdates(Rerun):
    """Replays everything but what the optimizer does."""

    def record(self, step):
        replay, taken = super().record(step)

        def forgetful():
            before = Snapshot(self.trainer)
            replay()
            before.restore()

        return forgetful, taken


class Failing(Rerun):
    def record(self, step):
        step()
        raise TypeError("no such stream")


class Waiting(Rerun):
    def check(self):
        raise RuntimeError("called a synchronizing operation")


def is_index(value):
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64


def clone(value):
    return None if value is None else value.clone()


def assert_same_selection(found, expected):
    assert (found is None) == (expected is None)
    assert expected is None or torch.equal(found, expected)


def both(chosen, recorder, dataset=None, **more):
    """Train with and without a recorder; compare all that they leave; return the first."""
    dataset = problem() if dataset is None else dataset
    one, other = (trainer_on(CPU, dataset, chosen, **more) for _ in range(2))
    assert train(one, recorder) == train(other)
    assert_identical(state(one), state(other))
    assert_identical(dict(one.loss.named_buffers()), dict(other.loss.named_buffers()))
    assert_same_selection(one.loss.selection, other.loss.selection)
    assert torch.equal(
        torch.stack(one.selections or [torch.zeros(1)]),
        torch.stack(other.selections or [torch.zeros(1)]),
    )
    return one


CASES = {
    "bce": plan("bce", epochs=6, dropout=0.3, warmup=0.3, max_grad_norm=0.05),
    "members": plan("bce", epochs=6, dropout=0.3, ensemble_size=3, schedule="linear"),
    "hcl": plan("hcl", epochs=6, dropout=0.3),
    "literal": plan("hcl", epochs=6, options={"floor": 0.0}, ensemble_size=2),
    "threshold": plan("hcl", epochs=6, options={"threshold": 6.0}),
    "teacher": plan("teacher", epochs=6),
    "stopping": plan("bce", epochs=12, patience=1, learning_rate=0.3, ensemble_size=3),
    "levels": plan("bce", network="hmc-lmlp", epochs=14, dropout=0.3, weight_decay=0.1),
    "mixed": plan("mixed", epochs=6, dropout=0.5),
}


@pytest.mark.filterwarnings("ignore::hierlearn.losses.CollapseWarning")
@pytest.mark.parametrize("name", CASES)
def test_replayed_steps_train_as_plain_ones(name):
    trainer = both(CASES[name], Rerun)
    assert trainer.captured.refusal is None
    # 36 rows: four batches of 8 and one of 4, each captured at its third.
    assert trainer.captured.replayed > trainer.step / 3
    assert trainer.captured.recorder.recorded >= 2


def test_masks_and_weights_of_rows_are_read_by_the_graph():
    chosen = plan("hcl", unlabeled_descendants="ignore", dropout=0.3, options={"link": "sigmoid"})
    weights = np.random.default_rng(0).uniform(0, 2, 60)
    trainer = both(chosen, Rerun, partial_problem(), weights=weights)
    assert trainer.captured.replayed


@pytest.mark.parametrize("recorder", [WithOldRows, WithoutUpdates, Failing, Waiting])
def test_what_does_not_replay_is_trained_plainly(recorder, caplog):
    caplog.set_level("DEBUG", logger="hierlearn")
    trainer = both(plan("hcl", dropout=0.3, ensemble_size=2, epochs=8), recorder)
    assert trainer.captured.replayed == 0
    assert trainer.captured.refusal is not None
    assert "without CUDA graphs: " + trainer.captured.refusal in caplog.text
    reasons = {Failing: "no such stream", Waiting: "a synchronizing operation"}
    assert reasons.get(recorder, "replayed steps differ") in trainer.captured.refusal


def test_it_tries_a_few_times_where_a_replay_differs():
    trainer = both(plan("bce", epochs=8), WithOldRows)
    assert trainer.captured.recorder.recorded == captured.ATTEMPTS


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_without_memory_for_copies_it_is_trained_plainly(copies, monkeypatch):
    made = []

    class Scarce(Snapshot):
        def __init__(self, trainer):
            made.append(trainer)
            if len(made) > copies:
                raise torch.OutOfMemoryError
            super().__init__(trainer)

    monkeypatch.setattr(captured, "Snapshot", Scarce)
    trainer = both(plan("bce", epochs=6, dropout=0.3), Rerun)
    assert "too little memory" in trainer.captured.refusal
    assert trainer.captured.replayed == 0
    assert len(made) == copies + 1


class Fading(BCELoss):
    """A loss that keeps the progress as a plain number."""

    factor = 1.0

    def set_progress(self, progress):
        self.factor = 1.0 - 0.5 * progress

    def compute(self, *given):
        return self.factor * super().compute(*given)


class Counting(BCELoss):
    """A loss that counts its epochs, up to a number of them."""

    epochs, last = 0, 1

    def end_epoch(self):
        self.epochs = min(self.epochs + 1, self.last)

    def compute(self, *given):
        return super().compute(*given) / (1 + self.epochs)


def test_progress_that_is_no_tensor_is_not_captured():
    trainer = both(plan(epochs=6), Rerun, loss=Fading)
    assert "progress" in trainer.captured.refusal
    assert trainer.captured.recorder.recorded == 0


def test_plain_values_that_change_between_epochs_are_captured_again():
    once = both(plan(epochs=6), Rerun, loss=Counting)
    assert once.captured.refusal is None
    assert once.captured.recorder.recorded == 3  # full batches twice, the last one once
    forever = both(plan(epochs=9), Rerun, loss=type("Forever", (Counting,), {"last": 99}))
    assert "plain values" in forever.captured.refusal


def test_what_is_never_captured():
    def reason(dataset, chosen, **more):
        return unsupported_reason(trainer_on(CPU, dataset, chosen, **more))

    assert reason(problem(), plan()) is None
    assert "parts" in reason(problem(), plan(accumulate=2))
    assert "candidates" in reason(problem(), neighbor_plan())
    assert "dense tensors" in reason(texts(), plan("leaf-ce", network="linear"))
    alone = trainer_on(CPU, problem(), plan())
    alone.processes = Processes(0, 2, CPU)
    assert "several processes" in unsupported_reason(alone)


def test_large_networks_are_never_captured(monkeypatch):
    monkeypatch.setattr(captured, "LARGEST", 100)
    assert "parameters" in unsupported_reason(trainer_on(CPU, problem(), plan()))


def test_short_trainings_are_not_captured(monkeypatch):
    monkeypatch.setattr(captured, "FEWEST", 1000)
    trainer = both(plan(), Rerun)
    assert trainer.captured.recorder.recorded == 0


def test_a_cpu_has_no_graphs():
    assert trainer_on(CPU, problem(), plan()).captured is None


def test_a_resumed_training_captures_again(tmp_path):
    trainer = trainer_on(CPU, problem(), plan(epochs=4))
    recorder = Rerun(trainer)
    trainer.captured = CapturedSteps(recorder)
    saved = []
    trainer.save = lambda step, tensors, metadata: saved.append((step, tensors, metadata))
    for _ in range(3):
        trainer.train_epoch()
    assert trainer.captured.steps
    trainer.resume(Checkpoint(tmp_path, *saved[1][1:]))
    assert not trainer.captured.steps
    train(trainer)
    whole = trainer_on(CPU, problem(), plan(epochs=4))
    train(whole)
    assert_identical(state(trainer), state(whole))


@pytest.mark.parametrize("ensemble_size", [1, 3])
def test_a_rate_held_as_a_tensor_trains_the_same_weights(ensemble_size):
    chosen = plan("bce", epochs=5, warmup=0.2, ensemble_size=ensemble_size, weight_decay=0.1)
    held, plain = (trainer_on(CPU, problem(), chosen) for _ in range(2))
    for group in held.optimizer.param_groups:  # as on a GPU
        group["lr"] = torch.tensor(group["lr"], dtype=torch.float32)
    tensors = [group["lr"] for group in held.optimizer.param_groups]
    assert train(held)[-1]["learning_rate"] == train(plain)[-1]["learning_rate"]
    assert all(
        group["lr"] is one for group, one in zip(held.optimizer.param_groups, tensors, strict=True)
    )
    for name, value in state(plain).items():
        torch.testing.assert_close(state(held)[name], value, rtol=1e-5, atol=1e-6)
