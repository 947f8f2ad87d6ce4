"""One name, one thing: a recipe in a study is what ``train`` trains, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.lab.candidates import parse_candidate
from hierlearn.lab.protocol import Protocol
from hierlearn.lab.runner import Task, fit, ready_rows, run_task, with_test_rows, without_test_rows
from hierlearn.metrics import METRICS, Metric, hier_dist
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training.inference import member_probabilities
from hierlearn.training.prepare import prepare
from hierlearn.training.settings import Plan
from hierlearn.training.solvers.gradient import Trainer
from lab.small_studies import dataset, protocol

SMALL = {"epochs": 2, "device": "cpu", "batch_size": 64}
METRIC = ("au-prc", "hit@1")


def without_valid(data):
    """The synthetic rows with no validation split, as a file without a split column."""
    return with_test_rows(replace(data, splits={}), 0.2, seed=0)[0]


def trained(data, plan):
    return train(data, plan, reporting=Reporting(bar=False))


def study_plan(name, **changes):
    return protocol(seeds=1, seed=3, network={}, **changes).plan(parse_candidate(name))


@pytest.mark.parametrize("name", ["hcl", "max", "flat", "neighbors"])
@pytest.mark.parametrize("make", [dataset, lambda: without_valid(dataset())])
def test_the_probabilities_of_a_recipe_are_those_of_train(name, make):
    data = make()
    of_train = trained(data, Plan(recipe=name, calibration=False, settings={**SMALL, "seed": 3}))
    changes = {"epochs": 2, "patience": None, "learning_rate": 1e-3}
    plan = study_plan(name, settings=changes)
    prepared = prepare(data, plan, torch.device("cpu"))
    fit(prepared, [])
    test = data.split("test")
    (p,) = member_probabilities(prepared.network, ready_rows(prepared, test), prepared.read)
    assert torch.equal(p.cpu(), of_train.probabilities(test.inputs))


def test_a_recipe_trains_as_long_as_it_says_and_a_loss_as_the_study_says():
    data = dataset()
    prepared = {
        name: prepare(
            data,
            protocol().with_changes(settings={}).plan(parse_candidate(name)),
            torch.device("cpu"),
        ).decision.settings
        for name in ("neighbors", "bce")
    }
    alone = prepare(data, Plan(recipe="neighbors"), torch.device("cpu")).decision.settings
    assert prepared["neighbors"].epochs == alone.epochs != 100
    assert prepared["neighbors"].patience is None
    assert (prepared["bce"].epochs, prepared["bce"].patience) == (100, 10)


def task(name, data, metrics=METRIC):
    one = protocol(seeds=2, network={}, settings={"epochs": 2, "patience": None})
    candidate = parse_candidate(name)
    return Task(candidate, one.plan(candidate), metrics, (0, 1), "cpu")


def test_auto_is_a_pipeline_per_seed_and_equals_the_recipe_that_it_chooses():
    data = without_valid(dataset())
    steps = []
    found = run_task(data, task("auto", data), lambda step, of: steps.append((step, of)))
    named = run_task(data, task("quick", data))  # inputs are numbers
    assert [run["recipe"] for run in found.runs] == ["quick", "quick"]
    assert [run["seed"] for run in found.runs] == [0, 1]
    assert found.rows["terminal"].shape == named.rows["terminal"].shape
    for metric in METRIC:
        values = [[run["test"][metric] for run in one.runs] for one in (found, named)]
        assert values[0] == pytest.approx(values[1], abs=2e-3)
    assert steps[-1][0] == steps[-1][1]  # both seeds, as one training
    assert [step for step, _ in steps] == list(range(1, steps[-1][1] + 1))
    assert len(found.log) == 2
    assert all(run["settings"]["epochs"] == 2 and run["seconds"] > 0 for run in found.runs)


@pytest.mark.parametrize("name", ["linear", "auto"])
def test_a_model_that_is_solved_does_not_still_improve(name):
    data = dataset()
    texts = replace(data, inputs=[f"row {'abc'[number % 3]}" for number in range(len(data))])
    candidate = parse_candidate(name)
    plan = Protocol(seeds=2, settings={"device": "cpu"}).plan(candidate)
    found = run_task(texts, Task(candidate, plan, METRIC, (0, 1), "cpu"))
    assert [run["recipe"] for run in found.runs] == ["linear", "linear"]
    assert not any(run["still_improving"] for run in found.runs)


def test_a_pipeline_never_gets_the_test_rows():
    data = dataset()
    rest = without_test_rows(data)
    assert "test" not in rest.splits
    assert not np.intersect1d(np.concatenate(list(rest.splits.values())), data.splits["test"]).size
    bare = replace(data, splits={"test": data.splits["test"]})
    found = without_test_rows(bare).splits["train"]
    assert sorted([*found, *data.splits["test"]]) == list(range(len(data)))


def test_a_metric_that_a_pipeline_cannot_have_is_refused_before_training(monkeypatch):
    monkeypatch.setitem(METRICS, "wide", Metric("wide", hier_dist, min_candidates=1000))
    monkeypatch.setattr(Trainer, "train", lambda _: pytest.fail("it was trained"))
    data = dataset()
    with pytest.raises(HierlearnError, match="wide needs 1000 classes, but there are 84"):
        run_task(data, task("auto", data, ("wide",)))
