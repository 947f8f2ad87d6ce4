"""A row of weight 2 is two rows, one of weight 0 none: in loss, gradient and curriculum."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn.losses import LOSSES
from training.datasets import partial_problem, plan, problem, trainer_of, without_splits


def gradients(dataset, loss, weights=None, options=None):
    """Return the loss and the gradients of one step of all rows at once."""
    chosen = plan(loss, epochs=1, batch_size=1000, prior_bias=False, options=options)
    records = []
    rows = without_splits(dataset)
    trainer = trainer_of(rows, replace(chosen, standardize=False), weights, on_epoch=records.append)
    trainer.train()
    found = {name: value.grad for name, value in trainer.network.named_parameters()}
    return {"loss": torch.tensor(records[0]["loss"]), **found}


def differ(first, second):
    return not torch.allclose(
        first["heads.main.linear.weight"], second["heads.main.linear.weight"], rtol=1e-3, atol=1e-6
    )


WEIGHTED = [
    name for name in LOSSES if name not in ("sample-curriculum", "hcl-cl", "hcl-paper")
]  # the first selects rows, the others drop classes


@pytest.mark.parametrize("kind", ["one path", "any labels"])
@pytest.mark.parametrize("loss", WEIGHTED)
def test_weight_2_is_the_row_twice_and_weight_0_the_row_absent(loss, kind):
    dataset = problem(rows=30) if kind == "one path" else partial_problem(rows=30)
    weights = np.ones(30)
    weights[3:9], weights[20:24] = 2, 0
    rows = [*range(20), *range(24, 30), *range(3, 9)]
    weighted, copied = gradients(dataset, loss, weights), gradients(dataset.take(rows), loss)
    for name, value in weighted.items():
        torch.testing.assert_close(value, copied[name], rtol=1e-4, atol=1e-6)
    assert differ(weighted, gradients(dataset, loss))


@pytest.mark.parametrize("loss", WEIGHTED)
def test_weights_that_are_all_alike_change_nothing(loss):
    dataset = partial_problem(rows=30)
    options = {"normalize": "mean"} if "hcl" in loss else {}  # the selection of sums sees the scale
    without = gradients(dataset, loss, options=options)
    weighted = gradients(dataset, loss, np.full(30, 2.5), options=options)
    for name, value in without.items():
        torch.testing.assert_close(value, weighted[name], rtol=1e-4, atol=1e-6)


def test_a_curriculum_counts_a_row_as_its_weight_says():
    dataset = without_splits(problem(rows=30))
    weights = np.array([25.0 if row[0].startswith("c0/") else 1.0 for row in dataset.labels])
    copies = dataset.take(np.repeat(np.arange(30), weights.astype(int)))
    selected = []
    for rows, given in ((dataset, weights), (copies, None), (dataset, None)):
        chosen = plan("hcl", batch_size=1000, prior_bias=False, epochs=1)
        trainer = trainer_of(rows, replace(chosen, standardize=False), given)
        trainer.train()
        selected.append(trainer.loss.selection.tolist())
    assert selected[0] == selected[1] != selected[2]
