"""A tiny transformer: Hugging Face's Trainer, hierlearn's, and a plain loop take the same steps."""

import pytest
import torch
import transformers

from hierlearn.integrations.transformers import LabelCollator, TrainerLoss
from hierlearn.losses import LOSSES
from integrations.tiny import (
    NAMES,
    TREE,
    arguments,
    bert,
    dataset,
    step_losses,
    token_rows,
    train_with_hierlearn,
)

CLOSE = 1e-5
# Curricula that select by the batch see smaller batches where gradients are accumulated.
CASES = [(name, 1) for name in ("leaf-ce", "bce", "hcl")] + [("leaf-ce", 4), ("bce", 4)]


def trained(loss, folder, rows, order, accumulation, before=None, **options):
    """Train one epoch on rows in an order, eight per step, with Hugging Face's Trainer.

    Weights and the state of the optimizer are those of the training before, if any.
    """
    tokens, index = rows
    args = arguments(
        folder,
        per_device_train_batch_size=8 // accumulation,
        gradient_accumulation_steps=accumulation,
        **options,
    )
    trainer = transformers.Trainer(
        bert() if before is None else before.model,
        args,
        train_dataset=dataset(tokens[order], [int(one) for one in index[order]]),
        compute_loss_func=TrainerLoss(loss, NAMES),
    )
    if before is not None:
        trainer.create_optimizer()
        trainer.optimizer.load_state_dict(before.optimizer.state_dict())
    trainer.train()
    return trainer


def assert_same_weights(first, second):
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-4)  # AdamW scales rounding errors up


@pytest.mark.parametrize(("name", "accumulation"), CASES)
def test_both_trainers_have_the_same_losses_and_weights(name, accumulation, tmp_path):
    """Hierlearn's trainer takes the batch of a step at once, however Hugging Face's divides it."""
    rows = token_rows(20)  # steps of 8, 8 and 4 rows
    network = bert()
    names = [NAMES[one] for one in rows[1]]
    expected, order = train_with_hierlearn(network, LOSSES[name](TREE), rows[0], names, epochs=2)
    assert len(expected) == 6
    loss, trainer, found = LOSSES[name](TREE), None, []
    for part in (order[:20], order[20:]):  # each epoch in the order that hierlearn's trainer took
        trainer = trained(loss, tmp_path, rows, part, accumulation, trainer)
        found += step_losses(trainer)
    assert found == pytest.approx(expected, abs=CLOSE)
    assert_same_weights(network, trainer.model)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_plain_loop_has_the_same_losses(accumulation, tmp_path):
    """The oracle: binary cross entropy of torch, whole batches, no code of hierlearn."""
    tokens, index = token_rows(24)
    table = torch.zeros(len(NAMES), len(TREE))
    for row, name in enumerate(NAMES):
        parts = name.split("/")
        for end in range(1, len(parts) + 1):
            table[row, TREE.names.index("/".join(parts[:end]))] = 1.0
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    expected = []
    for begin in range(0, 24, 8):
        rows = slice(begin, begin + 8)
        logits = model(input_ids=torch.from_numpy(tokens[rows])).logits
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, table[index[rows]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    order = list(range(24))
    trainer = trained(LOSSES["bce"](TREE), tmp_path, (tokens, index), order, accumulation)
    assert step_losses(trainer) == pytest.approx(expected, abs=CLOSE)
    assert_same_weights(model, trainer.model)


@pytest.mark.parametrize("average", [True, False])
def test_several_gpus_in_one_process_do_not_multiply_the_loss(average, tmp_path, monkeypatch):
    """What the Trainer does with two of them, on none: DataParallel then calls its module."""
    rows, order = token_rows(16), list(range(16))
    loss = LOSSES["bce"](TREE)
    once = step_losses(trained(loss, tmp_path, rows, order, 1))
    monkeypatch.setattr(transformers.TrainingArguments, "n_gpu", property(lambda _: 2))
    monkeypatch.setattr(transformers.TrainingArguments, "train_batch_size", 8)
    twice = trained(loss, tmp_path, rows, order, 1, average_tokens_across_devices=average)
    assert isinstance(twice.model_wrapped, torch.nn.DataParallel)
    assert step_losses(twice) == pytest.approx(once, abs=CLOSE)


@pytest.mark.parametrize("name", ["leaf-ce", "bce"])
def test_rows_without_a_known_label_do_not_count(name, tmp_path):
    """Two of the rows of a step say nothing: it is the step of the other six."""
    tokens, index = token_rows(8)
    names = [NAMES[one] for one in index]
    loss = LOSSES[name](TREE)
    model = bert()
    expected = loss(model(input_ids=torch.from_numpy(tokens[2:])).logits, TREE.encode(names[2:]))
    args = arguments(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    trainer = transformers.Trainer(
        model,
        args,
        train_dataset=dataset(tokens, [None, "no class of the tree", *names[2:]]),
        data_collator=LabelCollator(loss, unknown="ignore", unlabeled_descendants="ignore"),
        compute_loss_func=TrainerLoss(loss),
    )
    with pytest.warns(UserWarning, match="unknown label 'no class of the tree'"):
        trainer.train()
    assert step_losses(trainer) == pytest.approx([expected.item()], abs=CLOSE)
