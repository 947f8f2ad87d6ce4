"""Encoded tables: some columns through frozen backbones, the others by their kinds."""

import numpy as np
import pytest
import torch

from hierlearn import Dataset, Hierarchy, Plan, load, train
from hierlearn.datasets.tables.table import Table
from hierlearn.errors import HierlearnError
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.features.registry import from_state
from hierlearn.features.table import ColumnEncoder, TablePreprocessor
from tiny_backbones import save_tiny_bert

LEAVES = ["fruit/apple", "fruit/pear", "vehicle/car", "vehicle/bus"]
KINDS = {"title": "text", "price": "number", "shop": "category", "note": "text"}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    pytest.importorskip("transformers")
    return f"hf:{save_tiny_bert(tmp_path_factory.mktemp('bert'))}"


def rows(count=80, names=("title", "price", "shop"), seed=0):
    """A table in which title and price tell the class only together."""
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 4, count)
    columns = {
        "title": np.array([["red apple", "blue car"][k // 2] for k in kinds], dtype=object),
        "price": (kinds % 2 + draw.normal(0, 0.1, count)).astype(np.float32),
        "shop": np.array([["x", "y"][one] for one in draw.integers(0, 2, count)], dtype=object),
        "note": np.array(["some words"] * count, dtype=object),
    }
    table = Table({name: columns[name] for name in names}, KINDS)
    labels = [[LEAVES[kind]] for kind in kinds]
    splits = {"train": np.arange(count - 20), "test": np.arange(count - 20, count)}
    return Dataset(table, labels, Hierarchy.from_paths(LEAVES), splits, feature_names=names)


def test_parts_are_joined(bert):
    table = rows().inputs
    step = TablePreprocessor(encoders={"title": {"source": bert, "pooling": "cls"}}).fit(table)
    found = step.transform(table)
    others = Table({name: table.columns[name] for name in ("price", "shop")}, KINDS)
    rest = TablePreprocessor().fit(others).transform(others)
    own = EmbedPreprocessor(bert, pooling="cls")
    encoded = own.fit([]).transform(table.columns["title"].tolist())
    np.testing.assert_allclose(found, np.concatenate([rest, encoded], axis=1), atol=1e-6)
    assert step.columns == found.shape[1]
    again = from_state(*step.state())
    np.testing.assert_array_equal(again.transform(table[3:9]), step.transform(table[3:9]))
    assert again.kinds == {name: KINDS[name] for name in ("title", "price", "shop")}
    assert "title by hf:" in step.summary()


def test_two_encoders_and_nothing_else(bert):
    table = rows(names=("title", "note")).inputs
    wanted = {"title": {"source": bert}, "note": {"source": bert, "pooling": "cls"}}
    step = TablePreprocessor(encoders=wanted).fit(table)
    assert step.transform(table).shape == (80, 64)
    assert step.produces == "numbers"
    again = from_state(*step.state())
    np.testing.assert_array_equal(again.transform(table), step.transform(table))
    assert step.newly_missing(table) == {}


def test_words_of_another_column_make_the_rows_sparse(bert):
    table = rows(names=("title", "price", "note")).inputs
    step = TablePreprocessor(encoders={"title": {"source": bert}}).fit(table)
    assert step.produces == "sparse"
    found = step.transform(table)
    assert found.shape == (80, step.columns)


def test_a_training_on_a_mixed_table(bert, tmp_path):
    dataset = rows(200)
    plan = Plan(encoder={"title": f"{bert},pooling=mean"}, settings={"device": "cpu", "epochs": 15})
    model = train(dataset, plan, tmp_path / "model")
    assert model.config["metrics"]["test"]["exact"] > 0.9
    again = load(tmp_path / "model")
    some = dataset.inputs[:7]
    torch.testing.assert_close(again.probabilities(some), model.probabilities(some))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({name: some.columns[name] for name in some.names})
    torch.testing.assert_close(again.probabilities(frame), model.probabilities(some))


def test_the_only_column_may_be_named(bert):
    titles = rows().inputs.columns["title"].tolist()
    dataset = Dataset(titles, rows().labels, rows().hierarchy, feature_names=("title",))
    model = train(
        dataset, Plan(recipe="nearest", encoder={"title": bert}, settings={"device": "cpu"})
    )
    assert model.preprocessor.reads == "texts"


def test_images_of_files(tmp_path):
    pytest.importorskip("timm")
    from PIL import Image

    draw = np.random.default_rng(0)
    for name in ("a", "b"):
        Image.fromarray(draw.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(
            tmp_path / f"{name}.png"
        )
    paths = np.array(["a.png", "b.png", "a.png"], dtype=object)
    one = ColumnEncoder("image", {"source": "timm:resnet18", "root": str(tmp_path)})
    assert one.read(paths).names == ["a.png", "b.png", "a.png"]
    assert one.read(paths).read(1) == (tmp_path / "b.png").read_bytes()


def test_a_training_on_images_and_numbers(tmp_path):
    pytest.importorskip("timm")
    from PIL import Image

    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 4, 24)
    for number, kind in enumerate(kinds):
        pixels = draw.integers(0, 50, (20, 20, 3), dtype=np.uint8)
        pixels[..., kind // 2] += 180
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    paths = np.array([f"{number}.png" for number in range(24)], dtype=object)
    sizes = (kinds % 2 + draw.normal(0, 0.1, 24)).astype(np.float32)
    table = Table({"photo": paths, "size": sizes}, {"photo": "text", "size": "number"})
    dataset = Dataset(table, [[LEAVES[kind]] for kind in kinds], Hierarchy.from_paths(LEAVES))
    encoder = {"source": "timm:test_resnet", "pretrained": False, "root": str(tmp_path)}
    plan = Plan(recipe="nearest", encoder={"photo": encoder}, settings={"device": "cpu"})
    model = train(dataset, plan, tmp_path / "model")
    assert model.predict(table) == [LEAVES[kind] for kind in kinds]
    again = load(tmp_path / "model")
    torch.testing.assert_close(again.probabilities(table), model.probabilities(table))


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ({"titel": "hf:x"}, "unknown column of an encoder 'titel'; did you mean 'title'"),
        (
            {"price": "hf:x"},
            "the encoder of column 'price' reads texts, but the column is a number",
        ),
        (
            {"title": "hf:x,tuning=full"},
            "the encoder of column 'title' is frozen; leave tuning out",
        ),
        ({"title": "hf:x,poling=cls"}, "unknown option of hf:x 'poling'"),
        ({"title": "hf:x,root=here"}, "root is for images"),
    ],
)
def test_refusals(encoder, message):
    with pytest.raises(HierlearnError, match=message):
        train(rows(), Plan(encoder=encoder, settings={"device": "cpu"}))


def test_refusals_of_a_plan():
    with pytest.raises(HierlearnError, match="unknown family of backbones 'sentence'"):
        Plan(encoder={"title": "sentence:x"})
    with pytest.raises(HierlearnError, match="needs a source such as hf:PATH"):
        Plan(encoder={"title": {"pooling": "cls"}})
    numbers = Dataset(np.ones((4, 2), np.float32), [["a"]] * 4, Hierarchy.from_paths(["a"]))
    with pytest.raises(HierlearnError, match="but the inputs are numbers without columns"):
        train(numbers, Plan(encoder={"title": "hf:x"}, settings={"device": "cpu"}))
    with pytest.raises(HierlearnError, match="encodes all columns of texts; leave it out"):
        train(rows(), Plan(network="hf:y", encoder={"title": "hf:x"}, settings={"device": "cpu"}))
