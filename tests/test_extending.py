"""One file and one registry line add a thing: toys of every kind, trained, compared, saved, loaded.

Each toy is registered once, as a user would, and then used by name everywhere: by the trainer, a
study, the metrics, the command line, and a model folder that is read back.
"""

import json

import numpy as np
import pytest
import torch
from torch import nn

from hierlearn import (
    DATASETS,
    DECODERS,
    FEATURES,
    LINKS,
    LOSSES,
    METRICS,
    NETWORKS,
    RECIPES,
    HierarchicalClassifier,
    Plan,
    Recipe,
    compare,
    evaluate,
    load,
    train,
)
from hierlearn.cli import app
from hierlearn.datasets import read_table
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.decoding import Decoder
from hierlearn.errors import HierlearnError
from hierlearn.features import Preprocessor
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.lab.protocol import Protocol
from hierlearn.links import HeadOutput, Link
from hierlearn.losses import ElementwiseLoss
from hierlearn.metrics import Metric
from hierlearn.networks import Head, Network
from hierlearn.pipeline.run import Reporting

QUIET = Reporting(bar=False)
FAST = {"epochs": 3, "batch_size": 16, "learning_rate": 0.05, "device": "cpu"}


# ---------------------------------------------------------------------- the toys


class Brier(ElementwiseLoss):
    """A flat loss: the squared error of every class."""

    uses_hierarchy = False
    search_space = {"power": (1.0, 2.0)}  # noqa: RUF012

    def __init__(self, label_space, *, power=2.0, **options):
        super().__init__(label_space, **options)
        self.power = power

    def losses(self, output, targets, mask):
        return (output.probabilities - targets.to(output.log_p.dtype)).abs() ** self.power


class Patient(ElementwiseLoss):
    """A stateful loss: classes are learned one level after another as the training goes on."""

    def __init__(self, label_space, **options):
        super().__init__(label_space, **options)
        self.register_buffer("epochs", torch.zeros(()), persistent=True)
        self.progress, self.last = 0.0, None

    def set_progress(self, progress):
        self.progress = progress

    def end_epoch(self):
        self.epochs += 1

    @property
    def selection(self):
        return self.last

    def losses(self, output, targets, mask):
        levels = torch.tensor(self.hierarchy.levels)
        chosen = levels <= 1 + self.progress * self.hierarchy.depth
        self.last = chosen
        plain = -torch.where(targets.bool(), output.log_p, output.log_not_p)
        return plain * chosen.to(plain.dtype)


class Tempered(Link):
    """A link: a sigmoid at twice the temperature."""

    def log_probabilities(self, logits):
        return nn.functional.logsigmoid(logits / 2), nn.functional.logsigmoid(-logits / 2)


class Second(Decoder):
    """A decoder: the second best leaf."""

    answers = "class"

    def __init__(self, label_space, rank=2):
        super().__init__(label_space)
        self.rank = rank

    def decide(self, p, allowed=None):
        leaves = torch.tensor(self.hierarchy.leaves)
        return leaves[p[:, leaves].argsort(dim=1, descending=True)[:, self.rank - 1]]


def top_mass(scores, targets, label_space, reduction="mean"):
    """A metric: the probability of the row's own top classes."""
    columns = label_space.hierarchy.level_slices[0]
    rows = (scores[:, columns] * targets[:, columns]).sum(dim=1).double()
    return rows if reduction == "none" else rows.mean()


class Ladder(Head):
    """A head with a taxonomy inside, and no logits: one sigmoid per level, chained by parents."""

    def __init__(self, features, label_space):
        super().__init__()
        self.hierarchy = label_space.hierarchy
        sizes = self.hierarchy.level_sizes
        self.levels = nn.ModuleList(nn.Linear(features, size) for size in sizes)

    def forward(self, features):
        given = torch.cat([layer(features) for layer in self.levels], dim=-1)
        log_p = self.hierarchy.sum_down(nn.functional.logsigmoid(given))
        return HeadOutput(log_p, torch.log1p(-log_p.exp().clamp_max(1 - 1e-6)))


def ladder(label_space, inputs, *, width=16):
    encoder = nn.Sequential(nn.Linear(inputs.width, width), nn.ReLU(), nn.Dropout(0.1))
    return Network(encoder, Ladder(width, label_space))


