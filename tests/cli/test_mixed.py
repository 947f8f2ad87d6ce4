"""Mixed tables on the command line: train, predict, evaluate, explain, remember and compare."""

import csv
import json
import os
import subprocess

import numpy as np
import pytest

import warm
from hierlearn.pipeline import Pipeline
from mixed_rows import make_rows, write_csv

ROWS = make_rows(300)
OTHER_ORDER = ("class", "used", "day", "brand", "weight", "price", "title", "note")


@pytest.fixture
def files(tmp_path):
    """rows.csv to train on, and new.csv with the columns in another order and one more."""
    write_csv(tmp_path / "rows.csv", ROWS[:240])
    write_csv(tmp_path / "new.csv", [{**row, "note": "x"} for row in ROWS[240:]], OTHER_ORDER)
    return tmp_path


def test_the_real_command_trains_and_predicts(files):
    def run(*words):
        return subprocess.run(
            [*warm.python(), "-m", "hierlearn", *words],
            cwd=files,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
            check=False,
        )

    done = run("train", "rows.csv", "--label", "class", "-o", "model")
    assert done.returncode == 0, done.stderr
    assert "rows: 240 rows of 6 columns" in done.stdout
    assert (
        "columns: 2 numbers: price, weight; 1 category: brand; 1 text: title; 1 date: day (iso); "
        "1 boolean: used; ignored: sku (looks like an id), shop (has one value)\n"
    ) in done.stdout
    assert done.stderr == (
        "hierlearn: column 'sku' looks like an id, since every value is different, and is not "
        "used; leave it out with --ignore, or name its kind with --column-kind to use it\n"
    )
    done = run("predict", "model", "new.csv", "-o", "out.csv")
    assert done.returncode == 0, done.stderr
    assert "ignored columns: 'class', 'note'" in done.stdout
    with (files / "out.csv").open() as file:
        answers = [row["path"] for row in csv.DictReader(file)]
    right = np.mean([a == row["class"] for a, row in zip(answers, ROWS[240:], strict=True)])
    assert right > 0.7
    assert "1 text" in (files / "model" / "README.md").read_text()


def test_the_options_reach_the_table(call, files):
    said = call(
        "train rows.csv --label class --ignore sku --ignore title --column-kind price=category "
        "--epochs 1 -o model"
    )
    assert "1 number: weight; 2 categories: price, brand; 1 date: day (iso)" in said
    assert call.warned == ""
    kinds = Pipeline.load(files / "model").preprocessor.kinds
    assert kinds["price"] == "category"
    config = (files / "model" / "run.yaml").read_text()
    assert "ignore:\n- sku\n- title\n" in config
    assert "column_kind:\n  price: category\n" in config
    assert said.splitlines()[1] in call("train --config model/run.yaml -o again")
    call("evaluate model new.csv --out figures.json")
    call("predict model new.csv -o out.csv --ignore note")
    assert json.loads((files / "figures.json").read_text())["count"] == 60


def test_a_memory_explains_and_remembers_mixed_rows(call, files):
    call("train rows.csv --label class --ignore sku --recipe neighbors --epochs 2 -o model")
    said = call("explain model new.csv")
    titles = {row["title"] for row in ROWS[:240]}
    assert any(title in said for title in titles)
    assert "remembered 60 rows of new.csv" in call("remember model new.csv -o more")
    assert "60 rows" in call("evaluate more new.csv")


@pytest.mark.slow
def test_compare_takes_a_mixed_table(call, files):
    line = "compare rows.csv --label class --ignore sku --methods bce,leaf-ce --seeds 2 --epochs 2"
    call(f"{line} --test-fraction 0.3 -o study")
    stored = json.loads((files / "study" / "study.json").read_text())
    assert stored["dataset"]["inputs"]["kind"] == "table"
    assert stored["dataset"]["inputs"]["kinds"]["day"] == "date:iso"
    assert "2 numbers: price, weight; 1 category: brand; 1 text: title" in call(
        "data describe rows.csv --label class --ignore sku"
    )


def test_a_column_of_texts_is_found(call, files):
    write_csv(files / "text.csv", ROWS[:240], ("title", "class"))
    said = call("train text.csv --label class --epochs 2 -o model")
    assert "text: 240 texts" in said
    call("predict model new.csv -o out.csv")
    call("evaluate model new.csv --label class")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--ignore nope", "rows.csv: unknown column 'nope'"),
        ("--column-kind brand=texts", "column 'brand': unknown kind 'texts'; did you mean 'text'"),
        ("--column-kind brand", "--column-kind takes key=value, not 'brand'"),
        (
            "--text title --ignore sku",
            "--ignore leaves columns out of the inputs, but --text names",
        ),
        ("--column-kind class=text", "--column-kind names 'class', which is no input"),
        ("--ignore sku --column-kind brand=number", "column 'brand': '"),
        ("--ignore sku --stream", "only Parquet files can be streamed"),
    ],
)
def test_wrong_options_are_one_sentence(call, files, line, message):
    assert message in call(f"train rows.csv --label class -o model {line}", 2)


@pytest.mark.filterwarnings("always")
def test_a_model_of_a_table_does_not_take_other_columns(call, files):
    call("train rows.csv --label class --ignore sku --epochs 1 -o model")
    for option in ("--features price", "--text title", "--column-kind brand=text"):
        said = call(f"predict model new.csv -o out.csv {option}", 2)
        assert f"does not take {option.split()[0]}; leave it out" in said
    said = call("predict model new.csv -o out.csv --ignore brand", 2)
    assert "the model reads the column 'brand'; leave --ignore out" in said
    write_csv(files / "less.csv", ROWS, ("brand", "class"))
    said = call("predict model less.csv -o out.csv", 2)
    assert "less.csv lacks the columns 'title', 'price', 'weight', 'day', 'used', which the" in said
    write_csv(files / "odd.csv", [{**ROWS[0], "price": "cheap"}], OTHER_ORDER[:-1])
    said = call("predict model odd.csv -o out.csv", 2, begun=True)
    assert "odd.csv, line 2, column 'price': 'cheap' is not a finite number" in said
    write_csv(files / "gap.csv", [{**ROWS[0], "day": ""}], OTHER_ORDER[:-1])
    call("predict model gap.csv -o out.csv")
    warned = "hierlearn: 1 of 1 row lacks a value where every training row has one: 'day' (1); an"
    assert call.warned.startswith(warned)
    assert call.warned.endswith("(--missing error refuses such rows)\n")
    assert call.warned.count("\n") == 1
    for line in ("evaluate model gap.csv", "report model --data gap.csv", "explain model gap.csv"):
        call(line)
        assert warned in call.warned, line
        refused = call(f"{line} --missing error", 2, begun=line.startswith("explain"))
        assert "column 'day': the value is missing, but none was in training" in refused
        assert refused.endswith("or leave out --missing error"), refused
    said = call("predict model gap.csv -o out.csv --missing error --force", 2, begun=True)
    assert "gap.csv, line 2, column 'day': the value is missing, but none was in training" in said
