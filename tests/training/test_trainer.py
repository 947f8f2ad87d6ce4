"""Trainer against a bare loop of torch: the same weights; and what stops a training."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hierlearn import Dataset
from hierlearn.errors import DataWarning, HierlearnError
from hierlearn.losses import CollapseWarning, HCLLoss
from hierlearn.training.seeding import derive, epoch_order
from hierlearn.training.solvers.gradient import Trainer
from hierlearn.training.solvers.solver import NonFiniteLossError
from training.datasets import (
    CPU,
    TREE,
    assert_identical,
    first_layer,
    last_layer,
    plan,
    problem,
    state,
    trainer_of,
    without_splits,
)


def bare_layers(network):
    """Return the network as torch's own layers, with copies of its weights."""
    dense = [layer for layer in network.modules() if type(layer).__name__ == "Dense"]
    layers = []
    for layer in dense:
        copied = nn.Linear(*layer.weight.shape)
        copied.weight.data, copied.bias.data = layer.weight.data.T.clone(), layer.bias.data.clone()
        layers += [copied, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def rate(settings, step, steps):
    """Return the learning rate by the book."""
    rising = int(settings.warmup * steps)
    if step < rising:
        return settings.learning_rate * (step + 1) / rising
    share = (step - rising) / (steps - rising)
    falls = {"constant": 1, "linear": 1 - share, "cosine": (1 + math.cos(math.pi * share)) / 2}
    return settings.learning_rate * falls[settings.schedule]


def bare_loop(trainer, x, y):
    """Train cross entropy as a page of a tutorial would, and return the network and its losses."""
    settings, network = trainer.settings, bare_layers(trainer.network)
    optimizer = torch.optim.AdamW(
        network.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    per_epoch = math.ceil(len(x) / settings.batch_size)
    step, epochs = 0, []
    for epoch in range(settings.epochs):
        losses = []
        order = epoch_order([settings.seed], len(x), epoch)[0]
        for index in order.split(settings.batch_size):
            optimizer.param_groups[0]["lr"] = rate(settings, step, per_epoch * settings.epochs)
            loss = binary_cross_entropy_with_logits(network(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            if settings.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(network.parameters(), settings.max_grad_norm)
            optimizer.step()
            losses.append(loss.item())
            step += 1
        epochs.append(sum(losses) / len(losses))
    return network, epochs


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "constant"},
        {"schedule": "linear", "warmup": 0.3},
        {"schedule": "cosine", "weight_decay": 0.1},
        {"schedule": "cosine", "max_grad_norm": 0.05, "batch_size": 5, "seed": 3},
        {"schedule": "constant", "batch_size": 1000},
    ],
    ids=str,
)
def test_it_trains_as_a_bare_loop_does(settings):
    records = []
    chosen = plan("bce", epochs=5, learning_rate=0.02, **settings)
    trainer = trainer_of(problem(), chosen, on_epoch=records.append)
    x, y, _ = trainer.rows.batch(torch.arange(len(trainer.rows)))
    network, losses = bare_loop(trainer, x, y.float())
    before = state(trainer)
    trainer.train()
    assert [record["loss"][0] for record in records] == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(last_layer(trainer.network).weight.T, network[-1].weight)
    torch.testing.assert_close(last_layer(trainer.network).bias, network[-1].bias)
    torch.testing.assert_close(first_layer(trainer.network).weight.T, network[0].weight)
    assert (
        before["heads.main.linear.weight"] - last_layer(trainer.network).weight
    ).abs().max() > 0.005
    steps = trainer.steps
    assert records[-1]["learning_rate"] == pytest.approx(rate(trainer.settings, steps - 1, steps))
    assert [record["step"] for record in records] == [steps // 5 * k for k in range(1, 6)]


def test_the_same_seed_gives_the_same_weights_and_another_others():
    one, same, other = (
        trainer_of(problem(), plan("hcl", dropout=0.5, seed=seed)) for seed in (0, 0, 1)
    )
    for trainer in (one, same, other):
        trainer.train()
    assert_identical(state(one), state(same))
    assert not torch.equal(last_layer(one.network).weight, last_layer(other.network).weight)


def test_dropout_is_drawn_again_at_every_step():
    trainer = trainer_of(problem(), plan(dropout=0.5))
    x, drawn = torch.ones(4, 5), []
    for step in (0, 1, 0):
        trainer.step = step
        trainer.noise.seed([derive(0, "noise 0", trainer.step)])
        drawn.append(trainer.network(x).logits)
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


def test_the_network_learns():
    trainer = trainer_of(
        problem(rows=200, spread=0.2), plan("leaf-ce", epochs=20, learning_rate=0.02)
    )
    records = []
    trainer.on_epoch = records.append
    trainer.settings = replace(trainer.settings, metric="hit@1")
    trainer.train()
    assert records[-1]["loss"][0] < records[0]["loss"][0] / 2
    assert records[-1]["valid"]["hit@1"][0] > 0.8


def test_callbacks_hear_of_every_step_and_epoch():
    steps, records = [], []
    trainer_of(problem(), plan(), on_step=steps.append, on_epoch=records.append).train()
    assert steps == list(range(1, 16))  # 36 rows in batches of 8, 3 epochs
    assert [sorted(record) for record in records] == [
        ["epoch", "learning_rate", "loss", "seconds", "step", "valid"]
    ] * 3


# ---------------------------------------------------------------------- what a curriculum gets


def test_the_log_tells_what_share_of_each_level_was_selected():
    records, chosen = [], []
    trainer = trainer_of(problem(), plan("hcl", epochs=1), on_epoch=records.append)
    trainer.on_step = lambda _: chosen.append(trainer.loss.selection.float())
    trainer.train()
    shares = torch.stack(chosen).mean(dim=0)
    by_hand = [float(shares[:3].mean()), float(shares[3:].mean())]
    assert records[0]["selected_by_level"] == pytest.approx(by_hand, abs=1e-6)
    assert by_hand[1] < 1


@pytest.mark.parametrize("inside", [False, True], ids=["hcl", "hcl in a mixed loss"])
def test_a_curriculum_hears_of_the_progress(inside):
    trainer = trainer_of(problem(), plan("mixed", options={"parts": {"hcl": 0.5, "bce": 0.5}}))
    loss = trainer.loss.parts[0]
    if not inside:
        trainer = trainer_of(problem(), plan("hcl"))
        loss = trainer.loss
    heard = []
    loss.set_progress = heard.append
    trainer.train()
    assert heard == pytest.approx([step / 15 for step in range(15)])


def test_a_class_that_is_never_selected_is_named():
    dataset = Dataset(np.zeros((4, 2), "float32"), [["a/b/d"]] * 4, TREE)
    hopeless = plan("hcl-paper", epochs=1, prior_bias=False, options={"threshold": 0.0})
    with (
        pytest.warns(DataWarning, match="all training rows have the label"),
        pytest.warns(CollapseWarning, match="8 of 8 classes were not selected"),
    ):
        trainer_of(dataset, hopeless).train()


# ---------------------------------------------------------------------- precision


@pytest.mark.parametrize("loss", ["bce", "hcl", "leaf-ce", "mixed"])
@pytest.mark.parametrize("seeds", [1, 2])
def test_bf16_trains_close_to_float32(loss, seeds):
    records = {}
    for precision in ("float32", "bf16"):
        records[precision] = []
        chosen = plan(loss, precision=precision, ensemble_size=seeds)
        trainer = trainer_of(problem(), chosen, on_epoch=records[precision].append)
        trainer.train()
        assert last_layer(trainer.network).weight.dtype == torch.float32
    half, full = (records[name][-1]["loss"] for name in ("bf16", "float32"))
    assert half == pytest.approx(full, rel=0.02)
    assert half != full


# ---------------------------------------------------------------------- networks from elsewhere


class Elsewhere(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 12)
        )

    def forward(self, x):
        return self.layers(x)


def elsewhere(**options):
    torch.manual_seed(0)
    return trainer_of(
        problem(rows=59),
        plan("hcl", batch_size=7, learning_rate=0.02),
        network=Elsewhere(),
        **options,
    )


def test_a_network_from_elsewhere_trains_and_repeats():
    records = []
    one, two = elsewhere(on_epoch=records.append), elsewhere()
    before = state(one)
    for trainer in (one, two):
        trainer.train()
    assert_identical(state(one), state(two))
    assert not torch.equal(before["layers.0.weight"], one.network.layers[0].weight)
    assert records[-1]["loss"][0] < records[0]["loss"][0]


def test_an_ensemble_needs_as_many_networks():
    with pytest.raises(
        HierlearnError,
        match="ensemble_size is 2, but this Elsewhere holds 1 network",
    ):
        trainer_of(problem(), plan(ensemble_size=2), network=Elsewhere())


# ---------------------------------------------------------------------- what stops a training


POISONED = int(epoch_order([0], 36, 1)[0][30])  # the first model meets it in batch 4 of epoch 2


def poisoned(ensemble_size=1, **options):
    """Return a trainer that meets an infinite input in its second epoch."""
    saved = []

    def poison(step):
        if step == 7:  # 5 batches an epoch: two steps into the second
            trainer.rows.inputs[POISONED] = float("inf")

    trainer = trainer_of(
        problem(),
        plan(ensemble_size=ensemble_size, **options),
        on_step=poison,
        save=lambda step, tensors, facts: saved.append((step, tensors)),
    )
    return trainer, saved


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_loss_that_is_not_finite_names_epoch_batch_seed_and_rows(seeds):
    trainer, saved = poisoned(seeds)
    with pytest.raises(NonFiniteLossError) as caught:
        trainer.train()
    orders = [epoch_order([seed], 36, 1)[0].tolist() for seed in range(seeds)]
    # The first batch from the third on in which a model meets the row.
    places = [order.index(POISONED) // 8 for order in orders]
    place, member = min((p, k) for k, p in enumerate(places) if p >= 2)
    used = rate(trainer.settings, 5 + place, trainer.steps)
    rows = ", ".join(map(str, orders[member][8 * place : 8 * place + 8]))
    assert str(caught.value) == (
        f"the loss became nan in epoch 2, batch {place + 1} of 5, with BCELoss at learning rate "
        f"{used:.3g} (seed {member}, training rows {rows}); lower the learning rate or set "
        f"max_grad_norm, and check those rows; the last checkpoint with finite weights is "
        f"that of step 5"
    )
    assert [step for step, _ in saved] == [5]
    assert all(value.isfinite().all() for value in saved[0][1].values())


def test_a_long_list_of_rows_is_cut():
    trainer, _ = poisoned(batch_size=36)
    trainer.rows.inputs[4] = float("inf")
    first = ", ".join(map(str, epoch_order([0], 36, 0)[0][:8].tolist()))
    with pytest.raises(NonFiniteLossError, match=rf"training rows {first}, \.\.\.\); lower"):
        trainer.train()


@pytest.mark.parametrize(("steps", "wrong"), [(7, 0), (7, 1), (10, 4)])
def test_losses_that_are_looked_at_later_name_the_batch_that_was_wrong(steps, wrong):
    """As on a graphics processor, where nobody waits for every loss."""
    trainer = trainer_of(problem(), plan(ensemble_size=2))

    def look(step):
        if step == steps:
            trainer.losses[wrong][1] = float("inf")
            trainer.rows.device = torch.device("cuda")
            trainer._check_finite(1)

    trainer.on_step = look
    rows = ", ".join(map(str, epoch_order([1], 36, 1)[0].tolist()[8 * wrong : 8 * wrong + 8]))
    words = f"the loss became inf in epoch 2, batch {wrong + 1} of 5, with BCELoss"
    with pytest.raises(NonFiniteLossError, match=re.escape(words)) as caught:
        trainer.train()
    assert f"(seed 1, training rows {rows})" in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "batch", "kept"), [(10, 5, [3, 5, 6, 9]), (9, 4, [3, 5, 6])], ids=["end", "midst"]
)
def test_weights_that_are_not_finite_reach_no_checkpoint(broken, batch, kept):
    saved = []

    def break_it(step):
        if step == broken:  # the loss of the step was still finite
            last_layer(trainer.network).weight.data[2, 3] = float("nan")

    trainer = trainer_of(
        problem(),
        plan(checkpoint_every=3),
        on_step=break_it,
        save=lambda step, *_: saved.append(step),
    )
    with pytest.raises(
        NonFiniteLossError, match=f"the weights became nan in epoch 2, batch {batch} "
    ):
        trainer.train()
    assert saved == kept