class Ranks(Preprocessor):
    """A feature step: every number as its fraction among the training values."""

    name = "ranks"
    reads = "numbers"

    def __init__(self, *, shift=0.0):
        self.shift, self.values = shift, None

    @property
    def columns(self):
        return self.values.shape[1]

    def fit(self, inputs):
        self.values = np.sort(np.asarray(inputs), axis=0)
        return self

    def transform(self, inputs):
        places = [
            np.searchsorted(self.values[:, c], np.asarray(inputs)[:, c])
            for c in range(self.columns)
        ]
        return (np.stack(places, axis=1) / len(self.values) - self.shift).astype(np.float32)

    def state(self):
        return {"name": self.name, "shift": self.shift}, {"values": self.values}

    @classmethod
    def from_state(cls, settings, arrays):
        new = cls(shift=settings["shift"])
        new.values = arrays["values"]
        return new


def toy_rows(rows: int = 90, seed: int = 0):
    return make_synthetic(rows=rows, features=5, depth=2, fan_out=3, seed=seed)


TOYS = {
    "loss": (LOSSES, "brier", Brier),
    "stateful loss": (LOSSES, "patient", Patient),
    "link": (LINKS, "tempered", Tempered),
    "decoder": (DECODERS, "second", Second),
    "metric": (
        METRICS,
        "top-mass",
        Metric("top-mass", top_mass, "mass of the row's top class", unit="percent", per_row=True),
    ),
    "network": (NETWORKS, "ladder", ladder),
    "features": (FEATURES, "ranks", Ranks),
    "dataset": (DATASETS, "toys", DatasetEntry("toys", "toy rows", "generated", toy_rows)),
    "recipe": (
        RECIPES,
        "toy",
        Recipe(
            "brier",
            "squared errors on a ladder",
            network="ladder",
            network_options={"width": 8},
            decoder="second",
            settings={"schedule": "constant"},
        ),
    ),
}
PLANS = {
    "loss": {"loss": "brier", "loss_options": {"power": 1.5}},
    "stateful loss": {"loss": "patient"},
    "link": {"loss": "bce", "loss_options": {"link": "tempered"}, "link": "tempered"},
    "decoder": {"decoder": "second", "decoder_options": {"rank": 1}},
    "metric": {"loss": "bce", "settings": {"metric": "top-mass", "patience": 1}},
    "network": {"loss": "hcl", "network": "ladder", "network_options": {"width": 12}},
    "features": {"preprocessing": "ranks", "preprocessing_options": {"shift": 0.5}},
    "dataset": {"loss": "leaf-ce"},
    "recipe": {"recipe": "toy"},
}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Register every toy, each by one line, for the length of a test."""
    for registry, name, toy in TOYS.values():
        monkeypatch.setitem(registry, name, toy)


def plan_for(kind, **settings):
    chosen = dict(PLANS[kind])
    return Plan(**{**chosen, "settings": {**FAST, **chosen.get("settings", {}), **settings}})


# ---------------------------------------------------------------------- what is done with them


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("size", [1, 2], ids=["alone", "ensemble"])
def test_a_toy_trains_predicts_saves_and_loads(kind, size, tmp_path):
    dataset = DATASETS["toys"]()
    plan = plan_for(kind, ensemble_size=size)
    pipeline = train(dataset, plan, tmp_path / "m", reporting=QUIET)
    again = load(tmp_path / "m")
    rows = dataset.inputs[:7]
    assert torch.equal(again.probabilities(rows), pipeline.probabilities(rows))
    assert again.predict(rows) == pipeline.predict(rows)
    figures = evaluate(again, dataset.split("test"), ["top-mass", "leaf-accuracy"])
    assert 0 <= figures["top-mass"] <= 1
    log = [json.loads(line) for line in (tmp_path / "m" / "log.jsonl").read_text().splitlines()]
    assert all(value is None or np.isfinite(value) for one in log for value in one["loss"])
    assert log[0]["loss"] != log[-1]["loss"]


@pytest.mark.parametrize("kind", PLANS)
def test_a_toy_resumes_bit_for_bit(kind, tmp_path):
    dataset, plan = DATASETS["toys"](), plan_for(kind, keep_checkpoints=9)
    train(dataset, plan, tmp_path / "m", reporting=QUIET)
    weights = (tmp_path / "m" / "model.safetensors").read_bytes()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "m" / name).unlink()
    last = sorted((tmp_path / "m" / "checkpoints").iterdir())[-1]
    last.unlink()
    train(dataset, plan, tmp_path / "m", resume=True, reporting=QUIET)
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == weights


def test_toys_learn():
    """The trainings above would show little if a toy were ignored."""
    dataset = DATASETS["toys"](rows=300)
    plans = {kind: plan_for(kind, epochs=10, patience=None) for kind in PLANS}
    accuracy = {
        kind: evaluate(
            train(dataset, plan, reporting=QUIET), dataset.split("test"), ["leaf-accuracy"]
        )
        for kind, plan in plans.items()
    }
    for kind, figures in accuracy.items():
        assert figures["leaf-accuracy"] > 0.3, kind  # one of nine leaves by chance


def test_the_toys_are_what_is_used(tmp_path):
    dataset = DATASETS["toys"]()
    best = train(dataset, plan_for("decoder"), reporting=QUIET)
    second = best.predict(dataset.inputs, "second")
    assert best.predict(dataset.inputs) == best.predict(dataset.inputs, "leaf") != second
    toy = train(dataset, plan_for("recipe"), reporting=QUIET)
    assert toy.config["recipe"]["loss"] == "brier"
    assert toy.network_spec.name == "ladder"
    assert toy.network(torch.zeros(1, 5)).logits is None
    patient = []
    heard = Reporting(bar=False, on_epoch=patient.append)
    train(dataset, plan_for("stateful loss"), reporting=heard)
    assert patient[0]["selected_by_level"][0] == 1
    assert patient[0]["selected_by_level"][1] < patient[-1]["selected_by_level"][1]
    ranks = train(dataset, plan_for("features"), reporting=QUIET)
    assert ranks.preprocessor.transform(dataset.inputs).max() <= 0.5


def test_toys_are_compared_with_what_is_there(tmp_path):
    candidates = parse_candidates(
        ["bce", "brier:power=1.0", "patient", "loss:hcl:link=tempered", "toy"]
    )
    protocol = Protocol(
        seeds=2,
        metrics=("top-mass", "leaf-accuracy"),
        settings={**FAST, "patience": None},
    )
    study = compare(DATASETS["toys"](), candidates, tmp_path / "study", protocol)
    from hierlearn.lab.pages import write_report
    from hierlearn.lab.summary import publish

    summary, _ = publish(study)
    text = (tmp_path / "study" / "table.md").read_text()
    assert "top-mass" in text
    for figure in summary["figures"]["top-mass"]:
        assert figure["interval"] is not None  # a metric of rows has one, listed nowhere
    page = write_report(tmp_path / "study", summary=summary).read_text()
    assert "top-mass" in page
    assert "brier" in page


def test_toys_are_tuned_over_their_own_search_space(tmp_path):
    from hierlearn.lab.tune import tune

    chosen = tune(
        DATASETS["toys"](),
        parse_candidates(["brier"]),
        6,
        Protocol(settings={**FAST, "patience": 1}),
    )
    assert {trial["loss_options"]["power"] for trial in chosen["trials"]} == {1.0, 2.0}


def test_toys_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fast = "--epochs 2 --batch-size 16 --device cpu"
    app(
        f"train toys --dataset-option rows=60 --recipe toy {fast} --out m".split(),
        standalone_mode=False,
    )
    app(
        f"train toys --loss patient --preprocessing ranks --decoder second {fast} --out n".split(),
        standalone_mode=False,
    )
    words = "evaluate m toys --rows test --metrics top-mass,leaf-accuracy"
    app(words.split(), standalone_mode=False)
    assert "top-mass" in capsys.readouterr().out
    assert json.loads((tmp_path / "n" / "config.json").read_text())["preprocessing"]["name"] == (
        "ranks"
    )


def load_pets(path="pets.csv", label=None):
    return read_table(path, label=label or "class", split="part")


def test_a_dataset_of_files_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(DATASETS, "pets", DatasetEntry("pets", "animals", "files", load_pets))
    lines = [
        "a,kind,part",
        *(f"{n % 4},{'xy'[n % 2]},{'train' if n < 9 else 'test'}" for n in range(12)),
    ]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    options = "--dataset-option path=own.csv --dataset-option label=kind"
    app(f"train pets {options} --epochs 1 --out m".split(), standalone_mode=False)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["data"]["training_rows"] == 9
    capsys.readouterr()
    app(["data", "list"], standalone_mode=False)
    assert "pets" in capsys.readouterr().out
    with pytest.raises(HierlearnError, match="does not take --data-dir; leave that out"):
        app(f"train pets {options} --data-dir . --epochs 1 --out n".split(), standalone_mode=False)


def test_a_toy_in_the_estimator():
    dataset = DATASETS["toys"]()
    labels = [row[0] for row in dataset.labels]
    classifier = HierarchicalClassifier("toy", epochs=3, random_state=0)
    assert len(classifier.fit(dataset.inputs, labels).predict(dataset.inputs[:3])) == 3
