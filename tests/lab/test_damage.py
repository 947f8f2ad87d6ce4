"""Studies that are damaged: one sentence that names the file, never a traceback."""

import json
import shutil

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.lab.pages.page import write_report
from hierlearn.lab.study import Study
from lab import small_studies


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "study"
    small_studies.run(folder, ["bce", "hxe"], settings={"epochs": 1})
    return folder


@pytest.fixture
def study(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "study")


def refusal(folder):
    with pytest.raises(HierlearnError) as caught:
        write_report(folder, folder / "page.html")
    assert len(str(caught.value)) <= 600
    return str(caught.value).replace(str(folder), "FOLDER")


def change(path, key, value):
    values = json.loads(path.read_text())
    if value is None:
        del values[key]
    else:
        values[key] = value
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("candidates", None),
        ("candidates", [{"key": 3}]),
        ("seeds", "all"),
        ("seeds", [0.5]),
        ("uses_hierarchy", {}),
        ("metrics", None),
        ("dataset", {"name": "x"}),
    ],
)
def test_study_json(study, key, value):
    change(study / "study.json", key, value)
    said = refusal(study)
    assert said.startswith("FOLDER/study.json")
    assert said.endswith("copy it again")


@pytest.mark.parametrize(
    ("key", "value"), [("seed", None), ("seconds", "long"), ("test", {}), ("test", [1])]
)
def test_runs(study, key, value):
    path = study / "runs.jsonl"
    first, *others = path.read_text().splitlines()
    run = json.loads(first)
    run[key] = value
    if value is None:
        del run[key]
    path.write_text("\n".join([json.dumps(run), *others]) + "\n")
    assert refusal(study).startswith("FOLDER/runs.jsonl")


def test_a_damaged_line_is_named_and_a_cut_off_one_is_not(study):
    path = study / "runs.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0][:20], *lines[1:]]) + "\n")
    assert refusal(study) == "FOLDER/runs.jsonl, line 1: not JSON; remove the line"
    path.write_text("\n".join([*lines, lines[-1][:20]]))
    assert len(Study.open(study).runs()) == len(lines)


@pytest.mark.parametrize("name", ["argmax", "probability"])
def test_rows(study, name):
    path = study / "rows" / "bce.safetensors"
    tensors, metadata = read_tensors(path)
    write_tensors(path, {**tensors, name: tensors[name] * 0 + float("nan")}, metadata)
    assert refusal(study).startswith("FOLDER/rows/bce.safetensors is damaged (its ")
    write_tensors(path, {**tensors, name: tensors[name][:, :3]}, metadata)
    assert f"{name} (2, 3) must be (2, " in refusal(study)


def test_truth(study):
    path = study / "truth.safetensors"
    tensors, metadata = read_tensors(path)
    write_tensors(path, {**tensors, "classes": tensors["classes"] + 1000}, metadata)
    assert "its classes are not numbers in 0.." in refusal(study)
    write_tensors(path, {**tensors, "offsets": tensors["offsets"].flip(0)}, metadata)
    assert "its offsets do not fit its classes" in refusal(study)
