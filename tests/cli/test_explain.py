"""hierlearn explain and predict --explain: the remembered rows behind an answer."""

import csv
import json
import os
import re
import subprocess

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import warm
from hierlearn.datasets import read_table
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.folder import write_config


def written(path, delimiter=","):
    with path.open() as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def expected(folder, name, table, count, **columns):
    model = Pipeline.load(folder / name)
    dataset = read_table(folder / table, label="class", id_column="key", **columns)
    return model, dataset, explain(model, dataset.inputs, count)


def test_the_real_command_shows_the_first_rows(memories):
    done = subprocess.run(
        [*warm.python(), "-m", "hierlearn", "explain", "texts", "texts.csv", "--limit", "2"],
        cwd=memories,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "60"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    model, dataset, found = expected(memories, "texts", "texts.csv", 3, text="words")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["ignored columns: 'class'", "decoder leaf; 50 remembered rows"]
    answers = model.predict(dataset.inputs[:2])
    p = model.probabilities(dataset.inputs[:2])
    assert [line for line in lines if line.startswith("T")] == [
        f"T{row}: {answer}, probability {p[row, model.hierarchy.index(answer)]:.3f}"
        for row, answer in enumerate(answers)
    ]
    shown = [line.split() for line in lines if line.startswith("  0.") or line.startswith("  1.")]
    assert [(float(one[0]), one[1], one[3], " ".join(one[4:])) for one in shown] == [
        (round(one.weight, 3), one.labels[0], one.id, one.text) for row in found[:2] for one in row
    ]
    assert shown[0][3] == "T0"  # the row itself is the nearest


def test_the_long_table_has_all_rows(memories, call):
    said = call("explain model rows.csv --count 4 --out evidence.csv --limit 1")
    assert said.count("probability") == 1
    assert "wrote evidence.csv, 60 answers with up to 4 rows each" in said
    features = {"features": ["a", "b", "c"]}
    model, dataset, found = expected(memories, "model", "rows.csv", 4, **features)
    rows = written(memories / "evidence.csv")
    assert list(rows[0]) == ["row", "answer", "probability", "rank", "weight", "id", "labels"]
    assert [(row["row"], row["rank"], row["id"], row["labels"]) for row in rows] == [
        (key, str(rank), one.id, ";".join(one.labels))
        for key, own in zip(dataset.ids, found, strict=True)
        for rank, one in enumerate(own, start=1)
    ]
    assert [row["answer"] for row in rows[::4]] == model.predict(dataset.inputs)
    assert [row["weight"] for row in rows] == [f"{one.weight:.6g}" for own in found for one in own]


def test_without_ids_rows_are_named_by_their_line(memories, call):
    columns = ["a", "b", "c"]
    table = pyarrow.csv.read_csv(memories / "rows.csv").select(columns)
    pyarrow.csv.write_csv(table, memories / "plain.csv")
    assert "\nline 2: " in call("explain model plain.csv --limit 1")
    call("explain model plain.csv --count 2 --out evidence.parquet")
    found = pq.read_table(memories / "evidence.parquet").to_pydict()
    assert found["row"][:4] == [2, 2, 3, 3]
    assert found["rank"][:4] == [1, 2, 1, 2]
    assert "text" not in found


def test_a_model_trained_without_ids_says_how_rows_are_named(memories, call):
    call("train texts.csv --label class --text words --loss bce --head neighbors --epochs 1 -o m")
    said = call("explain m texts.csv --limit 1 --id-column key")
    assert "50 remembered rows, named by their place in the table, from 0" in said
    assert "\nT0: " in said


def test_all_of_the_weight_is_shown_where_all_rows_are(memories, call):
    call("explain texts texts.csv --count 50 --out evidence.tsv --decoder stop --threshold 0.99")
    rows = written(memories / "evidence.tsv", "\t")
    assert len(rows) == 50 * 50
    for begin in range(0, 2500, 500):
        assert sum(float(row["weight"]) for row in rows[begin : begin + 50]) == pytest.approx(1)
    assert all(row["text"] for row in rows)


def test_predict_adds_columns(memories, call):
    call("predict texts texts.csv --explain 2 -o out.csv")
    _, dataset, found = expected(memories, "texts", "texts.csv", 2, text="words")
    rows = written(memories / "out.csv")
    new = [f"neighbor_{n}_{kind}" for n in (1, 2) for kind in ("id", "weight", "labels", "text")]
    assert list(rows[0]) == ["id", "path", "class", "probability", "level", "stopped", *new]
    assert [row["id"] for row in rows] == list(dataset.ids)
    for row, own in zip(rows, found, strict=True):
        for number, one in enumerate(own, start=1):
            assert row[f"neighbor_{number}_id"] == one.id
            assert row[f"neighbor_{number}_weight"] == f"{one.weight:.6g}"
            assert row[f"neighbor_{number}_labels"] == ";".join(one.labels)
            assert row[f"neighbor_{number}_text"] == one.text
    call("predict model rows.csv --explain 1 -o out.parquet")
    found = pq.read_table(memories / "out.parquet").to_pydict()
    assert list(found)[-3:] == ["neighbor_1_id", "neighbor_1_weight", "neighbor_1_labels"]
    call("predict model rows.csv -o plain.csv")
    assert not any("neighbor" in name for name in written(memories / "plain.csv")[0])


def test_the_evidence_is_that_of_the_memory_alone(memories, call):
    line = "train texts.csv --label class --text words --loss bce --head neighbors --epochs 1"
    call(f"{line} --joint soft-labels=1 --answer average -o joint")
    note = (
        "the answers are the average of the heads main, soft-labels; the rows are the evidence of "
        "the memory main alone"
    )
    assert note in call("explain joint texts.csv --limit 1").replace("\n", " ")
    assert note in call("predict joint texts.csv --explain 2 -o out.csv").replace("\n", " ")
    assert note not in call("predict joint texts.csv -o plain.csv").replace("\n", " ")
    assert note not in call("explain texts texts.csv --limit 1").replace("\n", " ")
    path = memories / "joint" / "config.json"
    write_config(path, {**json.loads(path.read_text()), "answer": "soft-labels"})
    for words in ("explain joint texts.csv", "predict joint texts.csv --explain 2 -o no.csv"):
        message = call(words, code=2)
        assert "answers by its head 'soft-labels', which is no memory" in message
        assert "train with --answer main (answer='main' in Python)" in message
    assert not (memories / "no.csv").exists()


def test_named_datasets(memories, call):
    data = "synthetic --dataset-option rows=60"
    call(f"train {data} --loss bce --head neighbors --epochs 1 --out s")
    assert "test rows of synthetic" in call(f"explain s {data} --rows test --limit 2")
    message = call(f"explain s {data} --rows test --id-column key", code=2)
    assert "synthetic is no table and does not take --id-column; leave that out" in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "explain TRAINED rows.csv",
            "has no memory: its answers come from weights, not from rows; train it "
            "again with what is new, or train a model that remembers rows and classes without "
            "training, with --recipe neighbors, or --head neighbors",
        ),
        ("predict TRAINED rows.csv -o out.csv --explain 2", "has no memory: its answers come from"),
        (
            "predict model rows.csv -o out.csv --explain 99",
            "--explain must lie between 1 and 42, the remembered rows that an answer is taken from",
        ),
        ("predict model rows.csv -o out.csv --explain 0", "Invalid value for '--explain'"),
        ("explain model rows.csv --count 0", "Invalid value for '--count'"),
        ("explain model rows.csv --out rows.csv", "rows.csv is an input; write to another file"),
        ("explain model rows.csv --out e.xlsx", "e.xlsx: cannot write the ending '.xlsx'"),
        ("explain model rows.csv --id-column b", "column 'b' is named twice, as an input and as"),
        ("explain model rows.csv --id-column kez", "unknown column 'kez'; did you mean 'key'?"),
        (
            "explain model texts.csv",
            "texts.csv lacks the columns 'a', 'b', 'c', which the",
        ),
        (
            "explain model gap.csv --missing error",
            "gap.csv, line 2, column 'a': the value is missing, but none",
        ),
        ("explain nothing rows.csv", "nothing is no folder with a model in it"),
    ],
)
def test_each_refusal_is_one_line(memories, trained, call, line, message):
    (memories / "gap.csv").write_text("a,b,c\n,2,3\n")
    begun = "gap.csv" in line
    before = sorted(memories.rglob("*"))
    assert message in call(line.replace("TRAINED", str(trained)), code=2, begun=begun)
    assert sorted(memories.rglob("*")) == before


