"""Pipelines with a memory: saved and loaded, explained, and changed without training."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hierlearn import Dataset, Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError, write_tensors
from hierlearn.networks.ensemble import head_names
from hierlearn.networks.memories import embeddings_of, remembered
from hierlearn.pipeline import Pipeline, train
from hierlearn.pipeline.answers import neighbor_names
from hierlearn.pipeline.explain import answering_memories, explain
from hierlearn.pipeline.folder import digest, write_config
from hierlearn.pipeline.remember import build_index, forget, remap, remember
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import save_into
from hierlearn.training.prepare import prepare
from shards import change_names
from tolerances import FLOAT32
from training.datasets import neighbor_plan, partial_problem, plan, problem, texts

QUIET = Reporting(bar=False)
TREE = Hierarchy.from_paths(["a/b", "a/c", "d/e", "d/f"])
DAG = Hierarchy.from_parents(
    {"a": [], "b": [], "c": ["a", "b"], "d": ["a"], "e": ["c", "d"], "f": ["b"]}
)


def trained(dataset, weights=None, **options):
    chosen = neighbor_plan(**{"epochs": 2, "learning_rate": 0.02, **options})
    return train(dataset, chosen, weights=weights, reporting=QUIET)


def clusters(hierarchy=TREE, ends=None, size=6, **extra):
    """Return rows around one point per class."""
    ends = ends or [hierarchy.names[number] for number in hierarchy.leaves]
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((len(ends), 4)) * 5
    inputs = np.repeat(centers, size, axis=0) + rng.standard_normal((len(ends) * size, 4))
    labels = [[end] for end in ends for _ in range(size)]
    return Dataset(inputs.astype(np.float32), labels, hierarchy, **extra)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of texts, whose rows have ids, saved."""
    dataset = replace(texts(), ids=tuple(f"id é{number}" for number in range(24)))
    out = tmp_path_factory.mktemp("models") / "m"
    train(dataset, neighbor_plan(network="token-bag", epochs=2), out=out, reporting=QUIET)
    return out


def fresh(**options):
    return trained(clusters(), **{"epochs": 1, "head": {"scale": 0.5}, **options})


def assert_coherent(hierarchy, p):
    for number in range(len(hierarchy)):
        for parent in hierarchy.parents(number):
            assert (p[:, number] <= p[:, parent] + 1e-6).all()


# ---------------------------------------------------------------------- files

SAVED = {
    "one network": (problem, {}, None),
    "an ensemble, joint heads": (
        problem,
        {"ensemble_size": 2, "joint": {"mcloss": 1.0}, "answer": "average"},
        None,
    ),
    "partial labels, weights": (
        partial_problem,
        {"unlabeled_descendants": "ignore", "head": {"learn_scale": True}},
        np.random.default_rng(0).uniform(0, 2, 60),
    ),
    "sparse rows": (texts, {"network": "token-bag"}, None),
}


@pytest.mark.parametrize("case", SAVED)
def test_a_loaded_pipeline_answers_bit_for_bit(tmp_path, case):
    make, options, weights = SAVED[case]
    dataset = make()
    model = trained(dataset, weights, **options)
    again = Pipeline.load(model.save(tmp_path / "m"))
    assert torch.equal(again.probabilities(dataset.inputs), model.probabilities(dataset.inputs))
    mine, theirs = remembered(model.network), remembered(again.network)
    assert list(mine.ids) == list(theirs.ids)
    assert (mine.texts is None) == (theirs.texts is None) == (case != "sparse rows")
    assert (mine.weights is None) == (theirs.weights is None) == (weights is None)
    numbers = range(len(mine))
    assert mine.labels.names(numbers) == theirs.labels.names(numbers)
    assert mine.labels.is_partial == theirs.labels.is_partial
    for name, value in embeddings_of(model.network).items():
        found = embeddings_of(again.network)[name]
        assert torch.equal(found, value)
        assert found.dtype == value.dtype == torch.float16
    assert again.answer == model.answer
    again.save(tmp_path / "again")
    for name in ("memory-00001.safetensors", "memory.json", "model.safetensors"):
        assert digest(tmp_path / "again" / name) == digest(tmp_path / "m" / name)


