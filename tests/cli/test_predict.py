"""hierlearn predict: one row of answers per row, streamed, with risk control where asked for."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import warm
from hierlearn.datasets import read_table
from hierlearn.decoding import risk_threshold
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.answers import NAMES, AnswerFormatter
from hierlearn.pipeline.folder import write_config

STATUS = Path("/proc/self/status")


def written(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def wanted(trained, name=None, **options):
    dataset = read_table(trained.parent / "rows.csv", label="class", split="part")
    model = Pipeline.load(trained)
    decoder = model.make_decoder(name, **options)
    return AnswerFormatter(model, decoder)(model.probabilities(dataset.inputs))


def test_the_real_command_predicts_by_the_names_of_the_columns(trained, rows):
    done = subprocess.run(
        [*warm.python(), "-m", "hierlearn", "predict", trained, "new.csv", "-o", "out.csv"],
        cwd=rows,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ignored columns: 'id'" in done.stdout
    assert "decoder leaf" in done.stdout
    assert "wrote out.csv" in done.stdout
    found = written(rows / "out.csv")
    assert tuple(found[0]) == NAMES
    expected = wanted(trained)
    assert [row["path"] for row in found] == expected["path"]
    assert [row["class"] for row in found] == expected["class"]
    np.testing.assert_allclose(
        [float(row["probability"]) for row in found], expected["probability"], rtol=1e-5
    )
    assert [row["level"] for row in found] == [str(level) for level in expected["level"]]
    assert {row["stopped"] for row in found} == {"false"}


def test_parquet_in_and_out_and_another_decoder(trained, rows, call):
    pq.write_table(pyarrow.csv.read_csv(rows / "new.csv"), rows / "new.parquet", row_group_size=7)
    call(f"predict {trained} new.parquet -o out.parquet --decoder stop --threshold 0.8")
    found = pq.read_table(rows / "out.parquet").to_pydict()
    expected = wanted(trained, "stop", threshold=0.8)
    assert found["path"] == expected["path"]
    assert found["stopped"] == expected["stopped"]
    assert 0 < sum(found["stopped"]) < 100
    assert found["level"] == expected["level"]
    np.testing.assert_allclose(found["probability"], expected["probability"], rtol=1e-6)


def test_sets_are_joined_as_in_training(trained, rows, call):
    call(f"predict {trained} new.csv -o out.tsv --decoder coherent --threshold 0.02")
    with (rows / "out.tsv").open() as file:
        found = list(csv.DictReader(file, delimiter="\t"))
    several = next(row for row in found if ";" in row["path"])
    assert several["path"].count(";") == several["probability"].count(";")
    call(f"predict {trained} new.csv -o out.csv --decoder coherent --threshold 0.02 --label-sep +")
    assert [row["path"].replace("+", ";") for row in written(rows / "out.csv")] == [
        row["path"] for row in found
    ]


def test_the_risk_is_kept_on_the_calibration_rows(trained, rows, call, tmp_path):
    data = trained.parent / "rows.csv"
    line = f"predict {trained} fresh.csv -o out.csv --risk 0.1"
    said = call(f"{line} --calibrate fresh.csv")
    assert "if the rows are drawn alike\n" in said
    dataset = read_table(rows / "fresh.csv", label="class")
    model = Pipeline.load(trained)
    targets = model.hierarchy.encode(dataset.labels)
    threshold = risk_threshold(model.probabilities(dataset.inputs), targets, model.hierarchy, 0.1)
    assert f"decoder stop at threshold {threshold:.4g}, found" in said
    assert "found on 100 rows" in said
    assert "at most a fraction 0.1 of new answers are wrong" in said
    truth = dataset.labels
    found = [row["path"] for row in written(tmp_path / "out.csv")]
    wrong = sum(
        bool(path) and not (label[0] + "/").startswith(path + "/")
        for path, label in zip(found, truth, strict=True)
    )
    assert wrong <= 10
    call(f"{line} --calibrate fresh.csv --risk 0.02 --force")
    sure = [row["path"] for row in written(tmp_path / "out.csv")]
    assert all(
        (path + "/").startswith(one + "/") or not one for path, one in zip(found, sure, strict=True)
    )
    said = call(f"{line} --calibrate {data} --calibrate-rows test --decoder conformal --force")
    assert "at most a fraction 0.1 of new answers have a label outside the answer" in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("new.csv -o out.xlsx", "out.xlsx: cannot write the ending '.xlsx'; known: .csv, .tsv"),
        ("new.csv -o old.csv", "old.csv exists; pass --force to replace it"),
        ("new.csv -o new.csv --force", "new.csv is an input; write to another file"),
        ("absent.csv -o out.csv", "absent.csv: no such file"),
        (
            "less.csv -o out.csv",
            "less.csv lacks the columns 'b', 'c', which the model reads; it has 'a', 'd'",
        ),
        (
            "gap.csv -o out.csv --missing error",
            "gap.csv, line 3, column 'a': the value is missing, but none was",
        ),
        ("new.csv -o out.csv --missing drop", "unknown missing 'drop'; known: error, impute"),
        ("word.csv -o out.csv", "word.csv, line 3, column 'b': 'red' is not a finite number"),
        ("none.csv -o out.csv", "none.csv has a header but no rows"),
        (
            "new.csv -o out.csv --threshold 0.5",
            "decoder leaf takes no options, but threshold was given",
        ),
        ("new.csv -o out.csv --decoder stopp", "unknown decoder 'stopp'; did you mean 'stop'"),
        ("new.csv -o out.csv --decoder stop --threshold 2", "threshold must lie in [0, 1], not 2"),
        (
            "new.csv -o out.csv --decoder stop --threshold 0.1 --decoder-option threshold=0.2",
            "--threshold is given twice; leave it out of --decoder-option",
        ),
        ("new.csv -o out.csv --risk 0.1", "--risk needs --calibrate DATA: labeled rows that were"),
        ("new.csv -o out.csv --calibrate rows.csv", "--calibrate goes with --risk"),
        (
            "new.csv -o out.csv --risk 0.1 --calibrate rows.csv",
            "rows has the splits train, valid, test; say which with --calibrate-rows",
        ),
        (
            "new.csv -o out.csv --risk 0.01 --calibrate rows.csv --calibrate-rows valid",
            "a risk of 0.01 needs at least 99 calibration rows, but there are 10",
        ),
        (
            "new.csv -o out.csv --risk 5 --calibrate rows.csv --calibrate-rows valid",
            "--risk must lie between 0 and 1, not 5.0; write 5 % as 0.05",
        ),
        (
            "new.csv -o out.csv --risk 0.1 --threshold 0.5 --calibrate rows.csv",
            "--risk finds the threshold itself; leave --threshold out",
        ),
        (
            "new.csv -o out.csv --risk 0.1 --decoder leaf --calibrate rows.csv",
            "decoder leaf cannot be calibrated; a risk takes stop or conformal",
        ),
        (
            "new.csv -o out.csv --risk 0.1 --calibrate new.csv",
            "new.csv: unknown column 'class'",
        ),
        (
            "new.csv -o out.csv --risk 0.1 --calibrate synthetic --calibrate-rows valid",
            "the rows are labeled by another hierarchy",
        ),
        ("new.csv -o out.csv --rows test", "new.csv is a file and does not take --rows"),
        (
            "synthetic -o out.csv",
            "synthetic has the splits train, valid, test; say which with --ro",
        ),
        ("synthetic --rows test -o out.csv", "but 3 were fitted"),
    ],
)
def test_each_refusal_is_one_line_and_leaves_nothing(trained, rows, call, line, message):
    (rows / "old.csv").write_text("old")
    (rows / "less.csv").write_text("a,d\n1,2\n")
    (rows / "gap.csv").write_text("a,b,c\n1,2,\n,2,3\n")
    (rows / "word.csv").write_text("a,b,c\n1,2,\n1,red,3\n")
    (rows / "none.csv").write_text("a,b,c\n")
    before = sorted(rows.rglob("*"))
    begun = line.split()[0] in ("gap.csv", "word.csv", "none.csv") or "fitted" in message
    assert message in call(f"predict {trained} {line}", code=2, begun=begun)
    assert sorted(rows.rglob("*")) == before
    assert (rows / "old.csv").read_text() == "old"


def test_named_datasets_and_texts(call, tmp_path):
    call("train synthetic --dataset-option rows=60 --out model --epochs 1")
    said = call("predict model synthetic --dataset-option rows=60 --rows test -o out.csv")
    assert "test rows of synthetic" in said
    assert len(written(tmp_path / "out.csv")) == 12
    line = "predict model synthetic --dataset-option rows=60 --rows test -o risk.csv --risk 0.2"
    assert "found on 12 rows of synthetic" in call(
        f"{line} --calibrate synthetic --calibrate-rows valid"
    )
    (tmp_path / "t.csv").write_text("words,y\n" + "red round,fruit/apple\nblue flat,tool\n" * 5)
    call("train t.csv --label y --text words --out texts --epochs 2")
    call("predict texts t.csv -o texts.csv")
    assert len(written(tmp_path / "texts.csv")) == 10
    (tmp_path / "u.csv").write_text("said\nred\n")
    call("predict texts u.csv -o one.csv --text said")
    assert len(written(tmp_path / "one.csv")) == 1


def test_a_model_that_does_not_know_its_columns_asks_for_them(trained, rows, call, tmp_path):
    shutil.copytree(trained, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["feature_names"] = []
    write_config(tmp_path / "model" / "config.json", config)
    message = call("predict model new.csv -o out.csv", code=2)
    assert "the model does not know its columns by name; give --features a,b,c" in message
    call("predict model new.csv -o out.csv --features a,b,c")
    assert [row["path"] for row in written(tmp_path / "out.csv")] == wanted(trained)["path"]


PEAK = """
import sys
from hierlearn.cli import main
model = sys.argv[1]
for name in ("small", "big"):
    sys.argv = ["hierlearn", "predict", model, f"{name}.csv", "-o", f"{name}.parquet"]
    try:
        main()
    except SystemExit as end:
        assert not end.code
    held = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
    print("peak", int(held) // 1024)
"""


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's account of memory")
def test_memory_does_not_grow_with_the_table(trained, tmp_path):
    for name, count in (("small", 100_000), ("big", 250_000)):
        (tmp_path / f"{name}.csv").write_text("a,b,c\n" + "0.5,1.25,\n" * count)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, trained],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    small, big = (int(line.split()[1]) for line in done.stdout.splitlines() if "peak" in line)
    assert pq.ParquetFile(tmp_path / "big.parquet").metadata.num_rows == 250_000
    assert big - small < 30, f"{big - small} MB"
