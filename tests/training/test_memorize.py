"""What a training leaves in the memory, and that validation and resuming see the same."""

import hashlib
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn.networks.memories import embeddings_of, memory_heads, remembered
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.checkpoint import Checkpoints
from hierlearn.training.inference import (
    BATCH,
    batches_of,
    encode_batches,
    member_probabilities,
    memorize,
)
from hierlearn.training.solvers.gradient import Trainer
from training.datasets import (
    neighbor_plan,
    partial_problem,
    plan,
    problem,
    read_records,
    state,
    texts,
    trainer_of,
)

QUIET = Reporting(bar=False)


def probabilities(trainer, rows=None):
    return member_probabilities(trainer.network, rows or trainer.valid, trainer.read)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---------------------------------------------------------------------- what is remembered


def test_every_training_row_is_remembered_with_its_labels_and_id():
    dataset = replace(problem(), ids=tuple(f"id {row}" for row in range(60)))
    trainer = trainer_of(dataset, neighbor_plan(epochs=1))
    assert remembered(trainer.network) is None
    trainer.train()
    rows, picked = remembered(trainer.network), dataset.splits["train"]
    assert list(rows.ids) == [f"id {row}" for row in picked]
    assert rows.labels.names(range(len(rows))) == [list(dataset.labels[row]) for row in picked]
    assert rows.weights is None
    assert rows.texts is None
    found = embeddings_of(trainer.network)["main"]
    assert (found.shape, found.dtype) == ((len(picked), 6), torch.float16)
    trainer.network.eval()
    with torch.no_grad():
        exact = trainer.network.embed(trainer.rows.inputs)["main"]
    assert torch.equal(found, exact.half())


def test_without_ids_rows_are_named_by_their_place_in_the_dataset_and_texts_are_kept():
    dataset = replace(texts(), splits={"train": np.array([3, 5, 6, 9, 11]), "valid": [1, 2]})
    trainer = trainer_of(dataset, neighbor_plan(network="token-bag", epochs=1))
    trainer.train()
    rows = remembered(trainer.network)
    assert list(rows.ids) == ["3", "5", "6", "9", "11"]
    assert list(rows.texts) == [dataset.inputs[row] for row in (3, 5, 6, 9, 11)]


def test_rows_of_weight_0_are_not_remembered():
    dataset, weights = problem(), np.random.default_rng(0).uniform(0.5, 2, 60)
    picked = dataset.splits["train"]
    weights[picked[::3]] = 0
    trainer = trainer_of(dataset, neighbor_plan(epochs=1), weights)
    trainer.train()
    rows, kept = remembered(trainer.network), [row for row in picked if weights[row]]
    assert list(rows.ids) == [str(row) for row in kept]
    assert rows.weights == pytest.approx(weights[kept])
    assert len(embeddings_of(trainer.network)["main"]) == len(kept)
    with torch.no_grad():
        inside = [n for n, row in enumerate(picked) if weights[row]]
        exact = trainer.network.eval().embed(trainer.rows.inputs[inside])["main"]
    assert torch.equal(embeddings_of(trainer.network)["main"], exact.half())


def test_rows_are_encoded_in_batches_without_dropout():
    trainer = trainer_of(problem(), neighbor_plan(dropout=0.5, ensemble_size=2, epochs=1))
    trainer.network.train()
    whole = encode_batches(trainer.network, batches_of(trainer.rows, BATCH))["main"]
    assert trainer.network.training
    assert whole.shape == (2, 36, 6)
    found = encode_batches(trainer.network, batches_of(trainer.rows, 5))["main"]
    torch.testing.assert_close(found, whole)
    index = torch.tensor([7, 3])
    some = encode_batches(trainer.network, batches_of(trainer.rows, 5, index))["main"]
    torch.testing.assert_close(some, whole[:, [7, 3]])


def test_a_network_without_a_memory_remembers_nothing():
    trainer = trainer_of(problem(), plan(epochs=1))
    trainer.train()
    memorize(trainer.network, trainer.rows)
    assert memory_heads(trainer.network) == {}
    assert remembered(trainer.network) is None


# ---------------------------------------------------------------------- validation


def figures(trainer, name):
    from hierlearn.metrics.measure import compute

    targets = trainer.valid.targets(torch.arange(len(trainer.valid)))
    return [
        float(compute(name, p, targets, trainer.loss.label_space)) for p in probabilities(trainer)
    ]


