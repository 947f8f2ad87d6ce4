"""The curriculum under Hugging Face's Trainer: progress, epochs, checkpoints that resume."""

import json

import pytest
import torch
import transformers

from hierlearn.errors import HierlearnError
from hierlearn.integrations.common import curriculum_state
from hierlearn.integrations.transformers import TrainerLoss, curriculum_callback
from hierlearn.lab.baselines.teacher import TeacherLoss
from hierlearn.losses import HCLLoss
from integrations.tiny import (
    NAMES,
    TREE,
    Recorder,
    arguments,
    bert,
    dataset,
    step_losses,
    token_rows,
)


def trainer_of(loss, folder, **options):
    """Return a Trainer over three epochs of three steps."""
    tokens, index = token_rows(24)
    rows = dataset(tokens, index.tolist())
    options = {"num_train_epochs": 3, **options}
    return transformers.Trainer(
        bert(),
        arguments(folder, **options),
        train_dataset=rows,
        eval_dataset=rows[:10],
        compute_loss_func=TrainerLoss(loss, NAMES),
        callbacks=[curriculum_callback(loss)],
    )


@pytest.mark.parametrize("accumulation", [1, 2])
def test_steps_and_epochs_are_reported_once(accumulation, tmp_path):
    loss = Recorder(TREE)
    options = {"per_device_train_batch_size": 8 // accumulation}
    trainer_of(loss, tmp_path, gradient_accumulation_steps=accumulation, **options).train()
    expected = [0, 1, 2, "end", 3, 4, 5, "end", 6, 7, 8, "end"]
    assert loss.told == [one if one == "end" else one / 9 for one in expected]


def assert_same_state(first, second):
    one, other = curriculum_state(first), curriculum_state(second)
    # Scores are NaN before the first epoch.
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


# Checkpoints in the middle of an epoch, after its last step, after its end.
@pytest.mark.parametrize(
    "options",
    [
        {"save_steps": 4},
        {"save_steps": 3},
        {"save_strategy": "epoch"},
        {"save_steps": 4, "restore_callback_states_from_checkpoint": True},
    ],
)
def test_a_resumed_curriculum_is_that_of_an_uninterrupted_one(options, tmp_path):
    options = {"save_strategy": "steps", **options}
    loss = TeacherLoss(TREE, floor=0.1)
    whole = trainer_of(loss, tmp_path, **options)
    whole.train()
    assert {"selected", "epoch_losses"} <= set(curriculum_state(loss))
    first = tmp_path / f"checkpoint-{options.get('save_steps', 3)}"
    resumed_loss = TeacherLoss(TREE, floor=0.1)
    resumed = trainer_of(resumed_loss, tmp_path / "resumed", **options)
    resumed.train(resume_from_checkpoint=str(first))
    assert step_losses(resumed) == pytest.approx(step_losses(whole), abs=1e-6)
    assert_same_state(loss, resumed_loss)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(other, one)


def test_a_loss_that_starts_again_differs(tmp_path):
    """What the test above would miss if the state made no difference."""
    loss = TeacherLoss(TREE, floor=0.1)
    whole = trainer_of(loss, tmp_path, save_strategy="epoch")
    whole.train()
    other = TeacherLoss(TREE, floor=0.1)
    resumed = trainer_of(other, tmp_path / "resumed", save_strategy="no")
    resumed.callback_handler.callbacks = [
        one for one in resumed.callback_handler.callbacks if not hasattr(one, "open_steps")
    ]
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert step_losses(resumed)[3:] != pytest.approx(step_losses(whole)[3:], abs=1e-6)


def test_evaluating_changes_nothing(tmp_path):
    """The rows of an evaluation are not of the epoch."""
    loss = TeacherLoss(TREE)
    trainer = trainer_of(loss, tmp_path, max_steps=2)
    trainer.train()
    trainer.compute_loss_func((torch.zeros(4, len(TREE), requires_grad=True),), torch.arange(4))
    before = curriculum_state(loss)
    assert before["epoch_counts"].max() == 4
    assert "eval_loss" in trainer.evaluate()
    torch.testing.assert_close(before, curriculum_state(loss), rtol=0, atol=0, equal_nan=True)


def test_the_history_has_the_fraction_of_selected_classes(tmp_path):
    loss = HCLLoss(TREE, floor=0.1, threshold=2.0)
    trainer = trainer_of(loss, tmp_path, logging_steps=3, save_strategy="epoch")
    selections = []
    seen = loss.record
    loss.record = lambda statistics, member: (
        selections.append(float(statistics[0].float().mean())), seen(statistics, member)
    )  # fmt: skip
    trainer.train()
    found = [one["selected"] for one in trainer.state.log_history if "loss" in one]
    expected = [sum(selections[k : k + 3]) / 3 for k in (0, 3, 6)]
    assert 0 < min(expected) < 1
    assert found == pytest.approx(expected)
    saved = json.loads((tmp_path / "checkpoint-9" / "trainer_state.json").read_text())
    assert [one["selected"] for one in saved["log_history"]] == pytest.approx(expected)


def test_the_callback_takes_a_trainer_loss_too(tmp_path):
    loss = Recorder(TREE)
    callback = curriculum_callback(TrainerLoss(loss))
    callback.on_epoch_end(None, None, None)
    assert loss.told == ["end"]


def test_a_checkpoint_of_another_hierarchy_is_refused(tmp_path):
    trainer_of(TeacherLoss(TREE), tmp_path, save_strategy="epoch").train()
    trainer = trainer_of(HCLLoss(TREE, curriculum=None), tmp_path / "other")
    message = "of a curriculum, but this HCLLoss has no state; resume with the loss and the"
    with pytest.raises(HierlearnError, match=message):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
