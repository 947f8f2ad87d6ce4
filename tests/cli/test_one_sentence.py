"""What cannot be done is refused in one sentence: devices, sizes, names, options, divergence."""

import subprocess

import pytest
import torch

import warm
from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.pipeline.pipeline import yaml_text
from training.datasets import environment

TRAIN = "train rows.csv --label class --split part --out new --epochs 1 --loss bce"
REFUSALS = [
    ("evaluate MODEL rows.csv --device meta", "'meta' is no device to train on"),
    (
        f"{TRAIN} --network mlp --network-option width=100000000000",
        "make it narrower",
    ),
    ("predict MODEL rows.csv --out a.csv --decoder cost --decoder-option cost=3", "cost must be"),
    ("evaluate MODEL rows.csv --sep |", "joins the names of a path by '/', not by '|'"),
    ("compare rows.csv --label class --metrics ,", "names nothing"),
    ("compare rows.csv --label class --split part --test-fraction 0.3", "has a split 'test'"),
    ("compare rows.csv --label class --split part --valid-fraction 0.3", "has a split 'valid'"),
    ("compare rows.csv --label class --engine daks", "unknown engine 'daks'; did you mean 'dask'"),
    ("noise rows.csv --label class --address a:1", "--address needs an engine with workers else"),
    (
        "compare rows.csv --label class --engine dask --address a:1 --jobs 2",
        "--address is a cluster with workers of its own and does not take --jobs",
    ),
    (f"{TRAIN} --jobs 2", "--jobs goes with --effort best"),
    ("compare --paper", "No such option: --paper"),
    ("paper --methods bce", "No such option: --methods"),
    ("paper --data-dir nowhere", "--data-dir names nowhere, which is no folder"),
    (f"{TRAIN} --valid-fraction 0.3", "has a split 'valid' already"),
    ("bench --losses ,", "names nothing"),
    ("noise rows.csv --label class --methods ,", "names nothing"),
    ("evaluate MODEL rows.csv --force", "--force goes with --out"),
    (
        "predict MODEL rows.csv --out a.csv --label class",
        "goes with a table in --calibrate",
    ),
    ("predict MODEL rows.csv --out a.parquet --escape-formulas", "goes with a CSV or TSV file"),
]


@pytest.mark.parametrize(("line", "sentence"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_it_is_refused_in_a_sentence(call, rows, trained, line, sentence):
    assert sentence in call(line.replace("MODEL", str(trained)), 2)


@pytest.mark.parametrize("device", ["mps", "xpu", "cuda", "cuda:7"])
def test_a_device_that_is_not_there(call, rows, trained, device):
    backend = getattr(torch, device.split(":")[0])
    if backend.is_available() and ":" not in device:
        pytest.skip("it is there")
    said = call(f"evaluate {trained} rows.csv --device {device}", 2)
    assert "there is no " in said


def test_a_terminal_class_that_is_not_there():
    with pytest.raises(HierlearnError, match=r"class number 99 is outside 0\.\.2"):
        LabelSpace(Hierarchy.from_paths(["a/b", "a/c"]), [99])


def test_a_name_that_is_not_utf8(rows):
    words = [*TRAIN.split(), "--name", b"\xff\xfe"]
    done = subprocess.run(
        [*warm.python(), "-m", "hierlearn", *words],
        cwd=rows,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("hierlearn: --name '\\udcff\\udcfe' is not valid UTF-8")
    assert done.stderr.count("\n") == 1
    assert not (rows / "new").exists()


@pytest.mark.parametrize("split", ["--split part", ""], ids=["validated", "alone"])
def test_a_training_that_diverges_is_told_as_such(call, rows, split):
    line = f"train rows.csv --label class {split} --out new --epochs 3 --loss bce --ignore part"
    line = line.replace(" --ignore part", "" if split else " --features a,b,c")
    said = call(f"{line} --learning-rate 1e30", 2, begun=True)
    if split:
        assert "became nan in epoch 1, batch 1 of 1, with BCELoss at learning rate 1e+30" in said
        assert said.endswith("there is no checkpoint from before")
    else:
        assert "the loss became nan in epoch 2, batch 1 of 1, with BCELoss at learning rate" in said
        assert said.endswith("the last checkpoint with finite weights is that of step 1")
    assert "lower the learning rate or set --max-grad-norm" in said
    assert "is NaN" not in said


def test_a_license_is_one_yaml_value():
    import yaml

    for text in ("mit", "no", "1.0", "a: b", 'x"\n---\nlicense: mit', "\x1b[31m\x85\u2028", "🐶 é"):
        assert yaml.safe_load(f"license: {yaml_text(text)}") == {"license": text}
    assert yaml_text("apache-2.0") == "apache-2.0"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--epochs ten", "--epochs must be an integer, not 'ten'; see hierlearn train --help"),
        ("--epochs=2.5", "--epochs must be an integer, not '2.5'; see hierlearn train --help"),
        ("--learning-rate fast", "--learning-rate must be a number, not 'fast'; see hierlearn"),
    ],
)
def test_a_number_that_is_none(rows, call, option, message):
    assert f"hierlearn: {message}" in call(f"train rows.csv --label class --out m {option}", code=2)
