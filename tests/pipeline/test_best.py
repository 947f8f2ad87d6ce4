"""Effort best: folds, weights, parts on all rows, calibration, resuming, time limits."""

import json
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn import HierarchicalClassifier, load
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError
from hierlearn.hierarchy.labels import Labels
from hierlearn.pipeline import blend as best
from hierlearn.pipeline import train
from hierlearn.pipeline.blend import BlendTraining
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.export import Graph
from hierlearn.pipeline.remember import forget, remember
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan
from hierlearn.training.blending import Ingredient, check_free_choice, ingredients
from hierlearn.training.processes import Processes
from tolerances import FLOAT32
from training.datasets import CPU, partial_problem, problem, texts

QUIET = Reporting(bar=False)
SMALL = {"network_options": {"width": 8}, "head_options": {"size": 6, "candidates": 20}}
SOME = {
    "near": Ingredient("neighbors", {**SMALL, "joint": {"soft-labels": 0}}),
    "far": Ingredient("neighbors", {**SMALL, "preprocessing": "piecewise-linear"}),
    "plain": Ingredient("flat", {"network_options": {"width": 8}}),
}
PLAN = Plan(
    effort="best",
    settings={"epochs": 4, "batch_size": 8, "ensemble_size": 2, "device": "cpu", "seed": 3},
)


WEIGHTS = {"near/main": 0.5, "far/average": 0.2, "far/bce": 0.1, "plain/main": 0.2}


@pytest.fixture
def few(monkeypatch):
    """Small ingredients."""
    monkeypatch.setattr(best, "ingredients", lambda facts: dict(SOME))


@pytest.fixture(scope="module")
def expected():
    """A blend of small ingredients, trained on ``problem()`` without interruption."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "ingredients", lambda facts: dict(SOME))
        return job().run()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A blend of small ingredients that all have a weight, and the folder that it was saved to."""

    def fixed(predictions, score, **options):
        del options
        single = {name: score(p) for name, p in predictions.items()}
        return best.Selection(dict(WEIGHTS), 0.5, single)

    folder = tmp_path_factory.mktemp("best") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "ingredients", lambda facts: dict(SOME))
        patch.setattr(best, "select", fixed)
        return train(problem(), PLAN, folder, reporting=QUIET), folder


@pytest.fixture
def weighted(saved):
    """A copy of that blend, which a test may change."""
    return deepcopy(saved[0])


def job(dataset=None, plan=PLAN, weights=None, on_message=None):
    here = Processes(0, 1, CPU)
    reporting = Reporting(bar=False, on_message=on_message)
    return BlendTraining(dataset or problem(), plan, here, weights, reporting)


def test_every_row_is_predicted_by_networks_that_have_not_seen_it(few, monkeypatch):
    seen = []
    original = BlendTraining._train

    def spied(self, plan, rows, budget):
        seen.append(self.rows[rows])
        return original(self, plan, rows, budget)

    monkeypatch.setattr(BlendTraining, "_train", spied)
    one = job()
    found = one._out_of_fold("near", SOME["near"])
    every = one.rows
    assert len(found["near/main"]) == len(every)
    assert len(seen) == 5
    for number, rows in enumerate(seen):
        assert not set(rows) & set(every[one.held[number]])
        assert len(rows) + len(one.held[number]) == len(every)


def test_test_rows_are_never_read(few, expected):
    dataset = problem()
    spoiled = dataset.inputs.copy()
    spoiled[dataset.splits["test"]] = 1e9
    labels = list(dataset.labels)
    for row in dataset.splits["test"]:
        labels[row] = labels[0]
    found = job(replace(dataset, inputs=spoiled, labels=labels)).run()
    rows = dataset.split("train").inputs
    assert torch.equal(found.probabilities(rows), expected.probabilities(rows))
    assert found.config["recipe"]["parts"] == expected.config["recipe"]["parts"]


def test_validation_rows_are_training_rows():
    dataset = problem()
    one = job(dataset)
    assert set(one.rows) == set(dataset.splits["train"]) | set(dataset.splits["valid"])


def test_a_blend_is_the_weighted_average_of_its_parts(weighted):
    dataset, pipeline = problem(), weighted
    assert [part.name for part in pipeline.network_spec.parts] == ["near", "far", "plain"]
    x = dataset.split("test").inputs
    rows = pipeline.rows(x)
    expected = torch.zeros(len(x), len(dataset.hierarchy))
    network = pipeline.network.eval()
    with torch.no_grad():
        near, far, plain = (network.parts[k](network.columns(rows, k)) for k in range(3))
        expected += 0.5 * near.probabilities.mean(0)
        heads = [one.probabilities.mean(0) for one in far.values()]
        expected += 0.2 * sum(heads) / len(heads) + 0.1 * far["bce"].probabilities.mean(0)
        read = plain.read_by(network.links[2])
        expected += 0.2 * read.probabilities.mean(0)
        FLOAT32.assert_close(network(rows).probabilities, expected)
    assert len(heads) == 3
    assert pipeline.config["calibration"]["error_after"] >= 0
    FLOAT32.assert_close(
        pipeline.probabilities(x),
        pipeline.scaling(network(rows), pipeline.label_space).probabilities.detach(),
    )


