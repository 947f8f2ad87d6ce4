"""train --network embeddings on vectors in a file, a column, or many columns."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn.cli.rows import split_names

LEAVES = ["a/b", "a/c", "d/e"]


@pytest.fixture
def folder(tmp_path):
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 3, 60)
    x = (3 * np.eye(3, 4)[kinds] + draw.normal(0, 1, (60, 4))).astype(np.float32)
    labels = [LEAVES[kind] for kind in kinds]
    for name, part in (("rows", slice(0, 45)), ("new", slice(45, 60))):
        np.save(tmp_path / f"{name}.npy", x[part])
        lines = [f"{n},{label}" for n, label in enumerate(labels[part])]
        (tmp_path / f"{name}.csv").write_text("\n".join(["key,class", *lines]) + "\n")
        table = pa.table({"class": labels[part], "vector": list(x[part])})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path


def accuracy(path, name="class"):
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return np.mean([row["path"] == row[f"input_{name}"] for row in rows])


@pytest.mark.parametrize("recipe", ["", "--recipe nearest", "--head neighbors"])
def test_vectors_in_a_file(folder, call, recipe):
    said = call(
        f"train rows.csv --label class --embeddings rows.npy --network embeddings {recipe} -o model"
    )
    assert "45 rows of 4 numbers" in said
    assert ("nothing is trained" in said) == bool(recipe)
    call("predict model new.csv --embeddings new.npy --keep class -o out.csv")
    assert accuracy(folder / "out.csv") > 0.75
    assert "terminal-accuracy" in call(
        "evaluate model new.csv --embeddings new.npy --metrics terminal-accuracy"
    )
    assert "name the file of those of the new rows" in call("predict model new.csv -o b.csv", 2)
    message = call("predict model new.csv --embeddings rows.npy -o b.csv", 2, begun=True)
    assert "rows.npy has 45 vectors, but new.csv has 15 rows" in message


def test_vectors_in_a_column(folder, call):
    call("train rows.parquet --label class --embeddings vector --recipe nearest -o model")
    call("predict model new.parquet --keep class -o out.csv")
    assert accuracy(folder / "out.csv") > 0.75
    call("remember model new.parquet --label class -o bigger")
    message = call("predict model new.parquet --features a -o c.csv", 2)
    assert "the model reads embeddings and does not take --features; leave it out" in message


def test_many_columns_are_named_by_a_range():
    assert split_names("id,e0..e3") == ["id", "e0", "e1", "e2", "e3"]
    assert split_names("8..11") == ["8", "9", "10", "11"]
    assert split_names("a..b,e3..e1,e1..f4") == ["a..b", "e3..e1", "e1..f4"]
