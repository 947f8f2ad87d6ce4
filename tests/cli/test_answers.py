"""What hierlearn predict writes: kept columns, levels, best classes, all scores, long and wide."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn.datasets import read_table
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.answers import NAMES

STATUS = Path("/proc/self/status")


def written(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def truth(trained, rows):
    """Names, and the probabilities of every row by name."""
    model = Pipeline.load(trained)
    p = model.probabilities(read_table(rows / "rows.csv", label="class", split="part").inputs)
    names = model.hierarchy.names
    return model, [dict(zip(names, row, strict=True)) for row in p.tolist()]


def test_columns_of_the_input_are_kept_in_the_order_given(trained, rows, call):
    said = call(f"predict {trained} new.csv -o out.csv --keep id,b")
    assert "ignored columns" not in said
    found, source = written(rows / "out.csv"), written(rows / "new.csv")
    assert tuple(found[0]) == ("id", "b", *NAMES)
    assert [(row["id"], row["b"]) for row in found] == [(row["id"], row["b"]) for row in source]
    call(f"predict {trained} new.csv -o plain.csv")
    plain = written(rows / "plain.csv")
    assert [row["path"] for row in found] == [row["path"] for row in plain]


def test_a_kept_column_that_the_answers_have_gets_another_name(trained, rows, call):
    said = call(f"predict {trained} rows.csv -o out.csv --keep all")
    assert "kept under another name, as the answers have it: class as input_class" in said
    found, source = written(rows / "out.csv"), written(rows / "rows.csv")
    assert tuple(found[0]) == ("a", "b", "c", "input_class", "part", *NAMES)
    assert [row["input_class"] for row in found] == [row["class"] for row in source]
    assert [row["a"] for row in found] == [row["a"] for row in source]  # digit by digit


def test_kept_columns_keep_their_types_in_parquet(trained, rows, call):
    table = pa.table(
        {
            "a": [0.1, 0.2, 3.0],
            "b": [1.0, 2.0, 3.0],
            "c": [0.0, None, 1.0],
            "key": pa.array([None, 2**60, 7], pa.int64()),
            "exact": [0.1 + 0.2, None, 1 / 3],
            "sure": [True, None, False],
        }
    )
    pq.write_table(table, rows / "in.parquet", row_group_size=1)
    call(f"predict {trained} in.parquet -o out.parquet --keep key,exact,sure")
    found = pq.read_table(rows / "out.parquet")
    for name in ("key", "exact", "sure"):
        assert found.schema.field(name).type == table.schema.field(name).type
        assert found[name].to_pylist() == table[name].to_pylist()
    call(f"predict {trained} in.parquet -o out.csv --keep key,exact,sure")
    cells = written(rows / "out.csv")
    assert [row["key"] for row in cells] == ["", str(2**60), "7"]
    assert [row["exact"] for row in cells] == [repr(0.1 + 0.2), "", repr(1 / 3)]
    assert [row["sure"] for row in cells] == ["true", "", "false"]


def test_one_column_per_level(trained, rows, call):
    call(f"predict {trained} new.csv -o out.csv --by-level --decoder stop --threshold 0.6")
    _, p = truth(trained, rows)
    found = written(rows / "out.csv")
    assert tuple(found[0])[5:] == tuple(
        f"level_{level}{more}" for level in (1, 2, 3) for more in ("", "_probability")
    )
    assert len({row["level"] for row in found}) > 1  # some stop early
    for row, own in zip(found, p, strict=True):
        path = row["path"].split("/") if row["path"] else []
        for level in (1, 2, 3):
            inside = level <= len(path)
            assert row[f"level_{level}"] == (path[level - 1] if inside else "")
            if inside:
                value = own["/".join(path[:level])]
                assert float(row[f"level_{level}_probability"]) == pytest.approx(value, rel=1e-4)
            else:
                assert row[f"level_{level}_probability"] == ""


def test_levels_have_the_names_of_their_columns(call, tmp_path):
    lines = [f"{n % 3},{n},{'xy'[n % 2]},{'xy'[n % 2]}{n % 3}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["f,g,kind,sort", *lines]) + "\n")
    call("train t.csv --levels kind,sort --out model --epochs 2 --recipe hcl")
    call("predict model t.csv -o out.csv --by-level --keep all")
    found = written(tmp_path / "out.csv")
    assert [name for name in found[0] if name not in NAMES] == [
        *("f", "g", "input_kind", "input_sort"),
        *("kind", "kind_probability", "sort", "sort_probability"),
    ]
    assert all(row["path"] == f"{row['kind']}/{row['sort']}" for row in found)
    said = call("evaluate model t.csv")
    shown = [line.split("│")[1].strip() for line in said.splitlines() if line.startswith("│")]
    assert shown[:3] == ["accuracy, level 1 (kind)", "accuracy, level 2 (sort)", "exact"]


def test_a_level_of_a_set_holds_all_its_classes(trained, rows, call):
    call(f"predict {trained} new.csv -o out.csv --by-level --decoder coherent --threshold 0.02")
    found = written(rows / "out.csv")
    several = next(row for row in found if ";" in row["level_1"])
    assert set(several["level_1"].split(";")) == {"animal", "plant"}
    assert several["level_1_probability"].count(";") == 1


def test_the_most_probable_terminal_classes(trained, rows, call):
    call(f"predict {trained} new.csv -o out.csv --top 3")
    model, p = truth(trained, rows)
    leaves = [model.hierarchy.names[number] for number in model.hierarchy.leaves]
    for row, own in zip(written(rows / "out.csv"), p, strict=True):
        best = sorted(leaves, key=lambda name: -own[name])[:3]
        assert [row[f"top_{rank}"] for rank in (1, 2, 3)] == best
        shown = [float(row[f"top_{rank}_probability"]) for rank in (1, 2, 3)]
        assert shown == pytest.approx([own[name] for name in best], rel=1e-4)
        assert row["top_1"] == row["path"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_scores_of_all_classes_wide_and_long(trained, rows, call, ending):
    _, p = truth(trained, rows)

    def read(name):
        if ending == "csv":
            return written(rows / f"{name}.csv")
        return pq.read_table(rows / f"{name}.parquet").to_pylist()

    call(f"predict {trained} new.csv -o wide.{ending} --scores --keep id")
    for row, own in zip(read("wide"), p, strict=True):
        shown = {name[2:]: float(row[name]) for name in row if name.startswith("p:")}
        assert shown == pytest.approx(own, rel=1e-4, abs=1e-7)
    said = call(f"predict {trained} new.csv -o long.{ending} --scores --layout long --keep id")
    assert "scores of 100 rows" in said
    assert "decoder" not in said
    found = read("long")
    assert len(found) == 100 * 8
    assert list(found[0]) == ["id", "row", "path", "class", "level", "probability"]
    for row in found:
        own = p[int(row["row"]) - 1]
        assert float(row["probability"]) == pytest.approx(own[row["path"]], rel=1e-4, abs=1e-7)
        assert int(row["id"]) == int(row["row"]) - 1
        assert int(row["level"]) == row["path"].count("/") + 1


def test_the_best_classes_one_row_each(trained, rows, call):
    call(f"predict {trained} new.csv -o wide.csv --top 2")
    call(f"predict {trained} new.csv -o long.csv --top 2 --layout long --id-column id")
    wide, long = written(rows / "wide.csv"), written(rows / "long.csv")
    assert [row["rank"] for row in long] == ["1", "2"] * 100
    assert [row["id"] for row in long[::2]] == [str(number) for number in range(100)]
    for rank in (1, 2):
        assert [row["path"] for row in long[rank - 1 :: 2]] == [row[f"top_{rank}"] for row in wide]


def test_titles_stand_beside_every_name(call, tmp_path):
    tree = {"classes": ["a", "a/x", "a/y", "b"], "titles": ["Aa", "Ax", None, "Bb"]}
    lines = [f"{n % 3},{['a/x', 'a/y', 'b'][n % 3]}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["f,y", *lines]) + "\n")
    from hierlearn import Hierarchy

    titles = dict(zip(tree["classes"], tree["titles"], strict=True))
    h = Hierarchy.from_paths(tree["classes"]).with_titles(titles)
    (tmp_path / "h.json").write_text(h.to_json())
    call("train t.csv --label y --features f --hierarchy h.json --out model --epochs 2")
    call("predict model t.csv -o out.csv --by-level --top 1")
    found = written(tmp_path / "out.csv")[0]
    assert list(found) == [
        *("path", "class", "title", "probability", "level", "stopped"),
        *("level_1", "level_1_title", "level_1_probability"),
        *("level_2", "level_2_title", "level_2_probability"),
        *("top_1", "top_1_title", "top_1_probability"),
    ]
    for row in written(tmp_path / "out.csv"):
        assert row["level_1_title"] == titles[row["path"].split("/")[0]]
        assert row["top_1_title"] == (titles[row["top_1"]] or "")


# ---------------------------------------------------------------------- formulas


def test_texts_that_a_spreadsheet_would_run_are_counted_and_escaped(trained, rows, call):
    cells = ["=1+1", "-3.5", "+x", "plain", "@sum", "-1e3", '=HYPERLINK("x")', "'=1"]
    lines = [f'1,2,3,"{cell.replace(chr(34), chr(34) * 2)}"' for cell in cells]
    (rows / "f.csv").write_text("\n".join(["a,b,c,=note", *lines]) + "\n")
    said = call(f"predict {trained} f.csv -o out.csv --keep =note")
    assert "4 texts that a spreadsheet would run as a formula; escape with --escape-form" in said
    assert [row["=note"] for row in written(rows / "out.csv")] == cells
    said = call(f"predict {trained} f.csv -o safe.csv --keep =note --escape-formulas")
    assert "escaped 4 texts" in said
    found = [row["'=note"] for row in written(rows / "safe.csv")]
    assert found == ["'=1+1", "-3.5", "'+x", "plain", "'@sum", "-1e3", '\'=HYPERLINK("x")', "'=1"]
    said = call(f"predict {trained} f.csv -o out.parquet --keep =note")
    assert "formula" not in said
    assert pq.read_table(rows / "out.parquet")["=note"].to_pylist() == cells


def test_class_names_are_escaped_too(call, tmp_path):
    lines = [f"{n % 2},{['=cmd', 'b'][n % 2]}" for n in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["f,y", *lines]) + "\n")
    call("train t.csv --label y --features f --out model --epochs 5")
    call("predict model t.csv -o out.csv --escape-formulas --top 1 --scores", code=2)
    call("predict model t.csv -o out.csv --escape-formulas --top 2")
    for row in written(tmp_path / "out.csv"):
        shown = [row[name] for name in ("path", "class", "top_1", "top_2")]
        assert all(cell in ("'=cmd", "b") for cell in shown)
    assert "=cmd" in json.loads((tmp_path / "model" / "hierarchy.json").read_text())["names"]


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("new.csv --keep ident", "new.csv: unknown column 'ident'; known: "),
        ("new.csv --top 6", "--top must be at most 5: there are 5 terminal classes"),
        ("new.csv --top 2 --scores", "top and scores are given; leave one of them out"),
        ("new.csv --layout long", "the long layout has one row per class; give"),
        ("new.csv --layout tall --top 2", "unknown layout 'tall'"),
        ("new.csv --layout long --top 2 --by-level", "and no answers; leave --by-level out"),
        ("new.csv --layout long --top 2 --decoder stop", "and no answers; leave --decoder out"),
        ("synthetic --rows test --keep id", "synthetic is no table and does not take --keep"),
    ],
)
def test_each_refusal_is_one_line_and_leaves_nothing(trained, rows, call, line, message):
    before = sorted(rows.rglob("*"))
    assert message in call(f"predict {trained} {line} -o out.csv", code=2)
    assert sorted(rows.rglob("*")) == before


# ---------------------------------------------------------------------- memory

PEAK = """
import sys
from hierlearn.cli import main
model = sys.argv[1]
for name in ("small", "big"):
    for ending, more in (("parquet", "--scores"), ("csv", "--scores --layout long --keep all")):
        out = f"{name}-out.{ending}"
        sys.argv = ["hierlearn", "predict", model, f"{name}.csv", "-o", out, *more.split()]
        if "long" not in more:
            sys.argv += ["--keep", "all"]
        try:
            main()
        except SystemExit as end:
            assert not end.code
    held = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
    print("peak", int(held) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's account of memory")
def test_memory_does_not_grow_with_the_scores(trained, tmp_path):
    for name, count in (("small", 60_000), ("big", 150_000)):
        (tmp_path / f"{name}.csv").write_text("a,b,c,id\n" + "0.5,1.25,,key\n" * count)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, trained],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    small, big = (int(line.split()[1]) for line in done.stdout.splitlines() if "peak" in line)
    assert pq.ParquetFile(tmp_path / "big-out.parquet").metadata.num_rows == 150_000
    assert big - small < 40, f"{big - small} MB"
    with (tmp_path / "big-out.csv").open() as file:
        assert sum(1 for _ in file) == 1 + 8 * 150_000


def test_numbers_of_a_wide_table_are_those_of_the_narrow_one(trained, rows, call, monkeypatch):
    """Whatever the number of rows that are written at once."""
    call(f"predict {trained} new.csv -o one.parquet --scores")
    monkeypatch.setattr("hierlearn.pipeline.answers.CELLS", 20)
    monkeypatch.setattr("hierlearn.datasets.tables.write.CELLS", 50)
    call(f"predict {trained} new.csv -o two.parquet --scores")
    one, two = (pq.read_table(rows / f"{name}.parquet") for name in ("one", "two"))
    assert one.equals(two)
    assert pq.ParquetFile(rows / "two.parquet").metadata.num_row_groups > 10
    assert np.all(np.asarray(one["p:animal"]) <= 1)