def test_a_saved_blend_answers_alike(saved):
    pipeline, folder = saved
    again = load(folder)
    x = problem().split("test").inputs
    assert torch.equal(again.probabilities(x), pipeline.probabilities(x))
    assert again.scaling == pipeline.scaling
    assert explain(again, x[:3]) == explain(pipeline, x[:3])
    assert not (folder / "blend").exists()
    assert again.config["metrics"].keys() == {"left out", "test"}
    assert 0 < again.config["metrics"]["left out"]["exact"] <= 1
    assert "parts: near" in (folder / "README.md").read_text()


def test_evidence_sums_to_the_share_of_the_memories(weighted):
    dataset, pipeline = problem(), weighted
    rows = explain(pipeline, dataset.inputs[:4], count=1000)
    # near alone, and of the average of far's three heads one third
    share = 0.5 + 0.2 / 3
    for found in rows:
        assert sum(one.weight for one in found) == pytest.approx(share, rel=1e-5)
        assert [one.weight for one in found] == sorted((o.weight for o in found), reverse=True)


def test_a_blend_remembers_and_forgets(weighted):
    dataset, pipeline = problem(), weighted
    x, top = dataset.inputs[:1] + 40, dataset.hierarchy.names[0]
    remember(pipeline, np.repeat(x, 5, axis=0), [[f"{top}/new"]] * 5, ids=list("abcde"))
    assert [part.name for part in pipeline.network_spec.parts] == ["near", "far"]
    assert f"{top}/new" in pipeline.hierarchy.names
    assert pipeline.predict(x) == [f"{top}/new"]
    forget(pipeline, list("abcde"))
    assert pipeline.predict(x) != [f"{top}/new"]
    assert pipeline.probabilities(x).shape == (1, len(pipeline.hierarchy))


def test_a_blend_of_known_classes_keeps_its_other_parts(weighted):
    dataset, pipeline = problem(), weighted
    remember(pipeline, dataset.inputs[:2], dataset.labels[:2], ids=["x", "y"])
    assert [part.name for part in pipeline.network_spec.parts] == ["near", "far", "plain"]
    assert (
        len(pipeline.network.parts[0].network.heads["main"].memory.rows)
        == len(dataset.splits["train"]) + len(dataset.splits["valid"]) + 2
    )


def test_the_exported_graph_scales_too(weighted):
    dataset, pipeline = problem(), weighted
    x = torch.from_numpy(dataset.inputs[:6])
    with torch.no_grad():
        FLOAT32.assert_close(Graph(pipeline).eval()(x), pipeline.probabilities(x.numpy()))


def test_an_interrupted_run_resumes_with_the_next_training(few, expected, tmp_path, monkeypatch):
    dataset = problem()
    trained = []
    original = BlendTraining._train

    def breaks(self, plan, rows, budget):
        if len(trained) == 7:
            raise KeyboardInterrupt
        trained.append(len(rows))
        return original(self, plan, rows, budget)

    monkeypatch.setattr(BlendTraining, "_train", breaks)
    with pytest.raises(KeyboardInterrupt):
        train(dataset, PLAN, tmp_path / "model", reporting=QUIET)
    left = len(list((tmp_path / "model" / "blend").glob("*.safetensors")))
    assert left == 7
    again = []
    monkeypatch.setattr(
        BlendTraining,
        "_train",
        lambda self, *given: (again.append(1), original(self, *given))[1],
    )
    found = train(dataset, PLAN, tmp_path / "model", resume=True, reporting=QUIET)
    parts = len(found.network_spec.parts)
    assert len(again) == 15 - 7 + parts
    x = dataset.split("test").inputs
    assert torch.equal(found.probabilities(x), expected.probabilities(x))
    again.clear()
    train(dataset, PLAN, tmp_path / "model", resume=True, reporting=QUIET)
    assert not again  # it is finished


