"""hierlearn evaluate: the metrics of a model on the rows that it is pointed at."""

import json
import shutil

import pytest

from hierlearn.datasets import read_table
from hierlearn.metrics import METRICS
from hierlearn.metrics.measure import shown_metrics
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline import evaluate as measure
from hierlearn.pipeline.folder import write_config


def test_the_columns_and_the_test_rows_are_those_of_the_training(trained, call, tmp_path):
    said = call(f"evaluate {trained} {trained.parent}/rows.csv -o figures.json")
    assert "on 20 rows of rows (test)" in said
    assert "wrote figures.json" in said
    found = json.loads((tmp_path / "figures.json").read_text())
    dataset = read_table(trained.parent / "rows.csv", label="class", split="part")
    wanted = measure(Pipeline.load(trained), dataset.split("test"))
    assert found["metrics"] == wanted
    assert (found["rows"], found["count"]) == ("test", 20)
    assert f"{100 * wanted['exact']:.2f} %" in said
    stored = json.loads((trained / "config.json").read_text())["metrics"]["test"]
    assert stored == wanted


def test_metrics_and_rows_may_be_chosen(trained, call):
    said = call(f"evaluate {trained} {trained.parent}/rows.csv --metrics hit@1,mrr --rows all")
    assert "on 100 rows of rows (all)" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("│")] == [
        "hit@1",
        "mrr",
    ]


