"""A stacked model ends as the model that is trained alone with its seed."""

import json

import numpy as np
import pytest
import torch

from hierlearn.networks.ensemble import members_of
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from training.datasets import last_layer, partial_problem, plan, problem, state, texts, trainer_of

SEEDS = 3
QUIET = Reporting(bar=False)
LITERAL = {"link": "softmax", "scope": "ancestors", "floor": 0.0}


def run(dataset, chosen, weights=None):
    records = []
    trainer = trainer_of(dataset, chosen, weights, on_epoch=records.append)
    trainer.train()
    return trainer, records


def assert_same_statistics(alone, stacked, member):
    """What a curriculum has gathered is the same for a member as for a network alone."""
    for name in ("selected", "epoch_losses", "ever_selected", "rewards"):
        if hasattr(alone, name):
            mine, theirs = getattr(alone, name), getattr(stacked, name)[member]
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def compare(dataset, weights=None, **options):
    """Train seeds 4, 5 and 6 stacked and alone, and compare all that they leave."""
    stacked, together = run(dataset, plan(seed=4, ensemble_size=SEEDS, **options), weights)
    assert members_of(stacked.network) == SEEDS
    for member in range(SEEDS):
        alone, records = run(dataset, plan(seed=4 + member, **options), weights)
        for name, value in state(alone).items():
            found = state(stacked, member)[name]
            torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)
        for one, many in zip(records, together, strict=False):
            assert many["loss"][member] == pytest.approx(one["loss"][0], rel=1e-4)
            for name, values in one.get("valid", {}).items():
                assert many["valid"][name][member] == pytest.approx(values[0], abs=1e-6)
        assert stacked.stopping.epoch[member] == alone.stopping.epoch[0]
        assert stacked.stopping.stopped[member] == alone.stopping.stopped[0]
        assert_same_statistics(alone.loss, stacked.loss, member)
    return stacked, together


@pytest.mark.parametrize(
    "loss", ["bce", "leaf-ce", "hxe", "mcloss", "mixed", "soft-labels", "teacher"]
)
def test_several_losses_with_dropout_and_clipping(loss):
    compare(problem(), loss=loss, dropout=0.3, max_grad_norm=0.02, weight_decay=0.1, warmup=0.2)


@pytest.mark.parametrize(
    "options", [{}, LITERAL, {"scope": "ancestors", "normalize": "mean"}], ids=str
)
def test_curricula(options):
    stacked, records = compare(problem(), loss="hcl", options=options, dropout=0.3, epochs=4)
    assert stacked.loss.selection.shape == (SEEDS, 12)
    assert records[-1]["selected_by_level"][-1] < 1


def test_masks_and_rows_without_labels():
    compare(partial_problem(), loss="hcl", unlabeled_descendants="ignore", dropout=0.3)


def test_weights_of_rows():
    weights = np.random.default_rng(0).uniform(0, 2, 60)
    compare(problem(), weights, loss="mixed", dropout=0.3)


def test_bags_of_tokens():
    compare(texts(), loss="leaf-ce", network="token-bag", dropout=0.3)


def test_linear_networks():
    compare(problem(), loss="bce", network="linear", max_grad_norm=0.01)


def test_input_dropout():
    chosen = {"width": 8, "depth": 2, "dropout": 0.2, "input_dropout": 0.3}
    results = []
    for seeds, seed in ((2, 0), (1, 1)):
        one = plan("bce", ensemble_size=seeds, seed=seed)
        one.network_options.clear()
        one.network_options.update(chosen)
        results.append(state(run(problem(), one)[0], 1 if seeds == 2 else None))
    for name, value in results[1].items():
        torch.testing.assert_close(results[0][name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["hit@1", "hier-dist"], ids=["up", "down"])
def test_each_member_stops_early_by_itself(metric):
    """The members stop in different epochs, each with its own best weights."""
    stacked, records = compare(
        problem(rows=80, spread=1.0),
        loss="bce",
        dropout=0.3,
        epochs=25,
        patience=2,
        metric=metric,
        learning_rate=0.02,
    )
    assert len(set(stacked.stopping.epoch)) > 1
    assert all(stacked.stopping.stopped)
    assert len(records) == max(stacked.stopping.epoch) + 2
    for member, best in enumerate(stacked.stopping.epoch):
        figures = [record["valid"][metric][member] for record in records]
        losses = [record["loss"][member] for record in records]
        ended = best + 2  # patience
        # What a model that has stopped would tell is no figure of its training.
        assert all(value is None for value in (*figures[ended:], *losses[ended:]))
        told = figures[:ended]
        assert None not in told
        chosen = max(told) if metric == "hit@1" else min(told)
        assert told.index(chosen) + 1 == best
        assert stacked.stopping.value[member] == chosen


def test_a_model_that_has_stopped_cannot_break_the_others():
    dataset = problem(rows=80, spread=1.0)
    options = {"epochs": 25, "patience": 2, "metric": "hit@1", "learning_rate": 0.02}
    undisturbed, _ = run(dataset, plan("bce", ensemble_size=2, **options))
    first = min(range(2), key=lambda member: undisturbed.stopping.epoch[member])
    ends = undisturbed.stopping.epoch[first] + 2
    assert undisturbed.stopping.epoch[1 - first] + 2 > ends
    trainer = trainer_of(dataset, plan("bce", ensemble_size=2, **options))

    def break_it(_):
        if trainer.stopping.stopped[first]:
            last_layer(trainer.network).weight.data[first] = float("nan")

    trainer.on_step = break_it
    trainer.train()
    for name, value in state(undisturbed).items():
        torch.testing.assert_close(state(trainer)[name], value)


@pytest.mark.parametrize("patience", [3, 20], ids=["it stops", "it does not stop"])
def test_a_member_whose_metric_is_never_a_number_keeps_its_last_weights(patience):
    # Without a mistake there is no severity of mistakes: the second model has one, the first none.
    dataset = problem(rows=60, spread=0.2, depth=1)
    options = {"metric": "mistake-severity", "epochs": 8, "learning_rate": 0.1}
    options["patience"] = patience
    stacked, _ = run(dataset, plan("leaf-ce", ensemble_size=2, seed=1, **options))
    assert stacked.stopping.epoch == [0, 1]
    for member in range(2):
        alone, _ = run(dataset, plan("leaf-ce", seed=1 + member, **options))
        for name, value in state(alone).items():
            found = state(stacked, member)[name]
            torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)


def test_validation_now_and_then():
    dataset = problem()
    _, records = run(dataset, plan(epochs=5, validate_every=2, metric="mrr"))
    assert [record["epoch"] for record in records if "valid" in record] == [2, 4, 5]


def test_the_probabilities_of_a_stacked_model_are_the_mean_of_its_members(tmp_path):
    dataset = problem()
    stacked = train(dataset, plan("leaf-ce", ensemble_size=2), out=tmp_path / "m", reporting=QUIET)
    alone = [train(dataset, plan("leaf-ce", seed=seed), reporting=QUIET) for seed in range(2)]
    rows = dataset.inputs[:9]
    expected = torch.stack([model.probabilities(rows) for model in alone]).mean(dim=0)
    torch.testing.assert_close(stacked.probabilities(rows), expected, rtol=1e-4, atol=1e-5)
    told = json.loads((tmp_path / "m" / "config.json").read_text())["training"]
    assert len(told["improved_at_the_last_epoch"]) == 2
