"""Growing trees as a training: from end to end, resumed, refused, exported."""

import copy
import json

import numpy as np
import pytest
import torch

from hierlearn import Dataset, Hierarchy, Labels, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors
from hierlearn.pipeline import blend as best
from hierlearn.pipeline.folder import digest, write_config
from hierlearn.pipeline.run import Reporting, run
from hierlearn.training.blending import Ingredient, ingredients
from hierlearn.training.choose import Facts
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import Processes

CPU = torch.device("cpu")
CLASSES = ["a/b/c", "a/b/d", "a/e", "f/g", "h"]
TREE = Hierarchy.from_paths(CLASSES)
SMALL = {"trees": 7}


def problem(count=150, several=False, seed=0):
    draw = np.random.default_rng(seed)
    numbers = draw.integers(0, 5, count)
    inputs = draw.normal(size=(count, 4)) * 0.3 + np.eye(5, 4)[numbers] * 3
    labels = [[CLASSES[one]] for one in numbers]
    if several:
        labels[0] = ["a/e", "h"]
    return Dataset(inputs, labels, TREE)


@pytest.mark.parametrize("size", [1, 2])
def test_a_recipe_learns_and_its_model_answers_again(size, tmp_path):
    data, said, steps = problem(), [], []
    plan = Plan(recipe="trees", network_options=SMALL, settings={"ensemble_size": size})
    reporting = Reporting(bar=False, on_message=said.append, on_step=lambda *at: steps.append(at))
    trained = train(data, plan, out=tmp_path / "model", reporting=reporting)
    p = trained.probabilities(data.inputs)
    leaves = TREE.leaves.tolist()
    found = [TREE.names[leaves[one]] for one in p[:, leaves].argmax(1).tolist()]
    assert np.mean([[one] == row for one, row in zip(found, data.labels, strict=True)]) > 0.95
    assert torch.equal(load(tmp_path / "model").probabilities(data.inputs), p)
    assert "7 extremely random trees (at least 1 row per leaf)" in said[0]
    assert steps == [(number, 7 * size) for number in range(1, 7 * size + 1)]


def test_members_are_the_forests_of_their_seeds():
    data = problem()
    both = train(
        data, Plan("trees", network_options=SMALL, calibration=False, settings={"ensemble_size": 2})
    )
    alone = [
        train(
            data, Plan("trees", network_options=SMALL, calibration=False, settings={"seed": seed})
        )
        for seed in (0, 1)
    ]
    x = np.random.default_rng(1).normal(size=(40, 4)) * 2
    first, second = (one.probabilities(x) for one in alone)
    assert not torch.equal(first, second)
    torch.testing.assert_close(both.probabilities(x), (first + second) / 2)


def test_several_labels_have_larger_leaves_and_many_rows_do():
    one, more = (
        prepare(problem(several=several), Plan(recipe="trees"), CPU) for several in (False, True)
    )
    least = [ready.network.heads["main"].min_samples_leaf for ready in (one, more)]
    assert least == [1, 4]
    many = prepare(problem(30_000), Plan(recipe="trees"), CPU)
    assert many.network.heads["main"].min_samples_leaf == 3


def test_a_training_resumes_with_the_trees_of_its_checkpoint(tmp_path, monkeypatch):
    data, plan = problem(), Plan(recipe="trees", network_options=SMALL, valid_fraction=0.2)
    ready = prepare(data, plan, CPU)
    again = copy.deepcopy(ready)
    first = run(ready, Processes(0, 1, CPU), tmp_path)
    assert first.steps == ready.network.heads["main"].trees
    monkeypatch.setattr("hierlearn.training.solvers.forest.grow_tree", None)
    run(again, Processes(0, 1, CPU), tmp_path, resume=True)
    for key, value in ready.network.state_dict().items():
        assert torch.equal(again.network.state_dict()[key], value)


def test_the_network_brings_its_optimizer_and_refuses_others():
    data = problem()
    ready = prepare(data, Plan(loss="bce", network="trees", settings={"epochs": 3}), CPU)
    assert ready.decision.settings.optimizer == "trees"
    refused = [
        (Plan(recipe="trees", settings={"optimizer": "adamw"}), "no gradients for adamw"),
        (Plan(recipe="trees", link="max"), "link reads logits, and the network trees has none"),
    ]
    for plan, message in refused:
        with pytest.raises(HierlearnError, match=message):
            prepare(data, plan, CPU)
    with pytest.raises(HierlearnError, match="optimizer trees fits the network trees alone"):
        train(data, Plan(recipe="flat", settings={"optimizer": "trees"}))