def test_ids_and_texts_round_trip(folder):
    rows = remembered(Pipeline.load(folder).network)
    assert list(rows.ids) == [f"id é{number}" for number in range(24)]
    assert list(rows.texts) == texts().inputs


def test_a_model_without_a_memory_has_no_memory_files(tmp_path):
    model = train(problem(), plan(epochs=1), reporting=QUIET)
    names = {path.name for path in model.save(tmp_path / "m").iterdir()}
    files = {"model.safetensors", "hierarchy.json", "config.json", "README.md", "rows.safetensors"}
    assert names == files
    model = fresh()
    model.save(tmp_path / "m", force=True)
    assert (tmp_path / "m" / "memory.json").is_file()
    train(problem(), plan(epochs=1), reporting=QUIET).save(tmp_path / "m", force=True)
    assert {path.name for path in (tmp_path / "m").iterdir()} == names


def sentence(folder):
    with pytest.raises(CheckpointError) as caught:
        Pipeline.load(folder)
    said = str(caught.value)
    assert "\n" not in said
    return said.replace(str(folder), "FOLDER")


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.mark.parametrize("name", ["memory-00001.safetensors", "memory.json"])
def test_missing_damaged_and_foreign_memories(copied, name):
    path = copied / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    changed = (
        f"FOLDER/{name} is not the file that was saved: it is truncated or of another model; copy "
        f"the whole folder again"
    )
    assert sentence(copied) == changed
    path.unlink()
    assert sentence(copied) == f"FOLDER has no {name}; copy the whole folder again"
    foreign = fresh().save(copied.parent / "foreign")
    shutil.copy(foreign / name, path)
    assert sentence(copied) == changed


def forge(folder, name, change):
    """Change a file of a model, and its checksum with it."""
    path = folder / name
    if name.endswith("json"):
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))
    else:
        tensors = load_file(path)
        change(tensors)
        write_tensors(path, tensors, {})
    config = json.loads((folder / "config.json").read_text())
    config["files"][name] = digest(path)
    write_config(folder / "config.json", config)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda values: values.pop("texts"), "texts is missing"),
        (lambda values: values["shards"][0].pop("rows"), "shards[0].rows is missing"),
        (lambda values: values.update(next="x"), "next must be an integer, not 'x'"),
        (lambda values: values.update(more=1), "unknown key 'more'; known: "),
        (
            lambda values: values.update(unlabeled_descendants="maybe"),
            "unlabeled_descendants must be one of 'negative', 'ignore', not 'maybe'",
        ),
    ],
)
def test_a_memory_json_that_breaks_its_schema(copied, change, wrong):
    forge(copied, "memory.json", change)
    assert sentence(copied).startswith(f"FOLDER/memory.json: {wrong}")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (
            "memory-00001.safetensors",
            lambda tensors: change_names(tensors, lambda names: names["ids"].pop()),
        ),
        (
            "memory-00001.safetensors",
            lambda tensors: change_names(tensors, lambda names: names["texts"].pop()),
        ),
        (
            "memory-00001.safetensors",
            lambda tensors: change_names(tensors, lambda names: names.update(classes=["x"])),
        ),
        ("memory-00001.safetensors", lambda tensors: tensors.pop("embeddings/main")),
        ("memory-00001.safetensors", lambda tensors: tensors.pop("set_of_row")),
        ("memory-00001.safetensors", lambda tensors: tensors["set_of_row"].add_(100)),
        ("memory-00001.safetensors", lambda tensors: tensors["set_numbers"].add_(100)),
        (
            "memory-00001.safetensors",
            lambda tensors: tensors.update({"embeddings/main": torch.zeros(3, 6)}),
        ),
        (
            "memory-00001.safetensors",
            lambda tensors: tensors.update({"embeddings/main": torch.zeros(24, 5)}),
        ),
        (
            "memory-00001.safetensors",
            lambda tensors: tensors.update({"embeddings/main": torch.zeros(2, 24, 6)}),
        ),
    ],
)
def test_a_memory_that_does_not_fit_the_model(copied, name, change):
    forge(copied, name, change)
    said = sentence(copied)
    assert said.startswith("FOLDER/memory-00001.safetensors does not fit this model (")
    assert said.endswith("); copy the whole folder again")


