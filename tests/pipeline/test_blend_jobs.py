"""A blend whose folds and parts are trained on workers: the same blend, resumed and in time."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from hierlearn import HierarchicalClassifier
from hierlearn.errors import HierlearnError
from hierlearn.pipeline import blend as best
from hierlearn.pipeline import train
from hierlearn.pipeline.blend import WORKERS, BlendTraining, use_workers
from hierlearn.pipeline.run import Reporting
from hierlearn.service.engine import Serial, open_executor, use_executor
from hierlearn.training import Plan
from hierlearn.training.blending import Ingredient
from hierlearn.training.processes import Processes
from training.datasets import CPU, problem

QUIET = Reporting(bar=False)
SMALL = {"network_options": {"width": 8}, "head_options": {"size": 6, "candidates": 20}}
SOME = {
    "near": Ingredient("neighbors", {**SMALL, "joint": {"soft-labels": 0}}),
    "plain": Ingredient("flat", {"network_options": {"width": 8}}),
}
PLAN = Plan(
    effort="best",
    settings={"epochs": 4, "batch_size": 8, "ensemble_size": 2, "device": "cpu", "seed": 3},
)


class Counting(Serial):
    """Jobs in this process, counted; what follows ``most`` of them is interrupted."""

    def __init__(self, most=None):
        self.count, self.most = 0, most

    def run(self, jobs, on_step=None):
        def counted():
            for one in jobs:
                if self.count == self.most:
                    raise KeyboardInterrupt
                self.count += 1
                yield one

        return super().run(counted(), on_step)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(best, "ingredients", lambda facts: dict(SOME))


@pytest.fixture(scope="module")
def expected():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "ingredients", lambda facts: dict(SOME))
        return train(problem(), PLAN, reporting=QUIET)


def assert_same(found, expected):
    x = problem().split("test").inputs
    assert found.config["recipe"]["parts"] == expected.config["recipe"]["parts"]
    assert torch.equal(found.probabilities(x), expected.probabilities(x))


@pytest.mark.parametrize("folder", [True, False])
def test_processes_train_the_same_blend(expected, tmp_path, folder):
    threads = torch.get_num_threads()
    out = tmp_path / "model" if folder else None
    with use_executor(2):
        assert WORKERS.get().workers == 2
        found = train(problem(), PLAN, out, reporting=QUIET)
    assert WORKERS.get() is None
    assert torch.get_num_threads() == threads
    assert_same(found, expected)


def test_this_process_trains_nothing_itself(expected, monkeypatch):
    monkeypatch.setattr(BlendTraining, "_train", lambda *given: pytest.fail("trained here"))
    with use_workers(Counting()):
        assert_same(train(problem(), PLAN, reporting=QUIET), expected)


def test_an_interrupted_run_goes_on_with_what_is_missing_on_any_executor(expected, tmp_path):
    folder = tmp_path / "model"
    with use_workers(Counting(most=7)), pytest.raises(KeyboardInterrupt):
        train(problem(), PLAN, folder, reporting=QUIET)
    assert len(list((folder / "blend").glob("*.safetensors"))) == 7
    again = Counting()
    with use_workers(again):
        found = train(problem(), PLAN, folder, resume=True, reporting=QUIET)
    assert again.count == 10 - 7 + len(found.network_spec.parts)
    assert_same(found, expected)


def test_without_any_time_one_part_is_trained_all_the_same():
    said = []
    plan = replace(PLAN, time_limit=1e-6)
    with use_workers(Counting()):
        found = train(problem(), plan, reporting=replace(QUIET, on_message=said.append))
    assert [part.name for part in found.network_spec.parts] == ["near"]
    assert sum("left out, it would take too long" in text for text in said) == 2


def test_the_classifier_uses_an_executor_that_is_lent(monkeypatch):
    dataset, counting = problem(), Counting()
    y = [labels[0] for labels in dataset.labels]
    classifier = HierarchicalClassifier(effort="best", epochs=2, batch_size=8, ensemble_size=1)
    monkeypatch.setattr(BlendTraining, "_train", lambda *given: pytest.fail("trained here"))
    with use_workers(counting):
        classifier.fit(dataset.inputs, y)
    assert counting.count > 10


def test_any_executor_may_be_lent(expected):
    with open_executor("processes", workers=2) as executor, use_executor(executor):
        assert WORKERS.get() is executor
    with pytest.raises(HierlearnError, match="executor must be at least 1"), use_executor(0):
        pass
    with use_executor(1) as nothing, nullcontext():
        assert nothing is None


def test_an_executor_is_refused_under_torchrun():
    with (
        use_workers(Serial()),
        pytest.raises(HierlearnError, match="an executor needs a single process"),
    ):
        BlendTraining(problem(), PLAN, Processes(0, 2, CPU), None, QUIET)
