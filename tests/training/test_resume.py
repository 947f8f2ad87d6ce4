"""From every checkpoint a training ends in the same weights, bit for bit; others are refused."""

import hashlib
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import Hierarchy
from hierlearn.losses import CollapseWarning
from hierlearn.losses.functional import bce_loss
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training.checkpoint import CheckpointError, Checkpoints, read_tensors, write_tensors
from training.datasets import (
    TREE,
    assert_identical,
    partial_problem,
    plan,
    problem,
    read_records,
    state,
    texts,
    trainer_of,
)

NOT_OURS = "was not written by hierlearn, or by an older version"
SOFT = {"link": "softmax", "scope": "ancestors", "floor": 0.0}
CASES = {
    "dropout": (problem, {"loss": "bce", "dropout": 0.5, "epochs": 3}),
    "in the midst of epochs": (
        problem,
        {"loss": "hcl", "dropout": 0.5, "checkpoint_every": 2, "epochs": 3},
    ),
    "an epoch curriculum, stacked, stopping early": (
        lambda: problem(rows=80, spread=1.0),
        {
            "loss": "hcl",
            "options": SOFT,
            "dropout": 0.3,
            "ensemble_size": 2,
            "checkpoint_every": 3,
            "patience": 1,
            "metric": "hit@1",
            "epochs": 6,
            "learning_rate": 0.02,
        },
    ),
    "a mask, a mixed loss with a curriculum": (
        partial_problem,
        {
            "loss": "mixed",
            "options": {"parts": {"bce": 0.5, "hcl": 0.5}},
            "unlabeled_descendants": "ignore",
            "dropout": 0.3,
            "checkpoint_every": 4,
            "epochs": 2,
        },
    ),
    "levels one after another, stacked, stopping early": (
        partial_problem,
        {
            "loss": "bce",
            "network": "hmc-lmlp",
            "dropout": 0.3,
            "ensemble_size": 2,
            "checkpoint_every": 4,
            "unlabeled_descendants": "ignore",
            "weight_decay": 0.1,
            "patience": 1,
            "learning_rate": 0.05,
            "epochs": 7,
        },
    ),
    "a teacher, stacked, in the midst of epochs": (
        partial_problem,
        {
            "loss": "teacher",
            "unlabeled_descendants": "ignore",
            "ensemble_size": 2,
            "checkpoint_every": 3,
            "epochs": 4,
        },
    ),
    "texts": (texts, {"loss": "leaf-ce", "dropout": 0.3, "network": "token-bag", "epochs": 2}),
}

QUIET = Reporting(bar=False)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("case", CASES)
def test_every_checkpoint_goes_on_bit_for_bit(tmp_path, case):
    make, options = CASES[case]
    dataset, chosen = make(), plan(**options, keep_checkpoints=1000)
    whole = train(dataset, chosen, out=tmp_path / "whole", reporting=QUIET)
    paths = Checkpoints(tmp_path / "whole" / "checkpoints").paths()
    assert len(paths) >= 2
    for number, path in enumerate(paths):
        out = tmp_path / str(number)
        (out / "checkpoints").mkdir(parents=True)
        shutil.copy(path, out / "checkpoints")
        shutil.copy(tmp_path / "whole" / "log.jsonl", out)  # it may be ahead of the checkpoint
        before = digest(path)
        model = train(dataset, chosen, out=out, resume=True, reporting=QUIET)
        for name in ("model.safetensors", "hierarchy.json"):
            assert digest(out / name) == digest(tmp_path / "whole" / name)
        assert read_records(out) == read_records(tmp_path / "whole")
        assert digest(out / "checkpoints" / path.name) == before
        assert model.config["training"] == whole.config["training"]
        shutil.rmtree(out)


def test_weights_of_rows_go_on_too(tmp_path):
    dataset, weights = problem(), np.random.default_rng(0).uniform(0, 2, 60)
    chosen = plan("hcl", dropout=0.3, keep_checkpoints=9)
    train(dataset, chosen, out=tmp_path / "whole", weights=weights, reporting=QUIET)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / "config.json").unlink()
    for path in Checkpoints(tmp_path / "cut" / "checkpoints").paths()[1:]:
        path.unlink()
    train(dataset, chosen, out=tmp_path / "cut", weights=weights, resume=True, reporting=QUIET)
    assert digest(tmp_path / "cut" / "model.safetensors") == digest(
        tmp_path / "whole" / "model.safetensors"
    )
    (tmp_path / "cut" / "config.json").unlink()
    with pytest.raises(CheckpointError, match="was trained on other rows; train again"):
        train(
            dataset, chosen, out=tmp_path / "cut", weights=2 * weights, resume=True, reporting=QUIET
        )


