"""Training part by part: what moves in a stage, how epochs are shared out, and what is compared."""

import math
import signal
import subprocess

import pytest
import torch
from torch import nn

import warm
from hierlearn import HierarchicalClassifier
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.hmcn import BatchNorm
from hierlearn.links import HeadOutput, make_link
from hierlearn.losses import LOSSES, BCELoss
from hierlearn.networks.layers import Dense, Dropout
from hierlearn.networks.network import StagedNetwork
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.checkpoint import Checkpoints
from hierlearn.training.solvers.captured import CapturedSteps
from hierlearn.training.solvers.stages import Stages
from training import staged_worker
from training.datasets import (
    CPU,
    TREE,
    assert_identical,
    environment,
    partial_problem,
    plan,
    problem,
    read_records,
    state,
    trainer_of,
)
from training.test_captured import Rerun

QUIET = Reporting(bar=False)
LEVELS = {"network": "hmc-lmlp", "dropout": 0.3, "weight_decay": 0.1}


class Normed(StagedNetwork):
    """A part per level, each of the inputs alone, with a batch normalization."""

    def __init__(self, features=4):
        super().__init__()
        self.link = make_link(TREE, "sigmoid")
        self.levels = nn.ModuleList(
            nn.Sequential(Dense(features, 6), BatchNorm(6), Dropout(0.3), Dense(6, size))
            for size in TREE.level_sizes
        )

    @property
    def parts(self):
        return list(self.levels)

    @property
    def part_classes(self):
        return TREE.level_slices

    def forward(self, x):
        return HeadOutput.from_logits(torch.cat([one(x) for one in self.levels], -1), self.link)


@pytest.mark.parametrize("members", [1, 2])
def test_only_the_part_of_the_stage_moves(members):
    chosen = plan("bce", **LEVELS, epochs=6, ensemble_size=members)
    trainer = trainer_of(partial_problem(), chosen)
    check_that_one_part_moves(trainer, "network.levels." if members > 1 else "levels.")


def test_running_moments_of_other_parts_do_not_move():
    torch.manual_seed(0)
    chosen = plan("bce", weight_decay=0.1, epochs=6)
    trainer = trainer_of(partial_problem(), chosen, network=Normed())
    check_that_one_part_moves(trainer, "levels.")


def check_that_one_part_moves(trainer, prefix):
    """Train two epochs per part, and compare all tensors bit by bit."""
    for epoch in range(6):
        before = state(trainer)
        trainer.train_epoch()
        for name, value in state(trainer).items():
            part = int(name.removeprefix(prefix).partition(".")[0])
            assert torch.equal(value, before[name]) == (part != epoch // 2), name
    assert trainer.step == trainer.steps
    trainer.train()
    assert all(one.requires_grad for one in trainer.network.parameters())


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 7, 20])
def test_the_epochs_are_shared_out_evenly_over_all_parts(parts, epochs):
    network = Normed()
    network.levels = nn.ModuleList(Dense(1, 1) for _ in range(parts))
    type(network).part_classes = property(lambda _: [slice(n, n + 1) for n in range(parts)])
    stages = Stages(network, BCELoss(TREE), epochs, CPU)
    trained, lengths = [], [0] * stages.count
    for epoch in range(epochs):
        before = network.trained
        changed = stages.enter(epoch)
        assert changed == (network.trained != before)
        lengths[stages.of_epoch(epoch)] += 1
        own = range(*network.trained)
        assert stages.classes.nonzero()[:, 0].tolist() == list(own)
        trained += own if changed else []
        assert (epoch >= stages.last) == (parts - 1 in own)
        for step in range(3):  # three steps per epoch
            place, length = stages.place(3 * epoch + step, 3 * epochs)
            assert length == 3 * sum(stages.of_epoch(one) == stages.now for one in range(epochs))
            assert place == 3 * (lengths[stages.now] - 1) + step
    assert trained == list(range(parts))
    assert max(lengths) - min(lengths) <= 1
    stages.leave()
    assert network.trained is None


@pytest.fixture(autouse=True)
def _the_same_classes_again():
    kept = Normed.part_classes
    yield
    Normed.part_classes = kept


