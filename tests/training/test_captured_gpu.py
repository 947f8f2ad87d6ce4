"""CUDA graphs: a training whose steps are replayed ends with the weights of one without graphs."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from hierlearn.losses import LOSSES
from hierlearn.networks.ensemble import LoopedEnsemble
from hierlearn.training.solvers import captured
from tolerances import Tolerance
from training.capturing import train, trainer_on
from training.datasets import plan, problem, state

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore::hierlearn.losses.CollapseWarning"),
]

# Sums that a GPU adds in any order, over the steps of a training whose Adam divides by their size.
TRAINED = Tolerance(rtol=1e-3, atol=1e-4)


@pytest.fixture(autouse=True)
def _capture_short_trainings(monkeypatch):
    monkeypatch.setattr(captured, "FEWEST", 1)


class Waiting(nn.Module):
    """A network that reads a value back in every step."""

    def __init__(self, inputs=5, classes=12):
        super().__init__()
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.linear(x) * (1.0 if x.sum().item() < 1e6 else 0.5)


class Ordinary(nn.Module):
    """A network of torch's own layers, with its noise and its running means."""

    def __init__(self, inputs=5, classes=12):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(16, classes),
        )

    def forward(self, x):
        return self.layers(x)


def on_gpu(chosen, network=None, dataset=None):
    """Train with and without graphs; compare what they leave; return the first."""
    pair = []
    for graphs in (True, False):
        torch.manual_seed(0)
        settings = {**chosen.settings, "device": "cuda", "cuda_graphs": graphs}
        trainer = trainer_on(
            torch.device("cuda"),
            problem() if dataset is None else dataset,
            replace(chosen, settings=settings),
            network=None if network is None else network(),
        )
        pair.append((trainer, train(trainer)))
    (one, records), (other, expected) = pair
    assert other.captured is None
    for mine, theirs in zip(records, expected, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert mine.get("selected_by_level") == theirs.get("selected_by_level")
    selections = [trainer.loss.selection for trainer in (one, other)]
    assert selections == [None, None] or torch.equal(*selections)
    found, wanted = state(one), state(other)
    gaps = [float((found[name] - value).abs().max()) for name, value in wanted.items()]
    print(f"largest gap of a weight: {max(gaps):.1e}")
    for name, value in wanted.items():
        TRAINED.assert_close(found[name], value)
    return one


@pytest.mark.parametrize("ensemble_size", [1, 10])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_captured(loss, ensemble_size):
    chosen = plan(loss, dropout=0.3, epochs=8, ensemble_size=ensemble_size, max_grad_norm=0.5)
    trainer = on_gpu(chosen)
    assert trainer.captured.refusal is None
    assert trainer.captured.replayed > trainer.step / 2


@pytest.mark.parametrize(
    "chosen",
    [
        plan("hcl", options={"threshold": 6.0}, epochs=8),
        plan("hcl", options={"floor": 0.0}, epochs=8, ensemble_size=3),
        plan("bce", epochs=20, patience=1, learning_rate=0.3, ensemble_size=4, dropout=0.3),
        plan("leaf-ce", epochs=8, precision="bf16", dropout=0.3, warmup=0.3),
    ],
    ids=["threshold", "literal", "stopping", "bf16"],
)
def test_schedules_stopping_and_half_precision_are_captured(chosen):
    trainer = on_gpu(chosen)
    assert trainer.captured.refusal is None
    assert trainer.captured.replayed


def test_noise_of_torch_and_running_means_are_captured():
    trainer = on_gpu(plan("bce", epochs=8), Ordinary)
    assert trainer.captured.refusal is None
    assert trainer.captured.replayed


def test_noise_of_inputs_is_captured():
    noisy = {"width": 8, "dropout": 0.3, "input_dropout": 0.2, "input_noise": 0.1}
    chosen = replace(plan("bce", epochs=8, ensemble_size=2), network_options=noisy)
    trainer = on_gpu(chosen)
    assert trainer.captured.refusal is None
    assert trainer.captured.replayed


def test_a_network_that_waits_is_trained_without_graphs():
    trainer = on_gpu(plan("bce", epochs=8), Waiting)
    assert "waits for the device" in trainer.captured.refusal


def test_a_failed_capture_leaves_the_generators_usable():
    def pair():
        return LoopedEnsemble([Ordinary(), Ordinary()])

    trainer = on_gpu(plan("bce", epochs=8, ensemble_size=2), pair)
    assert trainer.captured.refusal is not None
    assert torch.rand(3, device="cuda").isfinite().all()
    again = on_gpu(plan("bce", epochs=8, dropout=0.3))
    assert again.captured.replayed