class Elsewhere(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.noise = torch.nn.Linear(5, width), torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(width, 12)

    def forward(self, x):
        return self.last(self.noise(self.first(x).relu()))


def elsewhere(folder, width=8):
    torch.manual_seed(3)
    save = Checkpoints(folder, keep=9).save
    return trainer_of(problem(), plan("hcl"), network=Elsewhere(width), save=save)


def test_a_network_from_elsewhere_goes_on_bit_for_bit(tmp_path):
    whole = elsewhere(tmp_path / "whole")
    whole.train()
    cut = elsewhere(tmp_path / "cut")
    cut.train_epoch()
    again = elsewhere(tmp_path / "again")
    torch.rand(5)  # whatever torch's own generator did in between
    again.resume(Checkpoints(tmp_path / "cut").latest())
    again.train()
    assert_identical(state(again), state(whole))
    wider = elsewhere(tmp_path / "wide", width=9)
    with pytest.raises(CheckpointError, match=r"does not fit this network.*train again in another"):
        wider.resume(Checkpoints(tmp_path / "cut").latest())


def test_the_best_weights_in_a_checkpoint_file_are_not_written_to(tmp_path):
    chosen = plan(patience=9, metric="au-prc", epochs=6, learning_rate=0.02)
    trainer = trainer_of(problem(), chosen, save=Checkpoints(tmp_path, 9).save)
    trainer.train_epoch()
    path = Checkpoints(tmp_path).paths()[0]
    before = digest(path)
    again = trainer_of(problem(), chosen)
    again.resume(Checkpoints(tmp_path).latest())
    first = {name: value.clone() for name, value in again.stopping.weights[0].items()}
    again.train()
    assert again.stopping.epoch[0] > 1
    assert not torch.equal(
        first["heads.main.linear.weight"], again.stopping.weights[0]["heads.main.linear.weight"]
    )
    assert digest(path) == before


def test_classes_selected_before_the_cut_are_not_called_left_out(tmp_path):
    chosen = plan("hcl-paper", epochs=1, checkpoint_every=4, batch_size=4)
    warned = []
    for resumed in (False, True):
        trainer = trainer_of(problem(), chosen, save=Checkpoints(tmp_path, 99).save)
        if resumed:
            Checkpoints(tmp_path).paths()[-1].unlink()
            trainer.resume(Checkpoints(tmp_path).latest())
            assert trainer.step == 8
            assert trainer.loss.ever_selected.any()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CollapseWarning)
            trainer.train()
        warned.append([str(one.message) for one in caught])
    assert warned[0] == warned[1]


# ---------------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A training that was cut after its second epoch of three."""
    folder = tmp_path_factory.mktemp("begun")
    train(problem(), plan("hcl"), out=folder, reporting=QUIET)
    (folder / "config.json").unlink()
    Checkpoints(folder / "checkpoints").paths()[-1].unlink()
    return folder


@pytest.fixture
def cut(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "cut")


def go_on(folder, dataset=None, chosen=None, **options):
    dataset = problem() if dataset is None else dataset
    options = {"reporting": QUIET, **options}
    return train(dataset, chosen or plan("hcl"), out=folder, resume=True, **options)


def refusal(folder, *given):
    before = sorted(folder.rglob("*"))
    with pytest.raises(CheckpointError) as caught:
        go_on(folder, *given)
    assert sorted(folder.rglob("*")) == before  # nothing was written
    return str(caught.value).replace(str(folder), "FOLDER")


def test_it_goes_on_at_all(cut):
    assert go_on(cut).config["training"]["steps"] == 15


def test_another_hierarchy_is_refused(cut):
    dataset = problem()
    names = {name: name.upper() for name in dataset.hierarchy.names}
    parents = {
        names[name]: [names[dataset.hierarchy.names[p]] for p in dataset.hierarchy.parents(number)]
        for number, name in enumerate(dataset.hierarchy.names)
    }
    other = Hierarchy.from_parents(parents)
    labels = [[names[label] for label in row] for row in dataset.labels]
    assert refusal(cut, replace(dataset, hierarchy=other, labels=labels)) == (
        f"FOLDER/checkpoints/step-000000000010.safetensors is of another hierarchy: fingerprint "
        f"{dataset.hierarchy.fingerprint[:12]}, this one has {other.fingerprint[:12]}"
    )


def test_other_rows_labels_and_validation_rows_are_refused(cut):
    dataset = problem()
    sentence = (
        "FOLDER/checkpoints/step-000000000010.safetensors was trained on other rows; train again "
        "in another folder"
    )
    inputs = dataset.inputs.copy()
    inputs[dataset.splits["train"][0], 0] += 1
    assert refusal(cut, replace(dataset, inputs=inputs)) == sentence
    labels = [list(row) for row in dataset.labels]
    row = dataset.splits["train"][0]
    labels[row] = ["c3"] if labels[row] != ["c3"] else ["c4"]
    assert refusal(cut, replace(dataset, labels=labels)) == sentence
    fewer = {**dataset.splits, "valid": dataset.splits["valid"][1:]}
    assert refusal(cut, replace(dataset, splits=fewer)) == sentence


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (plan("hcl", epochs=4), "epochs=3, now epochs=4"),
        (plan("hcl", learning_rate=0.1), "learning_rate=0.001, now learning_rate=0.1"),
        (plan("bce"), "loss='hcl', now loss='bce'"),
        (plan("hcl", options={"floor": 0.2}), "loss_options={}, now loss_options={'floor': 0.2}"),
        (plan("hcl", ensemble_size=2), "ensemble_size=1, now ensemble_size=2"),
    ],
)
def test_another_plan_is_refused(cut, chosen, words):
    assert refusal(cut, None, chosen) == (
        f"FOLDER/checkpoints/step-000000000010.safetensors was trained with {words}; use the "
        f"same, or train again in another folder"
    )