def test_the_learning_rate_falls_in_every_stage_and_the_last_is_validated(tmp_path):
    chosen = plan("bce", **LEVELS, epochs=7, learning_rate=0.1)
    said = []
    reporting = Reporting(bar=False, on_message=said.append)
    train(partial_problem(), chosen, out=tmp_path / "model", reporting=reporting)
    assert "7 epochs shared by 3 parts, trained one after another" in said[0]
    records = read_records(tmp_path / "model")
    steps = records[0]["step"]
    wanted = []
    for length in (3, 2, 2):  # epochs of the levels
        last = [((epoch + 1) * steps - 1) / (length * steps) for epoch in range(length)]
        wanted += [0.05 * (1 + math.cos(math.pi * done)) for done in last]
    assert [one["learning_rate"] for one in records] == pytest.approx(wanted)
    assert ["valid" in one for one in records] == [False] * 5 + [True] * 2


def test_only_epochs_of_the_last_stage_compete(tmp_path, monkeypatch):
    chosen = plan("bce", **LEVELS, epochs=30, patience=2, learning_rate=0.05)
    model = train(partial_problem(), chosen, out=tmp_path / "model", reporting=QUIET)
    records = read_records(tmp_path / "model")
    values = [one["valid"]["au-prc"][0] for one in records if "valid" in one]
    (best,) = model.config["training"]["best_epoch"]
    assert best == 21 + values.index(max(values))
    assert len(records) == best + 2 < 30  # it stopped
    # A metric that no epoch has: the patience counts from the beginning of the last stage.
    monkeypatch.setattr(
        "hierlearn.training.solvers.solver.compute", lambda *_: torch.tensor(float("nan"))
    )
    trainer = trainer_of(partial_problem(), chosen)
    trainer.train()
    assert trainer.epoch == 22


def test_a_killed_training_goes_on_in_its_stage_bit_for_bit(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(partial_problem(), staged_worker.CHOSEN, out=whole, reporting=QUIET)
    for moment in (21, 33):  # in the midst of an epoch of the second level, and of the last
        command = [*warm.python(), staged_worker.__file__, str(cut), str(moment)]
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=600
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        left = [int(path.stem[5:]) for path in Checkpoints(cut / "checkpoints").paths()]
        assert left[-1] == moment - 1
    train(partial_problem(), staged_worker.CHOSEN, out=cut, resume=True, reporting=QUIET)
    assert read_records(cut) == read_records(whole)
    name = "model.safetensors"
    assert (cut / name).read_bytes() == (whole / name).read_bytes()


def test_graphs_are_captured_again_in_every_stage(monkeypatch):
    monkeypatch.setattr("hierlearn.training.solvers.captured.FEWEST", 1)
    chosen = plan("bce", **LEVELS, epochs=12, batch_size=16)  # 48 rows, three levels
    plain, captured = (trainer_of(partial_problem(), chosen) for _ in range(2))
    captured.captured = CapturedSteps(Rerun(captured))
    for trainer in (plain, captured):
        trainer.train()
    assert captured.captured.refusal is None
    assert captured.captured.recorder.recorded == 3
    assert captured.captured.replayed == 36 - 3 * 3  # but two steps and a capture per stage
    assert_identical(state(captured), state(plain))


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_every_class_alone_train_a_level_and_others_are_refused(name):
    alone = name in ("bce", "focal", "level-weighted")
    loss = LOSSES[name](TREE)
    if alone:
        check_that_entries_are_independent(loss)
        return
    message = f"needs a loss of every class alone.*, not {type(loss).__name__}"
    with pytest.raises(HierlearnError, match=message):
        Stages(Normed(), loss, 3, CPU)


def check_that_entries_are_independent(loss):
    """Change the logits of other classes: the known entries keep their losses."""
    Stages(Normed(), loss, 3, CPU)
    torch.manual_seed(0)
    logits, targets = torch.randn(6, len(TREE)), TREE.encode([["d"], ["c", "g"], ["h"]] * 2)
    mask = torch.zeros(6, len(TREE), dtype=torch.bool)
    mask[:, TREE.level_slices[1]] = True
    changed = torch.where(mask, logits, torch.randn_like(logits))
    assert torch.equal(loss(logits, targets, mask), loss(changed, targets, mask))


def test_a_mixed_loss_of_such_parts_trains_a_level():
    parts = {"bce": 0.5, "focal": 0.5}
    Stages(Normed(), LOSSES["mixed"](TREE, parts=parts), 3, CPU)


def test_more_rows_train_all_levels_at_once():
    data = problem()
    inputs, labels = data.inputs, [row[0] for row in data.labels]
    options = {"network_options": {"width": 8}, "epochs": 4, "device": "cpu"}
    classifier = HierarchicalClassifier(recipe="hmc-lmlp", **options).fit(inputs, labels)
    before = state(classifier.pipeline_.network)
    classifier.partial_fit(inputs[:20], labels[:20])
    after = state(classifier.pipeline_.network)
    assert all(not torch.equal(after[name], value) for name, value in before.items())