def test_what_cannot_be_trained():
    chosen = plan(patience=2)
    with pytest.raises(HierlearnError, match="patience needs validation rows; name a split"):
        trainer_of(without_splits(problem()), chosen)
    trainer = trainer_of(problem(), plan())
    trainer.rows.labels = trainer.rows.labels.__class__([], problem().hierarchy)
    with pytest.raises(HierlearnError, match="there are no training rows"):
        Trainer(trainer.network, trainer.loss, trainer.rows, trainer.settings)


def test_errors_of_a_single_process_pass_as_they_are():
    trainer = trainer_of(problem(), plan(), on_step=lambda _: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        trainer.train()
    assert isinstance(trainer.loss, nn.Module)
    assert not isinstance(trainer.loss, HCLLoss)
    assert trainer.rows.device == CPU


def test_the_optimizer_is_torchs_to_the_last_bit_without_its_compiler():
    script = """
import sys, torch
from hierlearn.training.solvers.gradient import AdamW
from hierlearn.training.solvers.gradient import optimizer_tensors, restore_optimizer

torch.manual_seed(0)
own, other, third = (torch.nn.Linear(5, 3) for _ in range(3))
for one in (other, third):
    one.load_state_dict(own.state_dict())
x = torch.randn(7, 5)

def steps(network, optimizer, count):
    for _ in range(count):
        network.zero_grad()
        network(x).square().sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.9

options = {"lr": 1e-2, "weight_decay": 0.1}
mine = AdamW(own.parameters(), **options)
steps(own, mine, 3)
held, weights = (
    {key: value.clone() for key, value in one.items()}
    for one in (optimizer_tensors(mine), own.state_dict())
)
rate = mine.param_groups[0]["lr"]
steps(own, mine, 3)
assert "torch._dynamo" not in sys.modules
steps(other, torch.optim.AdamW(other.parameters(), fused=True, **options), 6)
assert torch.equal(own.weight, other.weight) and torch.equal(own.bias, other.bias)
third.load_state_dict(weights)
again = AdamW(third.parameters(), **options)
again.param_groups[0]["lr"] = rate
restore_optimizer(again, held)
steps(third, again, 3)
assert torch.equal(own.weight, third.weight)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