def test_parts_on_all_rows_are_not_trained_twice(few, expected, tmp_path, monkeypatch):
    dataset = problem()
    monkeypatch.setattr(best, "assemble", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(dataset, PLAN, tmp_path / "model", reporting=QUIET)
    monkeypatch.undo()
    monkeypatch.setattr(best, "ingredients", lambda facts: dict(SOME))
    monkeypatch.setattr(BlendTraining, "_train", lambda *given: pytest.fail("trained again"))
    found = train(dataset, PLAN, tmp_path / "model", resume=True, reporting=QUIET)
    x = dataset.split("test").inputs
    FLOAT32.assert_close(found.probabilities(x), expected.probabilities(x))


def test_results_of_other_rows_are_not_resumed_from(few, tmp_path, monkeypatch):
    dataset = problem()
    monkeypatch.setattr(best, "select", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(dataset, PLAN, tmp_path / "model", reporting=QUIET)
    with pytest.raises(CheckpointError, match="other rows"):
        train(problem(seed=1), PLAN, tmp_path / "model", resume=True, reporting=QUIET)
    other = replace(PLAN, settings={**PLAN.settings, "epochs": 5})
    with pytest.raises(CheckpointError, match="epochs=4, now epochs=5"):
        train(dataset, other, tmp_path / "model", resume=True, reporting=QUIET)


def test_a_short_time_limit_leaves_recipes_out(few, monkeypatch):
    said = []
    one = job(plan=replace(PLAN, time_limit=60), on_message=said.append)

    def slow(name, ingredient, number, original=one._fold):
        if name != "near":
            raise best.OutOfTime
        return original(name, ingredient, number)

    monkeypatch.setattr(one, "_fold", slow)
    pipeline = one.run()
    assert [part.name for part in pipeline.network_spec.parts] == ["near"]
    assert sum("left out, it would take too long" in text for text in said) == 2
    assert any("s left)" in text for text in said)


def test_without_any_time_one_part_is_trained_all_the_same(few):
    pipeline = job(plan=replace(PLAN, time_limit=1e-6)).run()
    assert [part.name for part in pipeline.network_spec.parts] == ["near"]
    assert pipeline.scaling is None
    assert pipeline.config["training"]["left_out"]["blend"] is None
    json.dumps(pipeline.config, allow_nan=False)


def test_rows_with_several_labels_and_with_none(few):
    dataset = partial_problem()
    pipeline = job(dataset).run()
    p = pipeline.probabilities(dataset.inputs)
    assert pipeline.config["calibration"]["kind"] == "log-odds"
    for child in range(len(dataset.hierarchy)):
        for parent in dataset.hierarchy.parents(child):
            assert bool((p[:, child] <= p[:, parent] + 1e-6).all())


def test_partial_labels_weigh_and_calibrate_as_they_train(few, monkeypatch):
    """What is unknown of a left-out row has no part in the weights, nor in how sure answers are."""
    seen = {"fit_scaling": [], "calibration_error": [], "scorer": []}

    def spy(name):
        original = getattr(best, name)
        monkeypatch.setattr(
            best, name, lambda *args, **rest: seen[name].append(args) or original(*args, **rest)
        )

    spy("fit_scaling")
    spy("calibration_error")
    spy("scorer")
    dataset = partial_problem()
    one = job(dataset, replace(PLAN, unlabeled_descendants="ignore"))
    one.run()
    rows = [dataset.labels[row] for row in one.rows[one.kept]]
    mask = Labels(rows, dataset.hierarchy, unlabeled_descendants="ignore").mask()
    assert not mask.all()
    assert torch.equal(seen["scorer"][-1][3], mask)
    ((*_, fitted),) = seen["fit_scaling"]
    assert torch.equal(fitted, mask)
    before, after = (args[0] for args in seen["calibration_error"])
    assert not before[~mask].any()
    assert not after[~mask].any()
    assert before[mask].any()


def test_texts():
    small = Plan(effort="best", settings={"epochs": 2, "ensemble_size": 1, "device": "cpu"})
    dataset = texts(60)
    pipeline = job(dataset, small).run()
    answers = pipeline.predict(dataset.inputs)
    right = [a == b[0] for a, b in zip(answers, dataset.labels, strict=True)]
    assert np.mean(right) > 0.5


def test_texts_are_blended_of_sparse_and_dense_parts(monkeypatch, tmp_path):
    weights = {"linear/main": 0.5, "neighbors/main": 0.5}
    monkeypatch.setattr(best, "select", lambda *_, **__: best.Selection(weights, 0.5, {"a": 0.1}))
    small = Plan(effort="best", settings={"epochs": 2, "ensemble_size": 2, "device": "cpu"})
    dataset = texts(60)
    pipeline = train(dataset, small, tmp_path / "model", reporting=QUIET)
    parts = {part.name: part.network for part in pipeline.network_spec.parts}
    assert (parts["linear"].inputs.kind, parts["neighbors"].inputs.kind) == ("sparse", "numbers")
    sizes = [part.network.members for part in pipeline.network_spec.parts]
    assert sizes == [None, 2], "a convex problem has one solution"
    again = load(tmp_path / "model")
    assert torch.equal(again.probabilities(dataset.inputs), pipeline.probabilities(dataset.inputs))
    for found in explain(again, dataset.inputs[:3], count=1000):
        assert 0 < sum(one.weight for one in found) <= 0.5 + 1e-5


def test_weights_of_rows_reach_every_training(few, expected):
    dataset = problem()
    weights = np.ones(len(dataset))
    weights[dataset.splits["train"][:20]] = 0
    x = dataset.split("test").inputs
    weighted = job(dataset, weights=weights).run()
    assert not torch.allclose(expected.probabilities(x), weighted.probabilities(x))


def test_the_classifier_blends(few):
    dataset = problem()
    y = [labels[0] for labels in dataset.labels]
    settings = {"epochs": 3, "batch_size": 8, "ensemble_size": 1, "random_state": 0}
    classifier = HierarchicalClassifier(effort="best", **settings).fit(dataset.inputs, y)
    assert classifier.recipe_ == "blend"
    assert classifier.predict_node_proba(dataset.inputs[:5]).shape == (5, len(dataset.hierarchy))
    assert classifier.score(dataset.inputs, y) > 0.3
    assert classifier.explain(dataset.inputs[:1])[0]


def test_a_module_of_ones_own_cannot_be_blended():
    module = torch.nn.Linear(2, 3)
    with pytest.raises(HierlearnError, match="leave out the module"):
        HierarchicalClassifier(effort="best", network=module, loss=None).fit(
            [[0.0, 1.0], [1.0, 0.0]], ["a/b", "a/c"]
        )


@pytest.mark.parametrize(
    "chosen", [{"recipe": "hcl"}, {"loss": "bce"}, {"network": "mlp"}, {"answer": "main"}]
)
def test_what_a_blend_decides_cannot_be_set(chosen):
    with pytest.raises(HierlearnError, match=f"so {next(iter(chosen))} cannot be set to"):
        check_free_choice(Plan(effort="best", **chosen))


def test_a_time_limit_is_for_effort_best():
    with pytest.raises(HierlearnError, match="time_limit is for effort 'best'"):
        Plan(time_limit=5)


@pytest.mark.parametrize("make", [problem, partial_problem, lambda: texts(40)])
def test_every_ingredient_is_a_valid_plan(make):
    one = job(make())
    for ingredient in ingredients(one.facts).values():
        plan = ingredient.plan(replace(PLAN, settings={"epochs": 1, "device": "cpu"}), 1)
        prepared = one._train(plan, np.arange(len(one.rows)), float("inf"))
        assert prepared.decision.settings.epochs == 1


@pytest.mark.parametrize("make", [problem, partial_problem])
def test_a_blend_of_every_ingredient_is_one_model(make, monkeypatch, tmp_path):
    def alike(predictions, score, **options):
        del score, options
        return best.Selection(dict.fromkeys(predictions, 1 / len(predictions)), 0.5, {"a": 0.1})

    monkeypatch.setattr(best, "select", alike)
    dataset, folder = make(), tmp_path / "model"
    short = {"epochs": 1, "batch_size": 64, "ensemble_size": 2, "device": "cpu"}
    pipeline = train(dataset, Plan(effort="best", settings=short), folder, reporting=QUIET)
    asked = ingredients(job(dataset).facts)
    assert {part.name for part in pipeline.network_spec.parts} == set(asked)
    p = pipeline.probabilities(dataset.inputs[:6])
    again = load(folder)
    assert torch.equal(again.probabilities(dataset.inputs[:6]), p)
    with torch.no_grad():
        FLOAT32.assert_close(Graph(again).eval()(torch.from_numpy(dataset.inputs[:6])), p)
    assert all(explain(again, dataset.inputs[:3], count=3))
    top = dataset.hierarchy.names[0]
    remember(again, dataset.inputs[:5] + 40, [[f"{top}/new"]] * 5, ids=list("abcde"))
    assert f"{top}/new" in again.hierarchy.names


def test_the_bar_ends_where_it_should(few, monkeypatch):
    seen, totals = [], []

    class Bar(best.Progress):
        def step(self, done):
            seen.append(done)

        def total(self, steps):
            totals.append(steps)

    monkeypatch.setattr(best, "progress_bar", lambda *given, **more: nullcontext(Bar()))
    job().run()
    assert seen == sorted(seen)
    assert seen[-1] == totals[-1]