# ---------------------------------------------------------------------- evidence


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("make", [problem, partial_problem])
def test_evidence_reproduces_the_probabilities(make, size):
    dataset = make()
    weights = np.random.default_rng(1).uniform(0.5, 2, 60)
    model = trained(dataset, weights, ensemble_size=size)
    inputs = dataset.inputs[:7]
    found = explain(model, inputs, count=1000)
    p = replace(model, scaling=None).probabilities(inputs)  # evidence is of what is scaled
    rows = remembered(model.network)
    for row, neighbors in enumerate(found):
        total = sum(one.weight for one in neighbors)
        assert total == pytest.approx(1, abs=1e-5)
        shares = [one.weight for one in neighbors]
        assert shares == sorted(shares, reverse=True)
        assert len({one.row for one in neighbors}) == len(neighbors) == len(rows)
        closed = [model.hierarchy.closure(one.labels) for one in neighbors]
        for number, name in enumerate(model.hierarchy.names):
            share = sum(
                one.weight for one, above in zip(neighbors, closed, strict=True) if name in above
            )
            assert share == pytest.approx(float(p[row, number]), abs=1e-5)
        for one in neighbors:
            assert one.id == rows.ids[one.row]
            assert one.text is None
    assert [len(one) for one in explain(model, inputs, count=2)] == [2] * 7
    assert explain(model, inputs, count=2)[3] == found[3][:2]


def test_only_the_neighbors_are_evidence_and_texts_are_shown(folder):
    model = Pipeline.load(folder)
    head = model.network.heads["main"]
    head.neighbors = 4
    found = explain(model, texts().inputs[:3], count=9)
    assert [len(one) for one in found] == [4, 4, 4]
    for neighbors in found:
        assert sum(one.weight for one in neighbors) == pytest.approx(1, abs=1e-5)
        for one in neighbors:
            assert one.text == texts().inputs[one.row]
            assert one.id == f"id é{one.row}"
    with pytest.raises(HierlearnError, match="count must be at least 1, not 0"):
        explain(model, texts().inputs[:3], count=0)


def test_a_model_without_a_memory_has_no_evidence():
    model = train(problem(), plan(epochs=1), reporting=QUIET)
    with pytest.raises(HierlearnError, match="this model has no memory: its answers come from"):
        explain(model, problem().inputs[:2])
    with pytest.raises(HierlearnError, match="this model has no memory"):
        forget(model, ["1"])


def test_rows_that_did_not_answer_are_no_evidence():
    model = fresh(joint={"mcloss": 1.0}, answer="mcloss")
    inputs = clusters().inputs
    message = r"answers by its head 'mcloss', which is no memory.*answer='main' in Python"
    for some in (inputs[:2], inputs[:0]):
        with pytest.raises(HierlearnError, match=message):
            explain(model, some)
    with pytest.raises(HierlearnError, match=message):
        neighbor_names(model, 2)
    model.answer = "average"
    assert len(explain(model, inputs[:2])) == 2
    answering = [answering_memories(model.network, one) for one in ("average", "main", "mcloss")]
    assert answering == [{"main": 1.0}, {"main": 1.0}, {}]


def test_no_rows_have_no_neighbors():
    model, none = fresh(), clusters().inputs[:0]
    assert explain(model, none) == []


# ---------------------------------------------------------------------- remember


def held(model):
    return {name: value.clone() for name, value in embeddings_of(model.network).items()}


def names_of(model):
    rows = remembered(model.network)
    return rows.labels.names(range(len(rows)))


@pytest.mark.parametrize("size", [1, 2])
def test_new_rows_of_old_classes(size):
    model = fresh(ensemble_size=size)
    before, inputs = held(model), np.full((2, 4), 9.0, dtype=np.float32)
    grown = remember(model, inputs, [["a/b"], "d"])
    assert (grown.rows, grown.classes, grown.total) == (2, (), 26)
    after = held(model)
    assert torch.equal(after["main"][..., :24, :], before["main"])
    assert after["main"].shape[-2] == 26
    assert names_of(model)[24:] == [["a/b"], ["d"]]
    assert list(remembered(model.network).ids[23:]) == ["23", "24", "25"]
    near = explain(model, inputs[:1])[0]
    assert {near[0].row, near[1].row} == {24, 25}
    assert "d" in model.label_space.terminal_names
    assert model.config["history"] == [
        {
            "change": "remember",
            "fingerprint_before": TREE.fingerprint,
            "rows": 2,
            "classes": 0,
        }
    ]


