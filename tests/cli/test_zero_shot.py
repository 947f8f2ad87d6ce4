"""hierlearn predict --zero-shot: no model, only titles and a sentence encoder."""

import csv

import pytest

from hierlearn import Hierarchy, zero_shot_pipeline
from hierlearn.pipeline.answers import AnswerFormatter
from tiny_backbones import save_tiny_bert

TREE = Hierarchy.from_paths(["fruit/apple", "fruit/pear", "vehicle/car", "vehicle/bus"])
TEXTS = ["red apple", "blue car", "small bus", "round pear", "green plum"]
LABELS = ["fruit/apple", "vehicle/car", "vehicle/bus", "fruit/pear", "fruit"]
LINE = "predict --zero-shot --encoder hf:bert --hierarchy tree.json rows.csv --text title"


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("transformers")
    save_tiny_bert(tmp_path / "bert")
    (tmp_path / "tree.json").write_text(TREE.with_titles({"car": "a car"}).to_json())
    lines = [f"{n},{text},{LABELS[n]}" for n, text in enumerate(TEXTS)]
    (tmp_path / "rows.csv").write_text("\n".join(["key,title,class", *lines]) + "\n")
    return tmp_path


def written(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_answers_are_those_of_the_pipeline(folder, call):
    said = call(f"{LINE} -o out.csv --temperature 0.01 --template 'a photo of {{title}}'")
    assert "decoder leaf" in said
    hierarchy = Hierarchy.read(folder / "tree.json")
    options = {"temperature": 0.01, "template": "a photo of {title}"}
    pipeline = zero_shot_pipeline(hierarchy, f"hf:{folder / 'bert'}", **options)
    wanted = AnswerFormatter(pipeline)(pipeline.probabilities(TEXTS))
    found = written(folder / "out.csv")
    assert [row["path"] for row in found] == wanted["path"]
    assert [float(row["probability"]) for row in found] == pytest.approx(
        wanted["probability"], rel=1e-4
    )


def test_the_options_of_predict_go_with_it(folder, call):
    call(f"{LINE} -o a.csv --keep key,class --top 2 --decoder stop --threshold 0.9 --inner-titles")
    found = written(folder / "a.csv")
    assert [row["key"] for row in found] == ["0", "1", "2", "3", "4"]
    assert "top_2_probability" in found[0]
    rows = [
        "title,class",
        *(f"{t},{c}" for t, c in zip(TEXTS[:4] * 10, LABELS[:4] * 10, strict=True)),
    ]
    (folder / "fresh.csv").write_text("\n".join(rows) + "\n")
    said = call(f"{LINE} -o b.csv --risk 0.3 --calibrate fresh.csv --label class")
    assert "at most a fraction 0.3 of new answers are wrong" in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("predict --zero-shot rows.csv -o o.csv", "--zero-shot needs --encoder hf:PATH"),
        ("predict --zero-shot --encoder hf:x rows.csv -o o.csv", "needs --hierarchy FILE"),
        (f"{LINE} more.csv -o o.csv", "leave out 'rows.csv' or 'more.csv'"),
        (f"{LINE} --explain 2 -o o.csv", "leave --explain out"),
        ("predict model rows.csv --encoder hf:x -o o.csv", "--encoder goes with --zero-shot"),
        ("predict model -o o.csv", "there are no rows to predict on"),
        (f"{LINE} --temperature 0 -o o.csv", "temperature must be a number above 0"),
    ],
)
def test_refusals(folder, call, line, message):
    assert message in call(line, 2)
