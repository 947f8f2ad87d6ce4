"""The exported graph gives PyTorch's probabilities through onnxruntime, for every link."""

import json
import re

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.datasets import Dataset, read_table
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import HierlearnError
from hierlearn.features import NumericPreprocessor, PiecewiseLinearPreprocessor, TextPreprocessor
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels import choose
from hierlearn.links import LINKS, make_link
from hierlearn.memory import LabelSets, Remembered
from hierlearn.memory.store import as_stored
from hierlearn.networks import InputSpec
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network
from hierlearn.networks.memories import embed, set_memory
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline import export as exporting
from hierlearn.pipeline.export import ABSOLUTE, export
from hierlearn.training import Plan
from hierlearn.training.blending import race
from hierlearn.training.choose import Facts
from mixed_rows import make_rows

NAN = float("nan")
TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h", "f/i/j"])
DAG = Hierarchy.from_edges(
    [("a", "b"), ("a", "c"), ("p", "c"), ("c", "d"), ("b", "d"), ("d", "e"), ("p", "q")]
)
HIERARCHIES = {"tree": TREE, "DAG": DAG}
TEXTS = ["red round thing", "blue thing", "small red", "round and blue and small"]


def numbers(rows, seed=0):
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((rows, 4)) * [1, 100, 0.01, 1] + [0, 5, -3, 0]
    values[draw.random(values.shape) < 0.2] = NAN
    values[:, 3] = NAN  # never observed
    return values.astype(np.float32)


def model_of(link, hierarchy, name="linear", *, preprocessor=None, members=None, **options):
    preprocessor = preprocessor or NumericPreprocessor().fit(numbers(50))
    space = LabelSpace(hierarchy, [0])
    spec = NetworkSpec(name, InputSpec.numbers(preprocessor.columns), options, members)
    network = build_network(spec, space, range(members or 1))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(3)  # probabilities near 0 and 1 too
    return Pipeline(
        space,
        network.eval(),
        make_link(space, link),
        preprocessor=preprocessor,
        network_spec=spec,
        config={"feature_names": ["w", "x", "y", "z"]},
    )


def make(link, kind):
    """A model of the link; over the cases every network, members and setting occurs."""
    hierarchy = HIERARCHIES[kind]
    if (link, kind) == ("softmax", "tree"):
        return model_of(link, hierarchy, "mlp", width=6, members=2)
    if (link, kind) == ("conditional", "tree"):
        texts = TextPreprocessor().fit(TEXTS)
        return model_of(link, hierarchy, "token-bag", preprocessor=texts, width=5, depth=2)
    if (link, kind) == ("conditional", "DAG"):
        double = model_of(link, hierarchy)
        double.network.double()
        return double
    if (link, kind) == ("max", "DAG"):
        plain = NumericPreprocessor(standardize=False).fit(numbers(50))
        return model_of(link, hierarchy, "mlp", width=3, members=1, preprocessor=plain)
    if (link, kind) == ("sigmoid", "DAG"):
        bins = PiecewiseLinearPreprocessor(bins=5).fit(numbers(50))
        noise = {"input_dropout": 0.3, "input_noise": 0.2}
        return model_of(link, hierarchy, "mlp", width=3, members=2, preprocessor=bins, **noise)
    return model_of(link, hierarchy)


CASES = [
    (link, kind) for link in LINKS for kind in HIERARCHIES if (link, kind) != ("siblings", "DAG")
]


@pytest.mark.parametrize(("link", "kind"), CASES)
def test_the_graph_is_the_model(tmp_path, link, kind):
    model = make(link, kind)
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    written = export(model, tmp_path / "deep" / "m.onnx")
    assert [path.name for path in written] == ["m.onnx", "hierarchy.json", "preprocessing.json"]
    session = onnxruntime.InferenceSession(written[0])
    for rows in (1, 2, 4, 9, 100):
        is_text = isinstance(model.preprocessor, TextPreprocessor)
        raw = (TEXTS * 25)[:rows] if is_text else numbers(rows, seed=rows)
        given = model.preprocessor.transform(raw).toarray() if is_text else raw
        found = session.run(None, {"inputs": given.astype(np.float32)})
        assert len(found) == 1
        assert found[0].dtype == np.float32
        wanted = model.probabilities(raw).numpy()
        assert found[0].shape == wanted.shape == (rows, len(model.hierarchy))
        np.testing.assert_allclose(found[0], wanted, rtol=0, atol=ABSOLUTE)
    assert session.run(None, {"inputs": np.zeros((0, given.shape[1]), np.float32)})[0].size == 0
    assert Hierarchy.read(written[1]) == model.hierarchy
    beside = json.loads(written[2].read_text())
    assert beside["link"] == link
    assert beside["terminals"] == model.label_space.terminals.tolist()
    check_beside(beside, model)
    for name, value in model.network.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(("name", "link"), [("hmc-lmlp", "min"), ("early-heads", "max")])
