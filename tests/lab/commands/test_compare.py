"""``hierlearn compare`` on a small table: what it prints and writes, how it goes on."""

import io
import json
import re

import pytest
from rich.console import Console

from hierlearn.features import NumericPreprocessor
from hierlearn.lab.study import Study
from lab.tiny_suite import write_set

FAST = "--seeds 2 --epochs 2 --patience 2 --batch-size 32 --network-option width=8 --jobs 1"
EARLY = ("--methods bce,hlc", "--metrics", "--epochs")  # refused before the data is read
LINE = f"compare rows.csv --label class --split part --methods bce,leaf-ce --out s {FAST}"


def test_a_verdict_on_many_methods_is_a_list(call, rows):
    said = call(LINE.replace("bce,leaf-ce", "bce,leaf-ce,focal,mixed,hxe"))
    assert "\n- leaf-ce " in said
    assert "\n- hxe " in said
    assert "\\n" not in said


def test_a_table_files_and_an_answer(call, rows):
    said = call(LINE)
    assert "rows: 100 rows, 8 classes; 2 methods, 2 seeds each" in said
    assert "beyond seed noise" in said
    assert "wrote summary.json, table.csv, table.md, table.tex, report.html to s" in said
    summary = json.loads((rows / "s" / "summary.json").read_text())
    assert summary["candidates"] == ["bce", "leaf-ce"]
    shown = f"{100 * summary['figures']['hit@1'][0]['mean']:.2f}"
    assert shown in said
    heads = next(line for line in said.splitlines() if "hit@1" in line or "hit@" in line)
    assert "exact" in heads[: heads.index("hit@")]  # as on the page
    assert shown in (rows / "s" / "table.md").read_text()
    assert (rows / "s" / "report.html").stat().st_size > 10_000


def test_the_same_command_has_nothing_left_to_do(call, rows):
    call(LINE)
    before = Study.open(rows / "s").runs()
    call(LINE)
    assert Study.open(rows / "s").runs() == before
    refused = call(LINE.replace("--seeds 2", "--seeds 3"), code=2, begun=True)
    assert "s holds another study (its seeds, settings differ)" in refused


def test_rows_without_a_split_are_divided(call, rows):
    said = call(f"compare rows.csv --label class --features a,b --methods bce --out s {FAST}")
    assert "; 20 rows set aside for testing" in said
    assert "Only one loss was trained" in said


@pytest.mark.parametrize("command", ["compare", "noise --kinds labels --rates 0,0.2"])
def test_the_preprocessing_is_chosen_as_in_train(call, rows, command, monkeypatch):
    seen = []
    kept = NumericPreprocessor.fit
    monkeypatch.setattr(
        NumericPreprocessor,
        "fit",
        lambda self, x: (seen.append(self.standardize), kept(self, x))[1],
    )
    line = LINE.replace("compare", command)
    words = "--preprocessing numeric --preprocessing-option standardize=false"
    call(f"{line} {words}")
    assert seen
    assert not any(seen)
    if command == "compare":
        stored = Study.open(rows / "s").config["preprocessing"]
        assert stored == {"name": "numeric", "options": {"standardize": False}}
        refused = call(line, code=2, begun=True)
        assert "s holds another study (its preprocessing differ)" in refused


def test_numbers_in_bins(call, rows):
    call(f"{LINE} --preprocessing piecewise-linear")
    stored = Study.open(rows / "s").config["preprocessing"]
    assert stored == {"name": "piecewise-linear", "options": {}}


def test_every_loss_tuned_for_itself(call, rows):
    call(f"{LINE} --tune 2")
    stored = json.loads((rows / "s" / "study.json").read_text())
    assert set(stored["by_candidate"]) == {"bce", "leaf-ce"}
    assert len(stored["metadata"]["trials"]) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--methods bce,hlc", "unknown loss or recipe 'hlc'; did you mean 'hcl'"),
        ("--tune all", "--tune must be an integer, not 'all'"),
        ("--metrics hit@1,map", "unknown metric 'map'"),
        ("--epochs 0", "--epochs must be at least 1, not 0"),
        ("--methods bce,loss:hcl:floor=abc", "loss hcl cannot be made with floor='abc'"),
        ("--network-option widht=3", "unknown option of network mlp 'widht'; did you mean 'width'"),
    ],
)
def test_what_is_refused(call, rows, words, message):
    line = f"compare rows.csv --label class --split part --out s {words}"
    assert message in call(line, code=2, begun=not words.startswith(EARLY))
    assert not (rows / "s" / "runs.jsonl").exists()  # the corrected command begins here


def test_options_are_checked_before_the_data_is_read(call):
    wrong = "--network mlp --network-option widht=8"
    message = "unknown option of network mlp 'widht'; did you mean 'width'"
    assert message in call(f"train no.csv --label class --out m {wrong}", code=2)
    assert message in call(f"compare no.csv --label class {wrong}", code=2)
    assert message in call(f"noise no.csv --label class {wrong}", code=2)
    message = "unknown metric 'map'"
    assert message in call("compare no.csv --label class --metrics hit@1,map", code=2)


