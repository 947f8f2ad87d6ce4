"""``hierlearn report``: the real command on studies and models, what it writes and refuses."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import warm
from hierlearn import Hierarchy
from reports.handmade_study import study as study_by_hand


@pytest.fixture
def folder(tmp_path):
    tree = Hierarchy.from_paths(["a/b", "a/c", "d"])
    decided = {"one": [[2, 3, 1]], "two": [[2, 2, 2]]}
    return study_by_hand(tmp_path / "study", tree, [["b"], ["c"], ["d"]], decided).folder


def run(*words, cwd):
    return subprocess.run(
        [*warm.python(), "-m", "hierlearn", "report", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )


def test_it_writes_the_page_and_says_where(folder):
    done = run("study", cwd=folder.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"wrote {Path('study') / 'report.html'}\n"
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_page_elsewhere_is_replaced_only_by_force(folder, tmp_path, call):
    page = tmp_path / "page.html"
    page.write_text("mine")
    said = call("report study --out page.html", 2)
    assert said == "hierlearn: page.html exists; pass --force to replace it"
    assert page.read_text() == "mine"
    assert call("report study --out page.html --force") == "wrote page.html\n"
    assert page.read_text(encoding="utf-8") != "mine"


def test_a_page_in_the_study_is_replaced(folder, call):
    (folder / "report.html").write_text("an older one")
    call("report study")
    assert (folder / "report.html").read_text(encoding="utf-8") != "an older one"


def test_what_is_neither_study_nor_model_is_refused(tmp_path, call):
    assert call("report nowhere", 2) == (
        "hierlearn: nowhere is neither a study nor a model; name a folder from hierlearn compare "
        "or hierlearn train"
    )
    assert not list(tmp_path.iterdir())


def test_a_study_without_a_finished_loss_is_refused(folder, call):
    (folder / "runs.jsonl").unlink()
    assert call("report study", 2) == (
        "hierlearn: study has no finished loss to report on yet; run hierlearn compare again, "
        "which continues from there"
    )
    assert not (folder / "report.html").exists()


# ---------------------------------------------------------------------- models


@pytest.fixture
def model(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "model")
    shutil.copy(trained.parent / "rows.csv", tmp_path)
    return tmp_path / "model"


def embedded(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_it_writes_the_page_of_a_model(model):
    done = run("model", "--data", "rows.csv", cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"wrote {Path('model') / 'report.html'}\n"
    text = (model / "report.html").read_text(encoding="utf-8")
    assert "20 rows of rows, split test" in text
    for row, name in embedded(model / "report.html")["rows"].items():
        assert name == f"line {2 + 80 + int(row)}"  # the test rows come last


def test_the_page_shows_what_evaluate_measures(model, call):
    call("evaluate model rows.csv --rows valid --out metrics.json")
    told = json.loads(Path("metrics.json").read_text())["metrics"]
    call("report model --data rows.csv --rows valid --out page.html")
    assert f"<b>{100 * told['exact']:.2f} %</b><span>exact answers" in Path("page.html").read_text(
        encoding="utf-8"
    )


def test_a_model_can_still_be_loaded_and_replaced_beside_its_page(model, call):
    call("report model --data rows.csv")
    call("evaluate model rows.csv")
    call("train rows.csv --label class --split part --epochs 1 --out model --force")


def test_training_rows_are_warned_of(model, call):
    call("report model --data rows.csv --rows train")
    assert 'class="warning"' in (model / "report.html").read_text(encoding="utf-8")


def test_mistakes_name_ids_of_both_sides(with_memory, call):
    folder, page = with_memory, Path("page.html")
    call(f"report {folder / 'model'} --data {folder / 'rows.csv'} --rows all --out page.html")
    data = embedded(page)
    assert all(re.fullmatch(r"id N\d+", name) for name in data["rows"].values())
    one = data["candidates"][0]
    assert len(one.get("evidence", [])) == len(one["worst"])


def test_a_model_needs_rows(model, call):
    assert call("report model", 2) == (
        "hierlearn: model is a model; name labeled rows to report on with --data"
    )


@pytest.mark.parametrize(
    "option", ["--data rows.csv", "--rows test", "--label class", "--ignore a", "--trust"]
)
def test_options_of_models_are_not_for_studies(folder, call, option):
    said = call(f"report study {option}", 2)
    name = option.split()[0]
    assert said == f"hierlearn: study is a study, which holds its rows; leave {name} out"


def test_a_page_never_replaces_its_rows(model, call):
    before = Path("rows.csv").read_text()
    for name in ("rows.csv", "model/config.json"):
        said = call(f"report model --data rows.csv --out {name} --force", 2)
        assert said == f"hierlearn: {name} is an input; write to another file"
    assert Path("rows.csv").read_text() == before