@pytest.mark.parametrize("size", [1, 2])
def test_validation_answers_from_rows_encoded_with_the_weights_of_now(size):
    chosen = neighbor_plan(ensemble_size=size, learning_rate=0.02, metric="au-prc")
    seen = []

    def on_epoch(record):
        memorize(trainer.network, trainer.rows)
        seen.append((record["valid"]["au-prc"], figures(trainer, "au-prc")))

    trainer = trainer_of(problem(), chosen, on_epoch=on_epoch)
    trainer.train()
    assert len(seen) == 3
    for recorded, fresh in seen:
        assert recorded == pytest.approx(fresh, abs=1e-9)
    assert seen[0][0] != seen[-1][0]


def test_early_stopping_restores_weights_and_the_memory_fits_them():
    chosen = neighbor_plan(
        joint={"mcloss": 1.0},
        answer="average",
        ensemble_size=2,
        epochs=25,
        patience=2,
        metric="hit@1",
        learning_rate=0.02,
        dropout=0.3,
    )
    trainer = trainer_of(problem(rows=80, spread=1.0), chosen)
    trainer.train()
    assert all(trainer.stopping.stopped)
    assert len(set(trainer.stopping.epoch)) > 1 or max(trainer.stopping.epoch) < trainer.epoch
    left = torch.stack(probabilities(trainer))
    for member, value in enumerate(figures(trainer, "hit@1")):
        assert value == pytest.approx(trainer.stopping.value[member])
    before = embeddings_of(trainer.network)["main"].clone()
    memorize(trainer.network, trainer.rows)
    assert torch.equal(embeddings_of(trainer.network)["main"], before)
    assert torch.equal(torch.stack(probabilities(trainer)), left)


def test_metrics_by_rows_that_answer_for_themselves_would_show():
    """A validation with the memory of an epoch before would give other figures."""
    trainer = trainer_of(problem(), neighbor_plan(learning_rate=0.05, epochs=2))
    trainer.train_epoch()
    stale = embeddings_of(trainer.network)["main"].clone()
    trainer.train_epoch()
    assert not torch.equal(embeddings_of(trainer.network)["main"], stale)


# ---------------------------------------------------------------------- resuming

CASES = {
    "in the midst of epochs": (problem, {"dropout": 0.5, "checkpoint_every": 2}, None),
    "joint heads, stacked, stopping early": (
        lambda: problem(rows=80, spread=1.0),
        {
            "joint": {"soft-labels": 3.0, "hcl": 1.0},
            "head": {"learn_scale": True},
            "ensemble_size": 2,
            "checkpoint_every": 3,
            "patience": 1,
            "metric": "hit@1",
            "epochs": 6,
            "learning_rate": 0.02,
            "dropout": 0.3,
        },
        None,
    ),
    "partial labels, weights": (
        partial_problem,
        {"unlabeled_descendants": "ignore", "dropout": 0.3, "checkpoint_every": 4, "epochs": 2},
        np.random.default_rng(0).uniform(0, 2, 60),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_training_goes_on_bit_for_bit_to_the_same_weights_and_memory(tmp_path, case):
    make, options, weights = CASES[case]
    dataset, chosen = make(), neighbor_plan(**options, keep_checkpoints=1000)
    whole = tmp_path / "whole"
    train(dataset, chosen, out=whole, weights=weights, reporting=QUIET)
    paths = Checkpoints(whole / "checkpoints").paths()
    assert len(paths) >= 4
    for path in {paths[0], paths[len(paths) // 2], paths[-2]}:
        out = tmp_path / path.stem
        (out / "checkpoints").mkdir(parents=True)
        shutil.copy(path, out / "checkpoints")
        shutil.copy(whole / "log.jsonl", out)
        train(dataset, chosen, out=out, weights=weights, resume=True, reporting=QUIET)
        for name in ("model.safetensors", "memory-00001.safetensors", "memory.json"):
            assert digest(out / name) == digest(whole / name), name
        assert read_records(out) == read_records(whole)


def test_checkpoints_hold_no_memory(tmp_path):
    kept = {}
    trainer = trainer_of(
        problem(), neighbor_plan(), save=lambda step, tensors, facts: kept.update({step: tensors})
    )
    trainer.train()
    for tensors in kept.values():
        assert not any("memory" in name or "embeddings" in name for name in tensors)
    assert set(state(trainer)) == {
        "encoder.hidden.0.weight",
        "encoder.hidden.0.bias",
        "heads.main.projection.linear.weight",
    }
    assert isinstance(trainer, Trainer)