def test_the_graph_of_levels_and_of_early_heads_is_the_model(tmp_path, name, link):
    model = model_of(link, TREE, name, members=2, width=8)
    session = onnxruntime.InferenceSession(export(model, tmp_path / "m.onnx")[0])
    (found,) = session.run(None, {"inputs": numbers(9, seed=2)})
    wanted = model.probabilities(numbers(9, seed=2)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ABSOLUTE)


def check_beside(beside, model):
    """What stands beside the graph is enough to make its inputs."""
    if not isinstance(model.preprocessor, TextPreprocessor):
        assert beside["in_graph"] is True
        assert beside["feature_names"] == ["w", "x", "y", "z"]
        return
    assert beside["in_graph"] is False
    text = "blue round round"
    counts = {word: text.split().count(word) for word in set(text.split())}
    row = [
        (1 + np.log(counts[word])) * idf if word in counts else 0.0
        for word, idf in zip(beside["words"], beside["idf"], strict=True)
    ]
    wanted = model.preprocessor.transform([text]).toarray()[0]
    np.testing.assert_allclose(np.array(row) / np.linalg.norm(row), wanted, rtol=1e-6)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(model_of("sigmoid", TREE), tmp_path_factory.mktemp("onnx") / "m.onnx")[0]


def test_the_file_is_whole_valid_and_tells_nothing_of_the_machine(exported):
    onnx.checker.check_model(onnx.load(exported), full_check=True)
    assert b"site-packages" not in exported.read_bytes()
    assert not re.search(rb"\.py\b", exported.read_bytes())
    names = sorted(path.name for path in exported.parent.iterdir())
    assert names == ["hierarchy.json", "m.onnx", "preprocessing.json"]
    graph = onnx.load(exported).graph
    assert [one.name for one in graph.input] == ["inputs"]
    assert [one.name for one in graph.output] == ["probabilities"]


def test_a_model_whose_link_has_run_by_kernels_alone_is_exported(tmp_path, monkeypatch):
    """Members are averaged by pairs of a kernel, which leaves no index tensors for the graph."""
    fresh = Hierarchy.from_paths(["kernels/alone/x", "kernels/alone/y", "kernels/z"])
    monkeypatch.setattr(choose, "FEWEST", 2 * len(fresh) + 1)  # one row goes without
    assert export(model_of("softmax", fresh, "mlp", width=3, members=2), tmp_path / "m.onnx")


def default_model(kind, folder):
    """The model that no option asks for, of texts or of a mixed table; and fresh rows."""
    rows = pd.DataFrame(make_rows(700)).drop(columns=["sku", "shop"])
    if kind == "texts":
        rows = rows[["title", "class"]]
    rows[:500].to_csv(folder / "rows.csv", index=False)
    rows[500:].to_csv(folder / "new.csv", index=False)
    data = read_table(folder / "rows.csv", label="class")
    model = train(data, Plan())
    step = model.preprocessor
    named = {"text": "title"} if kind == "texts" else {"features": step.kinds}
    return model, next(iter(TableStream(folder / "new.csv", **named))).inputs


@pytest.mark.parametrize("kind", ["texts", "mixed"])
def test_the_default_model_of_words_is_exported_and_answers_alike(tmp_path, kind):
    model, fresh = default_model(kind, tmp_path)
    session = onnxruntime.InferenceSession(export(model, tmp_path / "m.onnx")[0])
    rows = model.preprocessor.transform(fresh).toarray()
    (found,) = session.run(None, {"inputs": rows})
    wanted = model.probabilities(fresh)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3, atol=ABSOLUTE)
    decide = model.make_decoder()
    assert torch.equal(decide(torch.from_numpy(found)), decide(wanted))


RACED = race(Facts(rows=1000, classes=len(TREE)))


@pytest.mark.parametrize("name", RACED)
def test_every_model_that_a_race_of_numbers_may_keep_is_exported(tmp_path, name):
    """A graph whose number of rows is fixed fails here, at any number but that of its example."""
    draw = np.random.default_rng(1)
    classes = draw.integers(len(TREE.leaves), size=150)
    x = (draw.standard_normal((150, 4)) + classes[:, None]).astype(np.float32)
    labels = [[TREE.names[TREE.leaves[number]]] for number in classes]
    data = Dataset(x, labels, TREE)
    model = train(data, RACED[name].plan(Plan(settings={"epochs": 2}), 1))
    session = onnxruntime.InferenceSession(export(model, tmp_path / "m.onnx")[0])
    for rows in (1, 2, 100):
        (found,) = session.run(None, {"inputs": x[:rows]})
        wanted = model.probabilities(x[:rows])
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3, atol=ABSOLUTE)


