"""MLflow: our folder as it is, answers as hierlearn predict gives them, and runs of trainings."""

import csv
import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hierlearn
from hierlearn import HierlearnError, Plan, load_dataset, train
from hierlearn.cli import main
from hierlearn.datasets import read_table
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.run import Reporting
from hierlearn.service.mlflow import load_model, log_model, save_model, tracking
from hierlearn.training.progress import read_log
from tolerances import FLOAT32_SUMS

mlflow = pytest.importorskip("mlflow")
pytestmark = [  # of what MLflow does with pandas
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

CLASSES = ["animal/dog", "animal/cat", "plant/oak", "plant/rose"]
SETTINGS = {"epochs": 3, "batch_size": 16}
KNOWN = {"label": "class", "id_column": "key"}


def write_rows(path, count=60, seed=0):
    draw = np.random.default_rng(seed)
    lines = ["key,size,b,kind,note,class"]
    for row in range(count):
        number = int(draw.integers(0, 4))
        b = "" if row % 7 == 0 else f"{number % 2 + draw.normal(0, 0.2):.4f}"
        kind, words = "xyz"[number % 3], f"word{number} other{row % 9} more{row}"
        lines.append(f"N{row},{number * 3 + row % 2},{b},{kind},{words},{CLASSES[number]}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """``table`` reads all columns, with checkpoints beside it; ``texts`` has a memory."""
    folder = tmp_path_factory.mktemp("models")
    write_rows(folder / "rows.csv")
    write_rows(folder / "new.csv", 30, seed=1)
    plan = Plan(recipe="hcl", network_options={"width": 8}, settings=SETTINGS)
    data = read_table(folder / "rows.csv", **KNOWN)
    train(data, plan, out=folder / "table", metadata={"columns": KNOWN})
    columns = {**KNOWN, "text": "note"}
    plan = Plan(loss="bce", head="neighbors", settings=SETTINGS)
    data = read_table(folder / "rows.csv", **columns)
    train(data, plan, out=folder / "texts", metadata={"columns": columns})
    return folder


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A tracking store in files."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield tmp_path / "runs"
    mlflow.set_tracking_uri(before)


@pytest.fixture
def no_pickle(monkeypatch):
    """Whoever unpickles fails."""

    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)


def call(*words):
    """Run a command in this process."""
    before = sys.argv
    sys.argv = ["hierlearn", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as caught:
            main()
    finally:
        sys.argv = before
    return caught.value.code or 0


def predicted(folder, rows, out, *words):
    """The answers of the command, as a frame of texts."""
    assert call("predict", folder, rows, "--out", out, "--force", *words) == 0
    with Path(out).open() as file:
        return list(csv.DictReader(file))


def assert_same(frame, expected):
    expected = [{n: c for n, c in row.items() if n != "id"} for row in expected]
    assert list(frame.columns) == list(expected[0])
    for name in frame.columns:
        wanted = [row[name] for row in expected]
        if name.endswith("probability"):
            assert frame[name].tolist() == FLOAT32_SUMS.approx([float(one) for one in wanted])
        else:
            assert [str(one).lower() for one in frame[name]] == [one.lower() for one in wanted]


@pytest.mark.parametrize("name", ["table", "texts"])
def test_a_saved_model_answers_as_the_command_does(models, tmp_path, no_pickle, name):
    save_model(models / name, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    frame = pd.read_csv(models / "new.csv")
    assert frame["size"].dtype == np.int64  # a number of the model, though not of floating point
    wanted = [one for one in ("size", "b", "kind", "note") if name == "table" or one == "note"]
    found = loaded.predict(frame[wanted])
    assert_same(found, predicted(models / name, models / "new.csv", tmp_path / "a.csv"))
    params = {"top": 2, "decoder": "stop", "threshold": 0.6}
    words = ("--top", "2", "--decoder", "stop", "--threshold", "0.6")
    expected = predicted(models / name, models / "new.csv", tmp_path / "a.csv", *words)
    assert_same(loaded.predict(frame[wanted], params=params), expected)
    some = frame[wanted].iloc[[5, 3]]
    assert loaded.predict(some).index.tolist() == [5, 3]


def test_the_artifact_is_the_folder_as_it_is(models, tmp_path):
    save_model(models / "texts", tmp_path / "saved")
    data = tmp_path / "saved" / "data" / "model"
    own = {path.name: path.read_bytes() for path in data.iterdir()}
    for name in ("model.safetensors", "hierarchy.json", "config.json", "memory-00001.safetensors"):
        assert own[name] == (models / "texts" / name).read_bytes()
    assert (models / "table" / "checkpoints").is_dir()
    assert not (data / "checkpoints").exists()
    every = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert not [path for path in every if path.suffix in (".pkl", ".pickle", ".cloudpickle", ".pt")]
    for path in every:  # nor a pickle under another name
        assert not path.read_bytes().startswith(b"\x80\x04")


def test_the_signature_is_that_of_the_columns(models, tmp_path):
    save_model(models / "table", tmp_path / "saved")
    about = mlflow.models.Model.load(str(tmp_path / "saved"))
    assert about.signature.inputs.input_names() == ["size", "b", "kind", "note"]
    assert about.signature.outputs.input_names() == [
        "path",
        "class",
        "probability",
        "level",
        "stopped",
    ]
    assert about.metadata["hierlearn"]["columns"]["kind"] == "category"
    example = about.load_input_example(str(tmp_path / "saved"))
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert len(loaded.predict(example)) == 1
    with pytest.raises(mlflow.MlflowException, match="missing inputs"):
        loaded.predict(example.drop(columns="kind"))
    with pytest.raises(HierlearnError, match=r"row 1 \(counted from 0\), column 'size': 'x'"):
        loaded.predict(pd.concat([example, example.assign(size="x")]))


def test_requirements_name_versions_and_no_host(models, tmp_path):
    save_model(models / "table", tmp_path / "saved")
    lines = (tmp_path / "saved" / "requirements.txt").read_text().split()
    assert f"hierlearn=={hierlearn.__version__}" in lines
    assert any(line.startswith("torch==") for line in lines)
    for name in ("requirements.txt", "conda.yaml", "python_env.yaml", "MLmodel"):
        text = (tmp_path / "saved" / name).read_text()
        assert "http" not in text
        assert "+" not in text.partition("versions:")[0]  # no build of a package
    save_model(models / "table", tmp_path / "other", pip_requirements=["hierlearn"])
    assert "hierlearn" in (tmp_path / "other" / "requirements.txt").read_text().split()


def test_a_logged_model_is_loaded_as_a_pipeline(models, store, no_pickle):
    pipeline = Pipeline.load(models / "texts")
    with mlflow.start_run():
        info = log_model(pipeline)
    loaded = load_model(info.model_uri)
    texts = ["word1 other2", "word3"]
    assert loaded.predict(texts) == pipeline.predict(texts)
    assert loaded.hierarchy == pipeline.hierarchy
    frame = pd.DataFrame({"note": texts})
    found = mlflow.pyfunc.load_model(info.model_uri).predict(frame)
    assert found["path"].tolist() == pipeline.predict(texts)


def test_what_is_not_ours_is_refused(models, tmp_path):
    with pytest.raises(HierlearnError, match="is no model folder"):
        save_model(tmp_path, tmp_path / "saved")
    save_model(models / "table", tmp_path / "saved")
    about = tmp_path / "saved" / "MLmodel"
    about.write_text(about.read_text().replace("hierlearn.service.mlflow", "other.loader"))
    with pytest.raises(HierlearnError, match=r"not saved by hierlearn but by other\.loader"):
        load_model(str(tmp_path / "saved"))


def test_the_command_logs_a_run_with_its_model(models, store, tmp_path):
    line = ("train", models / "rows.csv", "--label", "class", "--id-column", "key")
    more = ("--recipe", "hcl", "--epochs", "3", "--valid-fraction", "0.3", "--name", "mine")
    assert call(*line, *more, "--out", tmp_path / "model", "--mlflow") == 0
    (run,) = mlflow.search_runs(experiment_ids=["0"], output_format="list")
    assert run.info.run_name == "mine"
    assert run.info.status == "FINISHED"
    assert run.data.params["epochs"] == "3"
    assert run.data.tags["hierlearn.recipe"] == "hcl"
    client = mlflow.MlflowClient()
    log = read_log(tmp_path / "model" / "log.jsonl")
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value) for one in history] == [(r["epoch"], r["loss"][0]) for r in log]
    own = Pipeline.load(tmp_path / "model").config["metrics"]["valid"]
    found = run.data.metrics
    assert found["valid/exact"] == pytest.approx(own["exact"])
    assert [found[f"valid/accuracy/level {n}"] for n in (1, 2)] == pytest.approx(own["accuracy"])
    (model,) = mlflow.search_logged_models(experiment_ids=["0"], output_format="list")
    assert load_model(model.model_uri).config["name"] == "mine"
    assert call("train", "--config", tmp_path / "model" / "run.yaml", "--out", tmp_path / "b") == 0
    assert len(mlflow.search_runs(experiment_ids=["0"], output_format="list")) == 1


def test_a_training_in_python_logs_to_the_active_run(store):
    epochs = []
    data = load_dataset("synthetic", rows=60, depth=2)
    plan = Plan(settings={"epochs": 2})
    with mlflow.start_run() as active, tracking() as tracker:
        reporting = tracker.reporting(Reporting(on_epoch=epochs.append, bar=False))
        pipeline = train(data, plan, reporting=reporting)
        tracker.log_result(pipeline)
    run = mlflow.get_run(active.info.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["epochs"] == "2"
    client = mlflow.MlflowClient()
    history = client.get_metric_history(active.info.run_id, "learning rate")
    assert [one.step for one in history] == [one["epoch"] for one in epochs]
    with tracking(enabled=False) as nothing:
        assert nothing is None


def test_a_run_that_fails_says_so(store):
    with pytest.raises(ZeroDivisionError), tracking("broken"):
        raise ZeroDivisionError
    (run,) = mlflow.search_runs(experiment_ids=["0"], output_format="list")
    assert (run.info.run_name, run.info.status) == ("broken", "FAILED")


def test_without_mlflow_the_error_says_what_to_install(models, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert (
        call("train", models / "rows.csv", "--label", "class", "--out", tmp_path, "--mlflow") == 2
    )
    assert "pip install mlflow-skinny pandas" in capsys.readouterr().err