def test_a_new_class_by_its_path():
    model = fresh(joint={"mcloss": 1.0}, answer="main")
    before, old = held(model), model.probabilities(clusters().inputs)
    inputs = np.full((5, 4), 30.0, dtype=np.float32)
    grown = remember(model, inputs, [["a/new/deep"]] * 3 + [["a/new"]] * 2, ids=list("vwxyz"))
    assert grown.classes == ("a/new", "a/new/deep")
    assert torch.equal(held(model)["main"][:24], before["main"])
    assert head_names(model.network) == ["main"]
    assert model.hierarchy == Hierarchy.from_paths([*TREE.names, "a/new/deep"])
    assert set(model.label_space.terminal_names) == {
        *(TREE.names[number] for number in TREE.leaves), "a/new", "a/new/deep",
    }  # fmt: skip
    p = model.probabilities(inputs)
    assert p.shape == (5, 8)
    assert p[0, model.hierarchy.index("a/new")] > 0.99
    assert model.predict(inputs[:1], "leaf")[0].startswith("a/new")
    columns = [model.hierarchy.index(name) for name in TREE.names]
    far = model.probabilities(clusters().inputs)[:, columns]
    torch.testing.assert_close(far, old, rtol=0, atol=1e-3)
    assert {one.id for one in explain(model, inputs[:1], count=5)[0]} == set("vwxyz")


def test_a_grown_model_is_saved_and_loaded(tmp_path):
    model = fresh(ensemble_size=2, joint={"mcloss": 1.0}, answer="main")
    inputs = np.full((2, 4), 30.0, dtype=np.float32)
    remember(model, inputs, [["a/new"]] * 2, weights=[2.0, 1.0])
    again = Pipeline.load(model.save(tmp_path / "m"))
    assert torch.equal(again.probabilities(inputs), model.probabilities(inputs))
    assert again.label_space == model.label_space
    assert again.config["history"] == model.config["history"]
    assert remembered(again.network).weights.tolist() == [1.0] * 24 + [2.0, 1.0]
    assert forget(again, ["24", "25"]) == 2


def test_a_new_class_with_its_hierarchy():
    model = trained(clusters(DAG))
    new = Hierarchy.from_parents({**parents_of(DAG), "g": ["d", "f"]})
    inputs = np.full((2, 4), 30.0, dtype=np.float32)
    with pytest.raises(HierlearnError, match=r"has no 'g', and names do not tell their parents"):
        remember(model, inputs, [["g"]] * 2)
    grown = remember(model, inputs, [["g"]] * 2, hierarchy=new)
    assert grown.classes == ("g",)
    assert model.hierarchy == new
    p = model.probabilities(inputs)[0]
    for name in ("g", "d", "f", "a", "b"):
        assert p[new.index(name)] > 0.99
    assert sorted(names_of(model)) == [*[["e"]] * 6, *[["f"]] * 6, ["g"], ["g"]]


def parents_of(hierarchy):
    return {
        name: [hierarchy.names[one] for one in hierarchy.parents(number)]
        for number, name in enumerate(hierarchy.names)
    }


def unchanged(model, change, message):
    """Check that a change is refused and leaves everything as it was."""
    before, space, count = held(model), model.label_space, len(remembered(model.network))
    heads = head_names(model.network)
    with pytest.raises(HierlearnError, match=message) as caught:
        change()
    assert "\n" not in str(caught.value)
    assert len(remembered(model.network)) == count
    assert model.label_space == space
    assert head_names(model.network) == heads
    assert "history" not in model.config
    for name, value in held(model).items():
        assert torch.equal(value, before[name])