def test_large_logits_are_compared_by_what_single_precision_leaves(tmp_path, monkeypatch):
    """Of many words, each with a large weight, logits differ in the sixth digit by their order."""
    words = [f"w{number}" for number in range(4000)]
    texts = TextPreprocessor().fit([" ".join(words)] * 2)
    model = model_of("softmax", TREE, preprocessor=texts)
    with torch.no_grad():
        model.network.heads["main"].linear.weight.mul_(30)
    assert export(model, tmp_path / "m.onnx")
    monkeypatch.setattr(exporting, "check_close", lambda *_: None)
    data = (tmp_path / "m.onnx").read_bytes()
    monkeypatch.setattr(exporting, "to_onnx", lambda *_: data)
    with torch.no_grad():
        model.network.heads["main"].linear.weight.mul_(-1)
    with pytest.raises(HierlearnError, match=r"answers \d+ of \d+ random rows otherwise than the"):
        export(model, tmp_path / "other.onnx")


def test_a_graph_that_is_not_the_model_is_not_written(exported, tmp_path, monkeypatch):
    data = exported.read_bytes()
    monkeypatch.setattr(exporting, "to_onnx", lambda *_: data)
    other = model_of("sigmoid", TREE)
    with torch.no_grad():
        other.network.heads["main"].linear.bias.add_(0.01)
    with pytest.raises(HierlearnError, match=r"the exported graph differs from the model: \d+ of"):
        export(other, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_model_too_large_for_the_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "LARGEST", 100)
    with pytest.raises(HierlearnError, match=r"m\.onnx: the weights are \d+ bytes, ONNX holds 100"):
        export(model_of("sigmoid", TREE), tmp_path / "m.onnx")


def test_a_graph_of_bins_is_the_model_for_missing_values_and_outliers(tmp_path):
    bins = PiecewiseLinearPreprocessor(bins=5).fit(numbers(50))
    model = model_of("sigmoid", TREE, preprocessor=bins)
    session = onnxruntime.InferenceSession(export(model, tmp_path / "m.onnx")[0])
    raw = numbers(40)
    raw[:10] *= 1e6
    raw[10], raw[11:13, 3] = NAN, 5.0
    found = session.run(None, {"inputs": raw})[0]
    np.testing.assert_allclose(found, model.probabilities(raw).numpy(), rtol=0, atol=ABSOLUTE)


@pytest.mark.parametrize(
    ("kind", "members", "distance"),
    [
        ("tree", None, "squared"),
        ("DAG", 2, "squared"),
        ("tree", 2, "euclidean"),
        ("DAG", None, "euclidean"),
        ("tree", 2, "cosine"),
        ("DAG", None, "cosine"),
    ],
    ids=str,
)  # every pair of two choices
def test_a_memory_becomes_part_of_the_graph(kind, members, distance, tmp_path):
    """More rows than neighbors, weights, several labels per row, and another head beside it."""
    hierarchy = HIERARCHIES[kind]
    space, preprocessor = LabelSpace(hierarchy), NumericPreprocessor().fit(numbers(50))
    options = {"distance": distance, "neighbors": 7, "size": 5}
    heads = {
        "main": HeadSpec("neighbors", options),
        "bce": HeadSpec("linear", {"reading_link": "max"}),
    }
    spec = NetworkSpec("mlp", InputSpec.numbers(4), {"width": 8}, members, heads)
    network = build_network(spec, space, range(members or 1)).eval()
    draw = np.random.default_rng(3)
    labels = [draw.choice(hierarchy.names, 2).tolist() for _ in range(40)]
    known = Remembered(
        LabelSets.from_labels(Labels(labels, hierarchy)),
        [str(number) for number in range(40)],
        draw.random(40) + 0.5,
    )
    for answer in ("main", "average"):
        pipeline = Pipeline(
            space,
            network,
            make_link(space, "max"),
            preprocessor=preprocessor,
            network_spec=spec,
            answer=answer,
        )
        rows = pipeline.rows(numbers(40, seed=2))
        set_memory(network, {"main": as_stored(embed(network, rows)["main"].detach())}, known)
        path = tmp_path / f"{answer}.onnx"
        export(pipeline, path)
        session = onnxruntime.InferenceSession(path.read_bytes())
        x = numbers(30, seed=4)
        (found,) = session.run(["probabilities"], {"inputs": x})
        assert np.abs(found - pipeline.probabilities(x).numpy()).max() <= ABSOLUTE


def test_a_memory_of_repeated_rows_is_exported(tmp_path):
    """Rows that tie at the last neighbor, and long embeddings."""
    space = LabelSpace(TREE)
    options = {"neighbors": 7, "size": 5}
    spec = NetworkSpec(
        "linear", InputSpec.numbers(4), {}, None, {"main": HeadSpec("neighbors", options)}
    )
    network = build_network(spec, space, [0]).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(30)
    rows = torch.from_numpy(np.repeat(np.random.default_rng(0).normal(size=(20, 4)), 3, axis=0))
    labels = [[TREE.names[number % len(TREE)]] for number in range(60)]
    known = Remembered(LabelSets.from_labels(Labels(labels, TREE)), [str(n) for n in range(60)])
    found = embed(network, rows.float())["main"].detach()
    set_memory(network, {"main": as_stored(found)}, known)
    pipeline = Pipeline(space, network, make_link(space, "max"), network_spec=spec, answer="main")
    assert export(pipeline, tmp_path / "m.onnx")[0].is_file()
