"""hierlearn export: a graph that another program runs on raw rows."""

import json

import numpy as np
import onnxruntime
import pytest

from hierlearn import Hierarchy
from hierlearn.datasets import read_table
from hierlearn.pipeline import Pipeline


def test_the_graph_runs_on_the_raw_rows_of_the_table(trained, call, tmp_path):
    said = call(f"export {trained} -o onnx/model.onnx")
    assert "inputs (N, D) float32 -> probabilities (N, 8) float32" in said
    assert "wrote onnx/model.onnx, onnx/hierarchy.json, onnx/preprocessing.json" in said
    names = json.loads((tmp_path / "onnx" / "preprocessing.json").read_text())["feature_names"]
    dataset = read_table(trained.parent / "rows.csv", label="class", features=names)
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    (found,) = session.run(["probabilities"], {"inputs": dataset.inputs})
    model = Pipeline.load(trained)
    np.testing.assert_allclose(found, model.probabilities(dataset.inputs).numpy(), atol=1e-5)
    assert Hierarchy.read(tmp_path / "onnx" / "hierarchy.json") == model.hierarchy


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no -o m.onnx", "no is no folder with a model in it"),
        ("MODEL -o m.pt", "m.pt: the file to write must end in .onnx"),
        ("MODEL -o MODEL/m.onnx", "holds the model; export to another folder"),
        ("MODEL -o old/m.onnx", "preprocessing.json exists; pass --force to replace it"),
    ],
)
def test_each_refusal_is_one_line(trained, call, tmp_path, line, message):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "preprocessing.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    assert message in call(f"export {line.replace('MODEL', str(trained))}", code=2)
    assert sorted(tmp_path.rglob("*")) == before
