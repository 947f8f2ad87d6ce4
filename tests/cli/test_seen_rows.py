"""A model knows its training rows: calibrating on them is refused, evaluating on them warns."""

import json
import shutil

import pytest

from hierlearn.pipeline.folder import write_config

RISK = "predict {} new.csv -o out.csv --risk 0.1 --calibrate"


@pytest.mark.parametrize(("which", "count"), [("train", "70 of the 70"), ("all", "70 of the 100")])
def test_calibrating_on_training_rows_is_refused(trained, rows, call, which, count):
    message = call(f"{RISK.format(trained)} rows.csv --calibrate-rows {which}", code=2)
    assert f"{count} rows of rows.csv" in message
    assert "were used to train or select the model, so they cannot guarantee any risk" in message
    assert not (rows / "out.csv").exists()


def test_neither_another_file_nor_another_order_hides_training_rows(trained, rows, call):
    _, *lines = (rows / "rows.csv").read_text().splitlines()
    picked = [line.split(",") for line in reversed(lines) if line.endswith("train")]
    cells = [",".join([c, kind, a, b]) for a, b, c, kind, _ in picked]
    (rows / "other.csv").write_text("\n".join(["c,class,a,b", *cells]) + "\n")
    assert "70 of the 70 rows of other.csv" in call(f"{RISK.format(trained)} other.csv", code=2)


def test_a_few_equal_rows_are_counted_and_not_refused(trained, rows, call):
    line = (rows / "rows.csv").read_text().splitlines()[1].rsplit(",", 1)[0]
    with (rows / "fresh.csv").open("a") as file:
        file.write(line + "\n")
    said = call(f"{RISK.format(trained)} fresh.csv")
    assert "drawn alike; 1 of those equal a training row, as may happen by chance" in said
    said = call(f"evaluate {trained} fresh.csv -o found.json")
    assert "1 of 101 rows equal a training row, as may happen by chance" in said
    assert json.loads((rows / "found.json").read_text())["trained_on"] == 1


def test_a_model_without_that_file_says_that_it_cannot_tell(trained, rows, call):
    shutil.copytree(trained, rows / "old")
    config = json.loads((rows / "old" / "config.json").read_text())
    del config["files"]["rows.safetensors"]
    write_config(rows / "old" / "config.json", config)
    (rows / "old" / "rows.safetensors").unlink()
    said = call(f"{RISK.format('old')} rows.csv --calibrate-rows train")
    assert "not used to train or select the model, which it cannot tell" in said
    assert "trained on" not in call("evaluate old rows.csv --rows train -o found.json")
    assert json.loads((rows / "found.json").read_text())["trained_on"] is None


def test_evaluating_on_training_rows_warns_in_one_line(trained, rows, call):
    said = call(f"evaluate {trained} rows.csv --rows all")
    (line,) = [line for line in said.splitlines() if "warning" in line]
    assert line == (
        "warning: the model was trained on 70 of 100 rows, so the figures are too good for new "
        "rows; --rows valid are the 10 that were held out"
    )
    assert "warning" not in call(f"evaluate {trained} rows.csv")


def test_rows_held_out_by_a_share_are_evaluated_later(rows, call):
    lines = (rows / "rows.csv").read_text().splitlines()
    (rows / "plain.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines) + "\n")
    call("train plain.csv --label class --valid-fraction 0.2 --out model --epochs 2 --recipe hcl")
    stored = json.loads((rows / "model" / "config.json").read_text())["metrics"]["valid"]
    said = call("evaluate model plain.csv --rows valid -o found.json")
    assert "model on 20 rows of plain (valid)" in said
    assert "warning" not in said
    found = json.loads((rows / "found.json").read_text())
    assert (found["count"], found["trained_on"]) == (20, 0)
    assert found["metrics"] == stored
    assert "model on 20 rows of plain (valid)" in call("evaluate model plain.csv"), "by default"
    said = call("evaluate model plain.csv --rows all")
    assert "--rows valid are the 20 that were held out" in said
    assert "on 100 rows of fresh (all)" in call("evaluate model fresh.csv")
    message = call("evaluate model fresh.csv --rows valid", code=2)
    assert "fresh lacks some of the 20 rows that were held out in training;" in message


def test_a_model_without_held_out_rows_says_so(rows, call):
    call("train fresh.csv --label class --out model --epochs 1 --recipe hcl")
    message = call("evaluate model fresh.csv --rows valid", code=2)
    assert "fresh has no split 'valid', and the model remembers no rows that were held" in message


def test_rows_that_stopped_the_training_are_refused_too(rows, call):
    line = "train rows.csv --label class --split part --recipe hcl --epochs 3"
    call(f"{line} --patience 2 --out stopped")
    message = call(f"{RISK.format('stopped')} rows.csv --calibrate-rows valid", code=2)
    assert "10 of the 10 rows of rows.csv (valid) were used to train or select" in message
    call(f"{line} --patience none --out to-the-end")
    assert "drawn alike" in call(f"{RISK.format('to-the-end')} rows.csv --calibrate-rows valid")