def shown_rows(said):
    """The cells of the printed table, one list per metric."""
    lines = [line for line in said.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_accuracy_leads_at_every_level_and_directions_are_shown(trained, call, tmp_path):
    found = shown_rows(call(f"evaluate {trained} {trained.parent}/rows.csv -o figures.json"))
    figures = json.loads((tmp_path / "figures.json").read_text())["metrics"]
    assert [row[0] for row in found[:4]] == [
        *(f"accuracy, level {level}" for level in (1, 2, 3)),
        "exact",
    ]
    assert [row[2] for row in found[:3]] == [f"{100 * one:.2f} %" for one in figures["accuracy"]]
    assert found[3] == ["exact", "higher", f"{100 * figures['exact']:.2f} %"]
    better = {row[0].split(",")[0]: row[1] for row in found}
    assert set(better) == set(figures) - {"answered", "complete"}  # all rows are
    for name, direction in better.items():
        wanted = {"up": "higher", "down": "lower", "none": ""}[METRICS[name].direction]
        assert direction == wanted, name
    assert {"higher", "lower"} <= set(better.values())


def test_all_metrics_are_there_if_asked_for(trained, call, tmp_path):
    said = call(f"evaluate {trained} {trained.parent}/rows.csv --metrics all -o figures.json")
    found = json.loads((tmp_path / "figures.json").read_text())["metrics"]
    assert list(found) == list(METRICS)
    names = [row[0].split(",")[0] for row in shown_rows(said)]
    assert list(dict.fromkeys(names)) == list(METRICS)
    assert "n/a" not in said.split("hier-dist-path")[0]


@pytest.mark.filterwarnings("default::hierlearn.datasets.labels.LabelWarning")
def test_a_label_that_training_never_saw_is_scored_above_and_counted(trained, call, tmp_path):
    lines = (trained.parent / "rows.csv").read_text().splitlines()
    rows = [line.split(",")[:4] for line in lines[81:]]
    (tmp_path / "known.csv").write_text("\n".join(["a,b,c,class", *map(",".join, rows)]) + "\n")
    call(f"evaluate {trained} known.csv -o known.json")
    known = json.loads((tmp_path / "known.json").read_text())["metrics"]
    dogs = [n for n, row in enumerate(rows) if row[3] == "animal/dog/pug"]
    for n in dogs:
        rows[n][3] = f"animal/dog/new{n % 2}"
    oak = next(n for n, row in enumerate(rows) if row[3] == "plant/oak")
    rows[oak][3] = "stone/gneiss"
    (tmp_path / "new.csv").write_text("\n".join(["a,b,c,class", *map(",".join, rows)]) + "\n")
    said = call(f"evaluate {trained} new.csv -o new.json")
    labels = len({rows[n][3] for n in dogs}) + 1
    assert (
        f"{len(dogs) + 1} rows have {labels} labels that training never saw: scored at the nearest "
        f"known class above; 1 row of them has none above, so any class is wrong there: "
        f"'stone/gneiss'"
    ) in " ".join(said.split())
    found = json.loads((tmp_path / "new.json").read_text())
    assert found["count"] == len(rows)  # none is left out
    # By hand: a new dog is scored as a dog, so what is said of its breed is wrong.
    (tmp_path / "bare.csv").write_text(
        "\n".join(["a,b,c", *(",".join(row[:3]) for row in rows)]) + "\n"
    )
    call(f"predict {trained} bare.csv -o out.csv")
    answers = [line.split(",")[0] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    truth = [
        "animal/dog" if n in dogs else "" if n == oak else row[3] for n, row in enumerate(rows)
    ]
    right = [one == other for one, other in zip(answers, truth, strict=True)]
    assert found["metrics"]["exact"] == pytest.approx(sum(right) / len(rows))
    assert found["metrics"]["exact"] < known["exact"]
    top = [one.split("/")[0] == two.split("/")[0] for one, two in zip(answers, truth, strict=True)]
    assert found["metrics"]["accuracy"][0] == pytest.approx(sum(top) / len(rows))
    # It may still be refused, or skipped.
    assert "unknown label 'stone/gneiss'" in call(
        f"evaluate {trained} new.csv --unknown error", code=2
    )
    call(f"evaluate {trained} new.csv --unknown skip -o skipped.json")
    assert f"{labels} unknown labels" in call.warned
    left = json.loads((tmp_path / "skipped.json").read_text())["count"]
    assert left == len(rows) - len(dogs) - 1
    assert "training never saw" in call(f"report {trained} --data new.csv -o page.html")


def test_a_risk_is_evaluated_as_it_is_predicted(trained, call, tmp_path):
    table = f"{trained.parent}/rows.csv"
    risk = f"--risk 0.2 --calibrate {table} --calibrate-rows test"
    said = call(f"evaluate {trained} {table} --rows all {risk} -o figures.json")
    assert "decoder stop at threshold" in said
    assert "found on 20 rows" in said
    found = json.loads((tmp_path / "figures.json").read_text())["metrics"]
    shown = {row[0]: row[2] for row in shown_rows(said)}
    told = call(f"predict {trained} {table} {risk} -o out.csv --keep class")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    head, rows = lines[0].split(","), [line.split(",") for line in lines[1:]]
    path, label = head.index("path"), 0
    none = sum(not row[path] for row in rows)
    partial = sum(row[head.index("stopped")] == "true" for row in rows) - none
    assert found["answered"] == pytest.approx(1 - none / len(rows))
    assert found["complete"] == pytest.approx(1 - (none + partial) / len(rows))
    assert found["exact"] == pytest.approx(sum(row[path] == row[label] for row in rows) / len(rows))
    assert found["complete"] < 1
    assert shown["complete"] == f"{100 * found['complete']:.2f} %"
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in told.splitlines()]
    assert next(
        [cell.strip() for cell in line.strip("┃").split("┃")]
        for line in told.splitlines()
        if "partial" in line
    ) == ["rows", "complete", "partial", "no answer"]
    complete = len(rows) - none - partial
    counts = [f"{n} ({n / len(rows):.1%})" for n in (complete, partial, none)]
    assert [str(len(rows)), *counts] in cells


def test_the_keys_of_the_file_are_stable(trained, call, tmp_path):
    call(f"evaluate {trained} {trained.parent}/rows.csv -o figures.json")
    found = json.loads((tmp_path / "figures.json").read_text())
    assert list(found) == ["model", "data", "rows", "count", "trained_on", "metrics"]
    assert list(found["metrics"]) == shown_metrics()


def test_a_table_of_other_columns_is_read_by_the_hierarchy_of_the_model(trained, call, tmp_path):
    lines = ["c,b,kind,a", "1,0,pug,0", ",1,cat,2", "0,0,,1"]
    (tmp_path / "other.csv").write_text("\n".join(lines) + "\n")
    said = call(f"evaluate {trained} other.csv --label kind")
    assert "on 3 rows of other (all)" in said
    (tmp_path / "levels.csv").write_text("a,b,c,k,f\n1,2,3,animal,cat\n")
    assert "on 1 row of levels" in call(f"evaluate {trained} levels.csv --levels k,f")


def test_a_figure_that_is_not_defined_is_left_empty(trained, call, tmp_path):
    (tmp_path / "top.csv").write_text("a,b,c,class\n1,2,3,animal\n")
    call(f"evaluate {trained} top.csv -o out.json --metrics all")
    found = json.loads((tmp_path / "out.json").read_text())["metrics"]
    assert found["leaf-accuracy"] is None
    assert found["hit@1"] is not None
    assert found["accuracy"][1:] == [None, None]
    message = call(f"evaluate {trained} top.csv --metrics leaf-accuracy", code=2)
    assert "leaf" in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no rows.csv", "no is no folder with a model in it"),
        ("MODEL absent.csv", "absent.csv: no such file"),
        ("MODEL icd10", "unknown dataset 'icd10'; did you mean 'icd10cm'"),
        ("MODEL synthetic --dataset-option rows=30", "the rows are labeled by another hierarchy"),
        ("MODEL rows.csv --metrics hit@9", "unknown metric 'hit@9'; did you mean"),
        ("MODEL rows.csv --metrics ,", "names nothing; write names with commas"),
        ("MODEL rows.csv --rows dev", "unknown split 'dev'; known: all, test, train, valid"),
        ("MODEL rows.csv --label klass", "unknown column 'klass'; did you mean 'class'"),
        ("MODEL rows.csv --text class", "the model reads numbers and does not take --text"),
        ("MODEL rows.csv --features a", "inputs have 1 columns but 3 were fitted"),
        (
            "MODEL rows.csv --dataset-option a=1",
            "rows.csv is a file and does not take --dataset-option; leave",
        ),
        ("MODEL bad.csv", "bad.csv, line 2: unknown label 'dgo'; did you mean 'dog'"),
        ("MODEL less.csv", "less.csv lacks the column 'b', which the model reads; it has 'a', 'c'"),
        ("MODEL rows.csv -o rows.csv", "rows.csv is an input; write to another file"),
        ("MODEL rows.csv --hierarchy other.txt", "the rows are labeled by another hierarchy"),
        ("MODEL rows.csv --device tpu9", "'tpu9' is no device; use auto, cpu or cuda"),
    ],
)
def test_each_refusal_is_one_line(trained, call, tmp_path, line, message):
    shutil.copy(trained.parent / "rows.csv", tmp_path)
    (tmp_path / "bad.csv").write_text("a,b,c,class\n1,2,3,dgo\n")
    (tmp_path / "less.csv").write_text("a,c,class\n1,2,dog\n")
    (tmp_path / "other.txt").write_text(
        "animal/dog/pug\nanimal/dog/lab\nanimal/cat\nplant/oak\nplant/rose\nstone\n"
    )
    before = sorted(tmp_path.rglob("*"))
    assert message in call(f"evaluate {line.replace('MODEL', str(trained))}", code=2)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_of_texts_asks_for_the_column_only_if_it_does_not_know_it(call, tmp_path):
    (tmp_path / "t.csv").write_text("words,y\n" + "red round,fruit/apple\nblue flat,tool\n" * 5)
    call("train t.csv --label y --text words --out model --epochs 2")
    said = call("evaluate model t.csv")
    assert "on 10 rows of t (all)" in said
    assert "warning: the model was trained on 10 of 10 rows, so the figures are too good" in said
    (tmp_path / "u.csv").write_text("said,y\nred,tool\n")
    assert "u.csv lacks the column 'words', which the" in call("evaluate model u.csv", code=2)
    assert "on 1 row of u" in call("evaluate model u.csv --text said")
    message = call("evaluate model t.csv --features words", code=2)
    assert "the model reads texts and does not take --features; leave it out" in message
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["columns"]
    write_config(tmp_path / "model" / "config.json", config)
    message = call("evaluate model t.csv --label y", code=2)
    assert "the model reads texts; name their column with --text" in message
    message = call("evaluate model t.csv --text words", code=2)
    assert "t.csv: name the column of labels with --label, or --levels" in message