def test_what_cannot_be_remembered():
    model, x = fresh(), np.zeros((1, 4), dtype=np.float32)

    def attempt(message, labels=(("a/b",),), inputs=x, **options):
        unchanged(model, lambda: remember(model, inputs, labels, **options), message)

    attempt("has neither 'z/y' nor a parent for it", [["z/y"]])
    attempt("no class 'z', and a new top class is not taken from a label; correct", [["z"]])
    attempt("there are no rows to remember", [], inputs=x[:0])
    attempt("inputs have 1 rows but labels have 2", [["a"], ["d"]])
    attempt("inputs have 3 features but the network reads 4|3 columns", inputs=x[:, :3])
    attempt("2 ids do not fit 1 rows", ids=["x", "y"])
    attempt("the weight of row 0 is 0.0", weights=np.zeros(1))
    attempt("the weight of row 0 is -1.0", weights=[-1.0])
    attempt("1 weights|2 weights do not fit 1 rows", weights=np.ones(2))
    attempt("the new hierarchy lacks 'd'; use remap", hierarchy=Hierarchy.from_paths(["a/b"]))
    dag = trained(clusters(DAG), epochs=1)
    other = Hierarchy.from_parents({**parents_of(DAG), "f": ["a"]})
    unchanged(
        dag,
        lambda: remember(dag, x, [["f"]], hierarchy=other),
        "'f' has other parents in the new hierarchy; use remap to move classes",
    )


def test_heads_that_have_learned_the_old_classes_cannot_answer_for_new_ones():
    model = fresh(joint={"mcloss": 1.0}, answer="average")
    x = np.zeros((1, 4), dtype=np.float32)
    unchanged(
        model,
        lambda: remember(model, x, [["a/new"]]),
        "this model answers by average of 'main', 'mcloss', and heads that are no memory cannot "
        r"take new classes; train with --answer main \(answer='main' in Python\)",
    )
    new, gone = Hierarchy.from_paths(["a", "d"]), dict.fromkeys(["a/b", "a/c", "d/e", "d/f"])
    unchanged(model, lambda: remap(model, new, gone), "cannot take another taxonomy")
    remember(model, x, [["a/b"]])  # of an old class it can
    assert head_names(model.network) == ["main", "mcloss"]


def test_new_rows_that_overflow_half_precision_are_kept():
    model = fresh()
    before = held(model)["main"]
    inputs = np.full((1, 4), 1e8, dtype=np.float32)
    remember(model, inputs, [["a/b"]])
    after = held(model)["main"]
    assert after.isfinite().all()
    assert torch.equal(after[:24], before.float())
    assert explain(model, inputs)[0][0].row == 24
    assert model.probabilities(inputs).isfinite().all()


def test_new_top_classes_only_where_the_hierarchy_is_flat():
    x = np.full((2, 4), 30.0, dtype=np.float32)
    flat = trained(clusters(Hierarchy.from_paths(["p", "q"])), epochs=1)
    assert remember(flat, x, [["r"], ["p"]]).classes == ("r",)
    assert remember(flat, x, [["s/t"], ["s"]]).classes == ("s", "s/t")
    assert flat.hierarchy == Hierarchy.from_paths(["p", "q", "r", "s/t"])
    message = "no class 'u', and a new top class is not taken from a label"
    with pytest.raises(HierlearnError, match=message):  # it is no longer flat
        remember(flat, x, [["u/v"], ["u"]])
    whole = Hierarchy.from_paths([*flat.hierarchy.names, "u/v"])
    assert remember(flat, x, [["u/v"], ["u"]], hierarchy=whole).classes == ("u", "u/v")


def test_a_name_that_several_classes_have_is_ambiguous():
    model = trained(clusters(Hierarchy.from_paths(["a/b", "d/b"])), epochs=1)
    with pytest.raises(HierlearnError, match="label 'b' is ambiguous: it could be"):
        remember(model, np.zeros((1, 4), dtype=np.float32), [["b"]])


def test_a_new_class_with_the_bare_name_of_another_counts_as_new():
    model = fresh()
    whole = Hierarchy.from_paths([*TREE.names, "b"])
    x = np.zeros((1, 4), dtype=np.float32)
    assert remember(model, x, [["b"]], hierarchy=whole).classes == ("b",)
    assert names_of(model)[24:] == [["b"]]