def test_a_narrow_table_keeps_its_names_whole():
    from hierlearn.lab.commands.studies import print_study
    from lab.test_tables import SUMMARY

    texts = {}
    for width in (30, 200):
        console = Console(width=width, file=io.StringIO())
        print_study(console, SUMMARY)
        texts[width] = console.file.getvalue()
        assert "…" not in texts[width]
    assert "±" not in texts[30].partition("Mean")[0]
    assert "±" in texts[200].partition("Mean")[0]
    assert "hier-dist" in texts[200]


@pytest.mark.slow
@pytest.mark.filterwarnings("always::hierlearn.losses.hcl.CollapseWarning")
def test_classes_that_nothing_teaches_are_named_once_a_loss(call, rows):
    call(
        "compare synthetic --dataset-option rows=240 --methods hcl-paper --seeds 2 --epochs 6 "
        "--patience none --batch-size 64 --learning-rate 0.01 --network mlp "
        "--network-option width=8 --out s"
    )
    (line,) = call.warned.splitlines()
    assert line.startswith("hierlearn: hcl-paper: ")
    assert "were not selected for a whole epoch and learned nothing" in line


def test_a_class_that_only_test_rows_have_is_named(call, rows):
    text = (rows / "rows.csv").read_text().splitlines()
    text.append("1,2,3,plant/fern,test")
    (rows / "rows.csv").write_text("\n".join(text) + "\n")
    said = call(LINE.replace("bce,leaf-ce", "bce"))
    assert "1 method, 2 seeds each" in said
    assert "1 class of test rows without a training row, which nothing can learn" in said
    assert "'plant/fern'" in said


def test_a_misspelt_split_column_is_named(call, rows):
    line = LINE.replace("--split part", "--split prt")
    assert "unknown column 'prt'; did you mean 'part'" in call(line, code=2)


def test_an_option_of_a_loss_means_the_same_in_train_and_compare(call, rows):
    """``scope=none`` is None for both."""
    call(
        "train rows.csv --label class --split part --out m --epochs 1 --network-option width=8 "
        "--loss hcl --loss-option scope=none"
    )
    config = json.loads((rows / "m" / "config.json").read_text())
    call(LINE.replace("bce,leaf-ce", "loss:hcl:scope=none"))
    (candidate,) = json.loads((rows / "s" / "study.json").read_text())["candidates"]
    assert config["plan"]["loss_options"] == candidate["options"] == {"scope": None}


@pytest.mark.parametrize("name", ["hcl", "auto"])
def test_a_recipe_means_the_same_in_train_and_compare(call, rows, name):
    same = "--label class --split part --seed 4 --epochs 3 --network-option width=8 --device cpu"
    call(f"train rows.csv {same} --recipe {name} --out m")
    call(f"compare rows.csv {same} --methods {name} --seeds 1 --out s")
    config = json.loads((rows / "m" / "config.json").read_text())
    (run,) = map(json.loads, (rows / "s" / "runs.jsonl").read_text().splitlines())
    assert config["recipe"]["name"] == run["recipe"] == {"hcl": "hcl", "auto": "quick"}[name]
    shown = config["metrics"]["test"]
    assert shown.pop("calibration") >= 0  # a study compares networks as they are, not calibrated
    assert {metric: run["test"][metric] for metric in shown} == shown


def test_a_suite_from_the_command_line(call, rows, monkeypatch):
    monkeypatch.setenv("HIERLEARN_CACHE", str(rows / "cache"))
    monkeypatch.delenv("HIERLEARN_DATA", raising=False)
    for name in ("diatoms", "imclef07d"):
        write_set(rows, name)
    line = "compare --suite clus --data-dir . --methods flat,hcl --out suite --seeds 2 --epochs 1"
    said = call(f"{line} --device cpu --network-option width=8 --jobs 1")
    assert "diatoms: 60 rows, 5 classes; 2 methods, 2 seeds each" in said
    assert re.search(r"left out: enron, imclef07a, .*its\s+files are not in", said)
    assert "0.768 DHN" in said
    assert "wrote suite.md, suite.json and one study per set to suite" in said
    found = json.loads((rows / "suite" / "suite.json").read_text())
    assert found["candidates"] == ["flat", "hcl"]
    assert (rows / "suite" / "diatoms" / "report.html").is_file()
    assert "[diatoms](diatoms/report.html)" in (rows / "suite" / "suite.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--suite clus rows.csv", "is a list of named datasets and does not take --data"),
        ("--suite clus --label class", "does not take --label; leave that out"),
        ("--suite clus --tune 2", "does not take --tune"),
        ("--suite clsu", "unknown suite 'clsu'; did you mean 'clus'"),
        ("--suite clus --data-dir nowhere", "nowhere"),
    ],
)
def test_what_a_suite_refuses(call, rows, words, message):
    assert message in " ".join(call(f"compare {words} --out s", code=2).split())
    assert not (rows / "s").exists()