def test_what_may_change_from_one_attempt_to_the_next(cut):
    model = go_on(cut, None, plan("hcl", checkpoint_every=3, keep_checkpoints=5))
    assert model.config["training"]["steps"] == 15


def test_plain_values_in_any_guise_are_the_same_plan(tmp_path):
    first = plan("level-weighted", options={"weights": (1.0, 0.5)})
    train(problem(), first, out=tmp_path, reporting=QUIET)
    (tmp_path / "config.json").unlink()
    listed = plan("level-weighted", options={"weights": [1.0, 0.5]})
    assert go_on(tmp_path, None, listed).config["training"]["steps"] == 15
    assert go_on(tmp_path, None, first).config["training"]["steps"] == 15  # finished by now


def test_options_that_no_file_can_hold_are_refused_before_the_work(tmp_path):
    chosen = plan("hcl", options={"base": lambda p, q, y: bce_loss(p, q, y)})
    with pytest.raises(HierlearnError, match="loss_options cannot be written as JSON"):
        train(problem(), chosen, out=tmp_path / "m", reporting=QUIET)
    assert train(problem(), chosen, reporting=QUIET).config["settings"]["epochs"] == 3


@pytest.mark.parametrize("length", [0, 4, 100, 3000])
def test_a_truncated_checkpoint_is_refused_and_the_one_before_named(cut, length):
    path = Checkpoints(cut / "checkpoints").paths()[-1]
    older = path.with_name("step-000000000005.safetensors")
    shutil.copy(path, older)
    path.write_bytes(path.read_bytes()[:length])
    said = refusal(cut)
    assert said.startswith(f"FOLDER/checkpoints/{path.name} is damaged or truncated (")
    assert said.endswith(
        "); use an earlier one or train again; remove it to resume from "
        "step-000000000005.safetensors"
    )


def test_a_checkpoint_from_elsewhere_is_refused(cut):
    from safetensors.torch import save_file

    path = Checkpoints(cut / "checkpoints").paths()[-1]
    save_file({"a": torch.zeros(2)}, path)
    assert refusal(cut) == f"FOLDER/checkpoints/{path.name} {NOT_OURS}"
    save_file({"a": torch.zeros(2)}, path, {"hierlearn": "[1"})
    assert refusal(cut) == f"FOLDER/checkpoints/{path.name} {NOT_OURS}"
    write_tensors(path, {"a": torch.zeros(2)}, {"format": "hierlearn.model"})
    assert refusal(cut) == f"FOLDER/checkpoints/{path.name} is not a checkpoint of a training"
    write_tensors(path, {"a": torch.zeros(2)}, {"format": "hierlearn.checkpoint"})
    assert refusal(cut) == (
        f"FOLDER/checkpoints/{path.name} does not name its training; train again in another folder"
    )


def test_a_checkpoint_without_its_weights_is_refused(cut):
    path = Checkpoints(cut / "checkpoints").paths()[-1]
    tensors, facts = read_tensors(path)
    write_tensors(
        path, {k: v for k, v in tensors.items() if k != "network/heads.main.linear.bias"}, facts
    )
    assert refusal(cut).startswith(
        f"FOLDER/checkpoints/{path.name} does not fit this network, its losses or its optimizer ("
    )


# ---------------------------------------------------------------------- finished, or not begun


def test_a_finished_training_is_loaded_and_only_with_the_same_plan(tmp_path):
    said = []
    first = train(problem(), plan("hcl"), out=tmp_path / "m", reporting=QUIET)
    again = go_on(tmp_path / "m", reporting=Reporting(bar=False, on_message=said.append))
    assert said == [f"{tmp_path / 'm'} is finished already"]
    assert_identical(state(again.network), state(first.network))
    assert refusal(tmp_path / "m", None, plan("bce")).startswith(
        "FOLDER was trained with loss='hcl', now loss='bce'"
    )
    other = replace(partial_problem(), hierarchy=TREE)
    assert refusal(tmp_path / "m", other).startswith("FOLDER is of another hierarchy: fingerprint")


def test_a_model_that_was_saved_elsewhere_is_no_training_to_go_on_with(tmp_path):
    train(problem(), plan("hcl"), reporting=QUIET).save(tmp_path / "m")
    assert refusal(tmp_path / "m") == (
        "FOLDER does not name its training; train again in another folder"
    )


def test_resuming_nothing_begins(tmp_path):
    assert go_on(tmp_path / "m").config["training"]["steps"] == 15
    assert (tmp_path / "m" / "config.json").is_file()