def test_ids_are_never_used_again(tmp_path):
    model = fresh()
    x = np.zeros((1, 4), dtype=np.float32)
    forget(model, ["22", "23"])
    remember(model, x, [["a/b"]])
    assert list(remembered(model.network).ids)[-2:] == ["21", "24"]
    forget(model, ["24"])
    again = Pipeline.load(model.save(tmp_path / "m"))
    remember(again, x, [["a/b"]])
    remember(again, x, [["a/b"]], ids=["40"])
    forget(again, ["40"])
    remember(again, x, [["a/b"]])
    assert list(remembered(again.network).ids)[-2:] == ["25", "41"]


# ---------------------------------------------------------------------- what the folder says


def changes():
    """The changes of a model without new classes, by name."""
    x = np.zeros((1, 4), dtype=np.float32)
    return {
        "remember": lambda model: remember(model, x, [["a/b"]]),
        "forget": lambda model: forget(model, ["3"]),
        "remap": lambda model: remap(model, TREE),
    }


@pytest.mark.parametrize("change", changes())
def test_metrics_and_thresholds_of_before_a_change(tmp_path, change):
    model = fresh()
    metrics = {"valid": {"hit@1": 0.75}}
    model.config["metrics"] = metrics
    model.config["estimator"] = {"labels": {"shape": "one"}, "thresholds": {"stop": 0.5}}
    changes()[change](model)
    config = json.loads((model.save(tmp_path / "m") / "config.json").read_text())
    assert (config["metrics"], config["metrics_before"]) == ({}, metrics)
    assert config["estimator"]["labels"] == {"shape": "one"}
    assert ("thresholds" in config["estimator"]) == (change == "remap")
    card = (tmp_path / "m" / "README.md").read_text()
    assert "## On the valid rows, measured before the changes\n" in card
    assert "| hit@1 | 75.00 % |" in card
    assert "## On the valid rows\n" not in card
    changes()[change if change != "forget" else "remap"](model)
    assert model.config["metrics_before"] == metrics


def test_a_memory_that_is_empty_is_not_saved(tmp_path):
    prepared = prepare(clusters(), neighbor_plan(epochs=1), torch.device("cpu"))
    model = Pipeline.from_prepared(prepared)
    fresh().save(tmp_path / "m")
    message = "the memory of this model is empty, so it cannot be saved; train it first"
    with pytest.raises(HierlearnError, match=message):
        model.save(tmp_path / "m", force=True)
    Pipeline.load(tmp_path / "m")  # what was there is still complete
    with pytest.raises(HierlearnError, match=message):
        model.save(tmp_path / "n")
    assert not (tmp_path / "n").exists()