def test_damaged_trees_are_named(tmp_path):
    out = tmp_path / "model"
    train(problem(), Plan(recipe="trees", network_options=SMALL), out=out)
    path = out / "model.safetensors"
    tensors, metadata = read_tensors(path)
    tensors["network/heads.main.right"].zero_()
    write_tensors(path, tensors, metadata)
    config = json.loads((out / "config.json").read_text())
    config["files"][path.name] = digest(path)
    write_config(out / "config.json", config)
    with pytest.raises(CheckpointError, match="right does not describe the trees of a forest"):
        load(out)


@pytest.mark.slow
def test_the_exported_graph_answers_alike(tmp_path):
    pytest.importorskip("onnx")
    from hierlearn.pipeline.export import export

    data = problem(40, several=True)
    plan = Plan(recipe="trees", network_options={"trees": 3}, unlabeled_descendants="ignore")
    assert export(train(data, plan), tmp_path / "model.onnx")  # compares with the model


def test_trees_are_a_part_of_a_blend(tmp_path, monkeypatch):
    data = problem(80)
    some = {
        "plain": Ingredient("flat", {"network_options": {"width": 8}}),
        "trees": Ingredient("trees", {"network_options": SMALL}, one_solution=True),
    }
    weights = {"plain/main": 0.4, "trees/main": 0.6}
    monkeypatch.setattr(best, "ingredients", lambda facts: some)
    monkeypatch.setattr(best, "select", lambda *_, **__: best.Selection(weights, 0.5, {"a": 0.1}))
    settings = {"epochs": 2, "ensemble_size": 2, "optimizer": "adamw"}
    plan = Plan(effort="best", settings=settings)
    blend = train(data, plan, out=tmp_path / "model", reporting=Reporting(bar=False))
    p = blend.probabilities(data.inputs)
    assert torch.equal(load(tmp_path / "model").probabilities(data.inputs), p)
    kinds = [type(part).__name__ for part in blend.network.parts]
    assert sorted(kinds) == ["Network", "StackedEnsemble"]  # one forest, two networks


def test_numbers_are_blended_with_trees():
    for several in (False, True):
        labels = Labels(problem(several=several).labels, TREE)
        assert "trees" in ingredients(Facts.of(labels, "numbers"))
        assert "trees" not in ingredients(Facts.of(labels, "sparse"))


def test_a_blend_of_streamed_rows_does_without_trees(tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    from hierlearn.datasets import stream_table

    data = problem(40)
    columns = {f"x{number}": data.inputs[:, number] for number in range(4)}
    table = pa.table({**columns, "class": [one for (one,) in data.labels]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=10)
    asked = []

    def some(facts):
        asked.extend(ingredients(facts))
        return {"plain": Ingredient("flat", {"network_options": {"width": 8}})}

    monkeypatch.setattr(best, "ingredients", some)
    rows = stream_table(tmp_path / "rows.parquet", label="class", hierarchy=TREE)
    settings = {"epochs": 1, "ensemble_size": 1}
    train(rows, Plan(effort="best", settings=settings), reporting=Reporting(bar=False))
    assert "neighbors" in asked
    assert "trees" not in asked


@pytest.mark.parametrize("kind", ["forest", "extra"])
def test_the_last_digit_of_a_round_number_decides_nothing(kind):
    """Between training values of 10 and 20 new rows have 15, where halfway splits would lie."""
    draw = np.random.default_rng(3)
    inputs = draw.integers(0, 8, (300, 3)) * 10.0
    labels = [[CLASSES[one]] for one in (inputs[:, 0] // 10 + inputs[:, 1] // 40).astype(int) % 5]
    options = {"trees": 20, "kind": kind}
    plan = Plan("trees", network_options=options, calibration=False)
    model = train(Dataset(inputs, labels, TREE), plan)
    between = draw.integers(0, 15, (400, 3)) * 5.0
    given = model.probabilities(between)
    for nearby in (between * (1 + 1e-6), between * (1 - 1e-6)):
        torch.testing.assert_close(model.probabilities(nearby), given, rtol=0, atol=1e-6)
