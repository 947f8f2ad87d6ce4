"""``hierlearn bench``: where time goes in an epoch, and a table of the losses on this machine."""

import json
import re
from dataclasses import replace

import pytest

from hierlearn.lab.commands.bench import DEFAULT, Profile, notes
from hierlearn.training.solvers.timeline import PARTS

DATA = "bench rows.csv --label class --split part --device cpu"
QUICK = "--rounds 1 --losses bce --timed-epochs 1"


def cells(said, columns):
    """Return the cells of the rows of the tables that have so many columns."""
    found = [line.strip("│").split("│") for line in said.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in found if len(row) == columns]


def test_it_times_the_losses_beside_cross_entropy(call):
    said = call(
        "bench --dataset-option rows=40 --dataset-option depth=2 --batch-size 8 --rounds 2 "
        "--timed-epochs 0 --device cpu"
    )
    assert re.match(r"8 rows, 20 classes \(4, 16\) on the CPU, \d+ threads?\n", said)
    rows = cells(said, 3)
    assert [name for name, _, _ in rows] == ["bce of torch", *DEFAULT]
    assert rows[0][2] == "1.00"
    for _, milliseconds, ratio in rows:
        assert float(ratio) == pytest.approx(
            float(milliseconds) / float(rows[0][1]), rel=0.05, abs=0.06
        )


def test_losses_that_need_a_tree_are_left_out_of_a_dag(call, tmp_path):
    (tmp_path / "dag.csv").write_text("parent,child\na,b\nc,b\n")
    (tmp_path / "dag-rows.csv").write_text("x,class\n" + "1,b\n2,a\n" * 8)
    said = call(
        "bench dag-rows.csv --label class --hierarchy dag.csv --batch-size 3 --rounds 1 "
        "--timed-epochs 0 --device cpu"
    )
    names = [row[0] for row in cells(said, 3)]
    assert {"bce", "leaf-ce", "mcloss", "hcl"} < set(names)
    assert not {"hxe", "cond-softmax"} & set(names)


def test_where_time_goes_in_the_training_that_train_would_choose(call, rows):
    said = call(f"{DATA} --rounds 1 --json times.json")
    assert re.search(r"^rows: 100 rows of 3 numbers \(train 70, valid 10, test 20\)", said, re.M)
    assert "because inputs are numbers, and every training row has one path" in said
    assert "an epoch, mean of 3 after a warm-up" in said
    table = cells(said, 4)
    assert [row[0] for row in table] == [*PARTS, "total"]
    milliseconds = [float(row[2].replace(",", "")) for row in table]
    assert sum(milliseconds[:-1]) == pytest.approx(milliseconds[-1], abs=0.05)
    percent = [float(row[3]) for row in table]
    assert sum(percent[:-1]) == pytest.approx(100, abs=0.5)
    for one, share in zip(milliseconds, percent, strict=True):
        assert share == pytest.approx(100 * one / milliseconds[-1], abs=0.2)
    assert re.search(
        r"^\d+ epochs take about [\d.]+ s; preparing the rows took [\d.]+ s$", said, re.M
    )
    assert [row[0] for row in cells(said, 3)] == ["bce of torch", *DEFAULT]
    assert "70 rows, 8 classes (2, 4, 2) on the CPU" in said
    found = json.loads((rows / "times.json").read_text())
    assert 1e3 * found["epoch"]["total"] == pytest.approx(milliseconds[-1], abs=0.01)
    assert list(found["epoch"]["seconds"]) == list(PARTS)
    assert found["losses"]["steps"]["bce of torch"]["ratio"] == 1
    assert not {path.name for path in rows.iterdir()} - {
        *("rows.csv", "new.csv", "fresh.csv", "times.json")
    }


def test_options_are_those_of_train(call, rows):
    said = call(f"{DATA} {QUICK} --recipe hcl --batch-size 16 --epochs 9 --ensemble-size 2")
    assert "because the recipe was named" in said
    assert "2 networks on cpu" in said
    assert "5 steps of up to 16 rows" in said
    assert re.search("^9 epochs take about ", said, re.M)
    assert "16 rows, 8 classes" in said


def test_without_epochs_only_losses_are_timed(call, rows):
    said = call(f"{DATA} --timed-epochs 0 --rounds 1 --losses bce --json times.json")
    assert said.startswith("70 rows, 8 classes")
    assert json.loads((rows / "times.json").read_text())["epoch"] is None


def test_a_file_is_replaced_only_with_force(call, rows):
    (rows / "times.json").write_text("{}")
    assert "times.json exists" in call(f"{DATA} {QUICK} --json times.json", code=2)
    call(f"{DATA} {QUICK} --json times.json --force")
    assert json.loads((rows / "times.json").read_text())["losses"]["rounds"] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bench --batch-size 0", "--batch-size must be at least 1, not 0"),
        ("bench --losses hcll", "unknown loss 'hcll'; did you mean 'hcl'"),
        ("bench --losses ''", "no loss is named; name at least one"),
        ("bench rows.csv --label class --losses hcll", "unknown loss 'hcll'; did you mean 'hcl'"),
        (
            "bench rows.csv --label class --effort best",
            "--effort best trains several models and bench times one; leave it out",
        ),
        ("bench rows.csv --label nope", "nope"),
        ("bench missing.csv --label a", "missing.csv"),
    ],
)
def test_what_it_refuses(call, rows, line, message):
    assert message in call(line, code=2)


def test_what_an_epoch_takes_when_nobody_waits_for_the_gpu():
    seconds = dict.fromkeys(PARTS, 0.5)
    found = Profile("", seconds, 3, True, 0.25, epochs=100, steps=5, batch_size=8)
    said = notes(found, preparing=1.0)
    assert said[0] == "100 epochs take about 25.0 s; preparing the rows took 1.0 s"
    assert said[1].endswith("after each part, an epoch takes 250.00 ms")
    (said,) = notes(replace(found, without_waiting=None, epochs=1), preparing=1.0)
    assert said.startswith("1 epoch takes about 3.5 s; ")
