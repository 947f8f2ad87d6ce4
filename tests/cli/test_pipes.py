"""Tables through pipes: ``-`` is standard input where a table is read, standard output for one."""

import csv
import gzip
import io
import json
import os
import subprocess

import pytest

import warm


@pytest.fixture
def model(rows, call):
    call("train rows.csv --label class --split part --epochs 2 --out model")
    return rows


@pytest.fixture
def pipe(monkeypatch):
    """Give the command line bytes on standard input."""

    def given(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return given


def answers(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_answers_through_a_pipe_are_those_of_files(model, call, pipe):
    call("predict model new.csv --out answers.csv --keep id")
    expected = (model / "answers.csv").read_text()
    pipe((model / "new.csv").read_bytes())
    assert call("predict model - --out - --keep id") == expected
    assert "wrote standard output" in call.warned
    table = answers((model / "new.csv").read_text())
    pipe("".join(json.dumps(row) + "\n" for row in table).encode())
    assert call("predict model - --out - --keep id") == expected
    assert sorted(path.name for path in model.iterdir()) == [
        *("answers.csv", "fresh.csv", "model", "new.csv", "rows.csv")
    ]


def test_every_command_that_reads_a_table_reads_packed_ones(model, call, pipe):
    (model / "rows.csv.gz").write_bytes(gzip.compress((model / "rows.csv").read_bytes()))
    said = call("evaluate model rows.csv --rows test")
    assert call("evaluate model rows.csv.gz --rows test") == said
    pipe((model / "rows.csv").read_bytes())
    piped = call("evaluate model - --rows test")
    assert piped.replace("standard input", "rows") == said
    pipe((model / "rows.csv").read_bytes())
    assert "100" in call("data describe - --label class --split part")
    call("train rows.csv.gz --label class --split part --epochs 2 --out again")
    weights = [(model / one / "model.safetensors").read_bytes() for one in ("model", "again")]
    assert weights[0] == weights[1]
    pipe((model / "new.csv").read_bytes())
    lines = call("explain model - --out -").splitlines()
    assert lines[0].startswith("row,answer,probability,rank")
    assert len(lines) > 100


def test_formulas_are_escaped_in_csv_alone(model, call):
    text = (model / "new.csv").read_text().replace("\n0,", "\n=0,", 1)
    (model / "new.csv").write_text(text)
    call("predict model new.csv --out answers.csv.gz --keep id --escape-formulas")
    first = answers(gzip.decompress((model / "answers.csv.gz").read_bytes()).decode())[0]
    assert first["id"] == "'=0"
    call("predict model new.csv --out answers.jsonl --keep id")
    assert json.loads((model / "answers.jsonl").read_text().splitlines()[0])["id"] == "=0"
    said = call("predict model new.csv --out a.jsonl --escape-formulas", code=2)
    assert "--escape-formulas goes with a CSV or TSV file" in said


@pytest.mark.parametrize(
    ("line", "content", "wrong"),
    [
        ("predict model - --out -", b"", "standard input is empty; pipe a table into the command"),
        ("evaluate model -", b"a,b\n1,2\n", "standard input"),
        ("predict model - -o x.csv", b"a,b,c\n1,z,2\n", "standard input, line 2, column 'b': 'z'"),
        ("predict model - -o -.csv --engine ray", b"a\n1\n", "reads files, not standard input"),
        ("predict model new.csv -o - --engine ray", b"", "not standard output; name such a file"),
        ("predict model new.csv -o x.jsonl --engine ray", b"", "writes parquet, csv, tsv, not x"),
    ],
)
def test_what_is_wrong_with_a_pipe(model, call, pipe, line, content, wrong):
    pipe(content)
    begun = "x.csv" in line  # the plan was printed
    assert wrong in call(line, code=2, begun=begun)


def test_a_reader_that_stops_early_ends_it_quietly(model):
    read, write = os.pipe()
    os.close(read)
    command = ["hierlearn", "predict", "model", "new.csv", "--out", "-"]
    done = subprocess.run(
        [*warm.python(), "-m", *command],
        cwd=model,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert done.returncode == 1
    assert "Error" not in done.stderr
    assert "Exception" not in done.stderr
