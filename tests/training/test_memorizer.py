"""Recipe nearest: a memory of embeddings as they are, in which nothing is trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn import Dataset, Hierarchy, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.networks.memories import memory_heads
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.export import export
from hierlearn.pipeline.remember import forget, remember
from tiny_backbones import save_tiny_bert

LEAVES = ["a/b", "a/c", "d/e", "d/f"]
TREE = Hierarchy.from_paths(LEAVES)


def dataset(rows=120, seed=0, width=6):
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 4, rows)
    x = 5 * np.eye(4, width)[kinds] + draw.normal(0, 1.2, (rows, width))
    splits = {"train": np.arange(rows * 3 // 4), "test": np.arange(rows * 3 // 4, rows)}
    labels = [[LEAVES[k]] for k in kinds]
    return Dataset(x.astype(np.float32), labels, TREE, splits=splits)


def plan(**more):
    return Plan(recipe="nearest", settings={"device": "cpu"}, **more)


def test_answers_are_those_of_the_nearest_training_rows(tmp_path):
    rows = dataset()
    model = train(rows, plan(), tmp_path / "model")
    (head,) = memory_heads(model.network)["main"]
    scale = float(head.scale().detach())
    x, new = (rows.split(name).inputs for name in ("train", "test"))
    unit, units = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (x, new))
    weights = torch.tensor((units @ unit.T - 1) / scale).softmax(dim=1)
    truth = TREE.encode(rows.split("train").labels).float()
    unscaled = replace(model, scaling=None).probabilities(new)
    torch.testing.assert_close(unscaled, weights @ truth, atol=2e-3, rtol=0)
    again = load(tmp_path / "model")
    torch.testing.assert_close(again.probabilities(new), model.probabilities(new))
    assert model.config["metrics"]["test"]["exact"] > 0.9
    assert model.config["training"]["steps"] == 1


def test_the_scale_is_chosen_unless_it_is_given():
    found = train(dataset(), plan())
    fixed = train(dataset(), plan(head_options={"scale": 0.3, "learn_scale": False}))
    (head,) = memory_heads(found.network)["main"]
    assert float(head.scale().detach()) != pytest.approx(0.1, rel=1e-3)
    assert memory_heads(fixed.network)["main"][0].scale() == 0.3


def test_it_is_a_memory_like_others():
    rows = dataset()
    model = train(rows, plan())
    assert len(explain(model, rows.inputs[:2], 3)[0]) == 3
    grown = remember(model, rows.inputs[90:92], [["a/new"], ["a/new"]])
    assert grown.classes == ("a/new",)
    assert model.predict(rows.inputs[90:91]) == ["a/new"]
    assert forget(model, ["0", "1"]) == 2


def test_resuming_a_finished_training_gives_the_same(tmp_path):
    rows = dataset()
    first = train(rows, plan(), tmp_path / "model")
    again = train(rows, plan(), tmp_path / "model", resume=True)
    torch.testing.assert_close(first.probabilities(rows.inputs), again.probabilities(rows.inputs))


def test_validation_rows_are_measured():
    records = []
    from hierlearn.pipeline.run import Reporting

    train(
        dataset(), plan(valid_fraction=0.2), reporting=Reporting(on_epoch=records.append, bar=False)
    )
    assert records[0]["valid"]["au-prc"][0] > 0.8


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"head": "linear"}, "has no memory"),
        ({"head_options": {"size": 8}}, "would stay random"),
        ({"network": "mlp"}, "would stay random"),
        ({"joint": {"bce": 1.0}}, "would stay random"),
    ],
)
def test_what_must_be_trained_is_refused(more, message):
    with pytest.raises(HierlearnError, match=f"optimizer none trains nothing, but .*{message}"):
        train(dataset(), plan(**more))


def test_ensembles_are_refused():
    with pytest.raises(HierlearnError, match="would be equal"):
        train(dataset(), Plan(recipe="nearest", settings={"device": "cpu", "ensemble_size": 2}))


@pytest.mark.parametrize(("head", "recipe"), [(None, "linear"), ("neighbors", "nearest")])
def test_the_network_embeddings_chooses_its_recipe(head, recipe):
    rows = dataset()
    model = train(rows, Plan(network="embeddings", head=head, settings={"device": "cpu"}))
    assert model.config["recipe"]["name"] == recipe
    assert model.config["metrics"]["test"]["exact"] > 0.9
    longer = model.probabilities(rows.inputs * 3)  # only the direction of a vector counts
    torch.testing.assert_close(longer, model.probabilities(rows.inputs), atol=1e-4, rtol=0)


def test_a_frozen_backbone_without_training(tmp_path):
    pytest.importorskip("transformers")
    bert = save_tiny_bert(tmp_path / "bert")
    words = ["apple", "pear", "car", "bus"]
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 4, 60)
    texts = [f"{draw.choice(['red', 'small'])} {words[k]}" for k in kinds]
    rows = Dataset(texts, [[LEAVES[k]] for k in kinds], TREE)
    chosen = Plan(recipe="nearest", network=f"hf:{bert}", settings={"device": "cpu"})
    model = train(rows, chosen, tmp_path / "model")
    assert model.predict(["small apple", "red bus"]) == ["a/b", "d/f"]
    again = load(tmp_path / "model")
    torch.testing.assert_close(again.probabilities(texts[:5]), model.probabilities(texts[:5]))
    assert explain(again, ["small apple"], 1)[0][0].text == "small apple"


def test_an_onnx_graph_has_the_vectors_of_length_1_inside(tmp_path):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    rows = dataset()
    model = train(rows, plan())
    path, *_ = export(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], {"inputs": 2 * rows.inputs[:9]})
    np.testing.assert_allclose(found, model.probabilities(rows.inputs[:9]), atol=1e-4)


def test_sparse_rows_are_refused():
    from scipy.sparse import csr_array

    rows = dataset()
    sparse = Dataset(csr_array(rows.inputs), rows.labels, TREE)
    with pytest.raises(HierlearnError, match="reads vectors of numbers, but the inputs are sparse"):
        train(sparse, plan())
