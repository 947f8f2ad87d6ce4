"""A memory on a frozen text encoder: remember, remap, explain; and ONNX from token ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from backbones.text_models import LABELS, dataset
from hierlearn import Hierarchy
from hierlearn.pipeline import Pipeline, load, train
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.export import ABSOLUTE, export
from hierlearn.pipeline.remember import remap, remember
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan

if TYPE_CHECKING:
    from pathlib import Path

QUIET = Reporting(bar=False)


@pytest.fixture
def memory(bert: Path) -> Pipeline:
    plan = Plan(network=f"hf:{bert}", recipe="quick", settings={"device": "cpu", "epochs": 20})
    return train(dataset(), plan, reporting=QUIET)


def test_an_answer_is_explained_by_texts(memory: Pipeline) -> None:
    (found,) = explain(memory, ["red round apple"])
    texts = [one.text for one in found]
    assert {*texts} <= {*dataset().inputs}
    assert all(text is not None and text.endswith("apple") for text in texts)


def test_a_class_is_remembered_without_training(memory: Pipeline, tmp_path: Path) -> None:
    text = "large large large bus apple"
    growth = remember(memory, [text, text], [["fruit/cherry"], ["fruit/cherry"]])
    assert growth.classes == ("fruit/cherry",)
    memory.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.predict([text]) == ["fruit/cherry"]
    assert explain(again, [text])[0][0].text == text


def test_classes_are_remapped(memory: Pipeline) -> None:
    renamed = [label.replace("vehicle", "machine") for label in LABELS]
    mapping = {"vehicle": "machine", "vehicle/car": "machine/car", "vehicle/bus": "machine/bus"}
    before = memory.predict(["red bus", "small pear"])
    remap(memory, Hierarchy.from_paths(renamed), mapping)
    after = memory.predict(["red bus", "small pear"])
    assert after == [one.replace("vehicle", "machine") for one in before]


# ---------------------------------------------------------------------- ONNX


def probabilities(path: Path, ids: list[list[int]], width: int) -> np.ndarray[Any, Any]:
    """The output of an exported graph for rows of token ids."""
    import onnxruntime

    x = np.array([[*row, *[-1] * (width - len(row))] for row in ids], dtype=np.int64)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: np.ndarray[Any, Any] = session.run(None, {"inputs": x})[0]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tuning", ["frozen", "lora"])
def test_a_graph_takes_the_ids_of_the_tokenizer_beside_it(
    bert: Path, tmp_path: Path, tuning: str
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from tokenizers import Tokenizer

    settings = {"device": "cpu", "epochs": 1}
    plan = Plan(network=f"hf:{bert}", network_options={"tuning": tuning}, settings=settings)
    pipeline = train(dataset(), plan, reporting=QUIET)
    written = export(pipeline, tmp_path / "model.onnx")
    assert [path.name for path in written[1:]] == [
        "hierarchy.json",
        "preprocessing.json",
        "tokenizer.json",
    ]
    described = json.loads((tmp_path / "preprocessing.json").read_text())
    assert described["inputs"] == "token ids by tokenizer.json, -1 where a text has ended"
    assert (tmp_path / "preprocessing.json").stat().st_size < 20_000  # no weights
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = ["red apple", "", "small large round blue car", "\U0001f34e"]
    ids = [one.ids for one in tokenizer.encode_batch(texts)]
    expected = pipeline.probabilities(texts).numpy()
    for width in (7, 30):  # of any number of tokens
        np.testing.assert_allclose(
            probabilities(tmp_path / "model.onnx", ids, width), expected, atol=ABSOLUTE
        )
    nothing = probabilities(tmp_path / "model.onnx", [[]], 5)
    assert bool(torch.from_numpy(nothing).isfinite().all())
