"""The log: a line of JSON an epoch, whole lines only, cut back to where a training goes on."""

import json

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.service.mlflow import scalars
from hierlearn.training.progress import EpochLog, read_log
from training.datasets import largest_file, plan, problem, read_records

RECORD = {"epoch": 1, "step": 5, "learning_rate": 0.1, "loss": [0.5], "valid": {"mrr": [0.25]}}

QUIET = Reporting(bar=False)


def records(count):
    return [{**RECORD, "epoch": number} for number in range(1, count + 1)]


def test_records_are_appended_as_they_come(tmp_path):
    path = tmp_path / "log.jsonl"
    log = EpochLog(path)
    assert path.read_text() == ""
    for number, record in enumerate(records(3), start=1):
        log(record)
        assert read_log(path) == records(number)
    assert [json.loads(line) for line in path.read_text().splitlines()] == records(3)


def test_a_new_training_begins_anew_and_one_that_goes_on_keeps_its_epochs(tmp_path):
    path = tmp_path / "log.jsonl"
    for record in records(4):
        EpochLog(path, epochs=record["epoch"] - 1)(record)
    assert read_log(path) == records(4)
    EpochLog(path, epochs=2)(records(3)[-1])
    assert read_log(path) == records(3)
    EpochLog(path)
    assert read_log(path) == []


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_line_that_was_cut_off_is_left_out(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    whole = json.dumps(records(2)[1])
    path.write_text(json.dumps(RECORD) + "\n" + whole[:cut])
    assert read_log(path) == [RECORD]
    EpochLog(path, epochs=2)(records(2)[1])
    assert read_log(path) == records(2)


def test_no_log_has_no_records(tmp_path):
    assert read_log(tmp_path / "absent.jsonl") == []


def test_a_metric_that_is_not_defined_is_null_and_the_line_is_json(tmp_path):
    log = EpochLog(tmp_path / "log.jsonl")
    log({**RECORD, "valid": {"mistake-severity": [float("nan"), 1.0]}})

    def refuse(word):
        raise ValueError(f"{word} is no JSON")

    line = (tmp_path / "log.jsonl").read_text()
    assert json.loads(line, parse_constant=refuse)["valid"] == {"mistake-severity": [None, 1.0]}


def test_a_log_that_cannot_be_written_is_worded(tmp_path):
    log = EpochLog(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(HierlearnError, match=r"log\.jsonl, which is a folder"):
        log(RECORD)


def test_a_disk_that_fills_up_is_worded_and_the_whole_lines_stay(tmp_path):
    path = tmp_path / "log.jsonl"
    log = EpochLog(path)
    with largest_file(100):
        for epoch in range(1, 4):
            log({"epoch": epoch, "loss": [0.5]})
        with pytest.raises(HierlearnError, match=r"write log\.jsonl into .*: File too large"):
            log({"epoch": 4, "loss": [0.5]})
    assert path.stat().st_size == 84  # the line that did not fit is not there in part
    assert [record["epoch"] for record in read_log(path)] == [1, 2, 3]


def test_the_numbers_of_a_record_by_name():
    record = {**RECORD, "loss": [0.5, None], "selected_by_level": [1.0, 0.5]}
    assert scalars(record) == {
        "learning rate": 0.1,
        "loss/0": 0.5,  # the second model has stopped
        "mrr": 0.25,
        "selected/level 1": 1.0,
        "selected/level 2": 0.5,
    }


def test_what_a_training_logs(tmp_path):
    train(problem(), plan("hcl", metric="hit@1"), out=tmp_path, reporting=QUIET)
    found = read_records(tmp_path)
    assert [record["epoch"] for record in found] == [1, 2, 3]
    assert [record["step"] for record in found] == [5, 10, 15]
    for record in found:
        assert set(record) == {
            *("epoch", "step", "learning_rate", "loss", "selected_by_level", "valid")
        }
        assert len(record["selected_by_level"]) == 2
        assert set(record["valid"]) == {"hit@1"}
    rates = [record["learning_rate"] for record in found]
    assert rates == sorted(rates, reverse=True)