def test_words_of_a_model_without_a_memory(rows, call):
    lines = [f"barks {n},{n},animal/dog\npurrs {n},{n},plant/oak\n" for n in range(9)]
    (rows / "notes.csv").write_text("note,weight,class\n" + "".join(lines))
    call("train notes.csv --label class --out words --column-kind note=text")
    said = call("explain words notes.csv --limit 1 --count 1 --out parts.csv")
    assert "words or cells without which the answer would be" in said.replace("\n", " ")
    pattern = r"line 2: animal/dog, probability [\d.]+\n  [\d.]+ without note: barks \(-"
    assert re.search(pattern, said)
    table = written(rows / "parts.csv")
    assert {row["part"] for row in table} == {"note: barks", "note: purrs"}
    effect = float(table[0]["probability"]) - float(table[0]["without"])
    assert float(table[0]["effect"]) == pytest.approx(effect, abs=1e-5)


def test_a_class_may_hold_the_separator_of_labels(call, tmp_path):
    """With --label-sep none a cell is one label; what explains it needs the class, not its text."""
    lines = ["note,kind"]
    for n in range(12):
        lines += [f"barks small number{n},animal/dog; small", f"purrs tall number{n},animal/cat"]
    (tmp_path / "notes.csv").write_text("\n".join(lines) + "\n")
    call("train notes.csv --label kind --label-sep none --text note --out model")
    said = call("explain model notes.csv --limit 2 --out parts.csv")
    assert "line 2: animal/dog; small, probability" in said
    assert "without barks" in said or "without small" in said
    rows = (tmp_path / "parts.csv").read_text().splitlines()
    assert any(row.startswith("2,animal/dog; small,") for row in rows)
    said = call("explain model notes.csv --limit 1 --decoder coherent")
    assert "line 2: animal/dog; small" in said