def test_an_interrupt_leaves_a_folder_that_loads(tmp_path, monkeypatch):
    """Until the new configuration is there, the files that the old one lists are."""
    pytest.importorskip("faiss")
    model = fresh()
    build_index(model)
    out = tmp_path / "m"
    save_into(model, out)
    (index,) = out.glob("index-*")
    probabilities = model.probabilities(clusters().inputs)
    forget(model, ["3"])

    def stop(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(out), "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            save_into(model, out)
    again = Pipeline.load(out)
    assert torch.equal(again.probabilities(clusters().inputs), probabilities)
    with monkeypatch.context() as patch:
        patch.setattr(type(out), "unlink", lambda self, **_: stop(self, None))
        with pytest.raises(KeyboardInterrupt):
            save_into(model, out)
    assert index.is_file()  # the new configuration does not list it, so it is not read
    again = Pipeline.load(out)
    assert torch.equal(
        again.probabilities(clusters().inputs), model.probabilities(clusters().inputs)
    )
    save_into(model, out)
    assert not index.exists()


# ---------------------------------------------------------------------- forget


def test_rows_are_forgotten_by_id_all_of_them():
    ids = tuple(f"thing {number // 2}" for number in range(24))
    model = trained(clusters(ids=ids), epochs=1, ensemble_size=2)
    before, labels = held(model), names_of(model)
    assert forget(model, ["thing 3", "thing 7"]) == 4
    kept = [number for number in range(24) if number // 2 not in (3, 7)]
    assert torch.equal(held(model)["main"], before["main"][:, kept])
    assert names_of(model) == [labels[number] for number in kept]
    assert forget(model, "thing 0") == 2
    assert len(remembered(model.network)) == 18
    (entry,) = model.config["history"]
    assert (entry["change"], entry["rows"], entry["times"]) == ("forget", 6, 2)
    assert model.hierarchy == TREE
    everything = set(remembered(model.network).ids)
    with pytest.raises(HierlearnError, match="these are all 18 rows of the memory"):
        forget(model, everything)
    with pytest.raises(HierlearnError, match="the memory has no row with id 'thing 3'; it has"):
        forget(model, ["thing 3", "thing 1"])
    assert len(remembered(model.network)) == 18


def test_a_class_without_rows_is_never_predicted():
    model = fresh()
    gone = [str(number) for number in range(6)]  # all rows of a/b
    forget(model, gone)
    p = model.probabilities(clusters().inputs[:6])
    assert (p[:, TREE.index("a/b")] == 0).all()
    assert not {one.id for row in explain(model, clusters().inputs[:6], 99) for one in row} & {
        *gone
    }


# ---------------------------------------------------------------------- remap


def test_a_pure_rename_changes_no_probability(tmp_path):
    model = fresh(ensemble_size=2, joint={"mcloss": 1.0}, answer="main")
    inputs = clusters().inputs
    before, embeddings = model.probabilities(inputs), held(model)
    names = {"a": "z", "a/b": "z/9", "a/c": "z/1", "d": "y", "d/e": "y/e", "d/f": "y/a"}
    new = Hierarchy.from_paths(list(names.values()))
    counts = remap(model, new, names)
    assert (counts["renamed or moved"], counts["merged"], counts["new"]) == (6, 0, 0)
    assert counts["rows whose label changes"] == 24
    assert model.hierarchy.fingerprint == new.fingerprint != TREE.fingerprint
    assert torch.equal(held(model)["main"], embeddings["main"])
    columns = [new.index(names[name]) for name in TREE.names]
    after = model.probabilities(inputs)[:, columns]
    FLOAT32.assert_close(after, before)
    assert model.config["history"][-1]["fingerprint_before"] == TREE.fingerprint
    assert model.config["history"][-1]["change"] == "remap"
    again = Pipeline.load(model.save(tmp_path / "m"))
    assert torch.equal(again.probabilities(inputs)[:, columns], after)
    assert again.predict(inputs[:1])[0] in new


def test_merged_split_and_moved_classes():
    model = fresh()
    old = model.probabilities(clusters().inputs).T
    new = Hierarchy.from_paths(["a/bc", "d/e/1", "d/e/2", "g/f"])
    mapping = {
        "a/b": "a/bc",
        "a/c": "a/bc",
        "d/e": ["d/e/1", "d/e/2"],
        "d/f": "g/f",
    }
    own = {"12": "d/e/1", "13": ["d/e/2"], "14": ["d/e/1", "d/e/2"]}
    dry = remap(model, new, mapping, own, dry_run=True)
    assert model.hierarchy == TREE
    assert "history" not in model.config
    assert remap(model, new, mapping, own) == dry
    assert (dry["merged"], dry["split"], dry["renamed or moved"], dry["removed"]) == (2, 1, 1, 0)
    assert dry["rows with labels of their own"] == 3
    assert names_of(model) == [
        *[["a/bc"]] * 12,
        ["d/e/1"],
        ["d/e/2"],
        ["d/e/1", "d/e/2"],
        *[["d/e"]] * 3,  # the lowest class above both parts
        *[["g/f"]] * 6,
    ]
    assert set(model.label_space.terminal_names) == {"a/bc", "d/e", "d/e/1", "d/e/2", "g/f"}
    p = model.probabilities(clusters().inputs).T
    FLOAT32.assert_close(p[new.index("a/bc")], old[TREE.index("a/b")] + old[TREE.index("a/c")])
    FLOAT32.assert_close(p[new.index("d/e")], old[TREE.index("d/e")])
    FLOAT32.assert_close(p[new.index("g")], old[TREE.index("d/f")])


def test_a_split_over_the_top_and_a_class_that_is_removed():
    model = fresh()
    new = Hierarchy.from_paths(["a", "d/e", "x/1", "y/2"])
    counts = remap(model, new, {"a/b": None, "a/c": ["x/1", "y/2"], "d/f": []})
    assert (counts["removed"], counts["split"]) == (2, 1)
    assert names_of(model) == [*[["a"]] * 6, *[[]] * 6, *[["d/e"]] * 6, *[["d"]] * 6]
    p = model.probabilities(clusters().inputs)
    assert_coherent(new, p)


def test_a_dag_moves_to_another():
    model = trained(clusters(DAG, ends=["e", "f", "c"]), epochs=1)
    new = Hierarchy.from_parents({"a": [], "b": [], "c": ["b"], "e": ["c", "a"], "h": ["a", "b"]})
    counts = remap(model, new, {"d": None, "f": "h"})
    assert names_of(model) == [*[["e"]] * 6, *[["h"]] * 6, *[["c"]] * 6]
    assert counts["classes before"] == 6
    assert counts["classes after"] == 5
    p = model.probabilities(clusters(DAG, ends=["e", "f", "c"]).inputs)
    assert p[6, new.index("a")] > 0.5  # h lies below a, f did not
    assert_coherent(new, p)


def test_a_terminal_class_stays_one_under_its_new_name():
    model = trained(clusters(ends=["a", "a/b", "d/e", "d/f"]), epochs=1)
    assert set(model.label_space.terminal_names) == {"a", "a/b", "a/c", "d/e", "d/f"}
    # a and d change places, and the rows of the former a are forgotten.
    forget(model, [str(number) for number in range(6)])
    new = Hierarchy.from_paths(["d/b", "d/c", "a/e", "a/f"])
    mapping = {"a": "d", "d": "a", "a/b": "d/b", "a/c": "d/c", "d/e": "a/e", "d/f": "a/f"}
    remap(model, new, mapping)
    assert set(model.label_space.terminal_names) == {"d", "d/b", "d/c", "a/e", "a/f"}


def test_what_cannot_be_mapped():
    model = fresh()
    new = Hierarchy.from_paths(["a/b", "d/e", "d/f"])

    def attempt(message, hierarchy=new, *given):
        unchanged(model, lambda: remap(model, hierarchy, *given), message)

    attempt("1 class has no place in the new hierarchy: 'a/c'; map each to its new name")
    attempt("the mapping renames 'q', which is no class so far", new, {"q": "a"})
    attempt("sends 'a/c' to 'a/z', which the new hierarchy lacks", new, {"a/c": "a/z"})
    attempt("the memory has no row with id 'nobody'", new, {"a/c": "a"}, {"nobody": "a"})
    attempt(
        "the new label of the row with id '0' is no class of the new hierarchy: unknown label "
        "'a/q'.*; correct the label, or add the class to the hierarchy",
        new,
        {"a/c": "a"},
        {"0": "a/q"},
    )
    # A node is its path: d/e that moves below a has no place by its bare name.
    moved = Hierarchy.from_paths(["a/b", "a/c", "a/d/e", "d/f"])
    attempt("1 class has no place in the new hierarchy: 'd/e'", moved)


def test_a_top_class_that_moves_must_be_mapped():
    hierarchy = Hierarchy.from_paths(["x", "y"])
    model = trained(clusters(hierarchy), epochs=1)
    new = Hierarchy.from_paths(["g/x", "y"])
    unchanged(
        model,
        lambda: remap(model, new),
        "1 class has no place in the new hierarchy: 'x'; map each to its new name",
    )
    x = np.zeros((1, 4), dtype=np.float32)
    unchanged(
        model,
        lambda: remember(model, x, [["y"]], hierarchy=new),
        "the new hierarchy lacks 'x'; use remap",
    )
    counts = remap(model, new, {"x": "x"})  # a bare name that is given explicitly will do
    assert counts["renamed or moved"] == 1
    assert names_of(model) == [*[["g/x"]] * 6, *[["y"]] * 6]
