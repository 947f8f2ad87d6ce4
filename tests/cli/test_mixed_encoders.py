"""train --encoder: a mixed table whose titles go through a text encoder, from CSV to answers."""

import csv

import numpy as np
import pytest

from tiny_backbones import save_tiny_bert

LEAVES = ["fruit/apple", "fruit/pear", "vehicle/car", "vehicle/bus"]


def test_from_a_csv_file_to_answers(tmp_path, call):
    pytest.importorskip("transformers")
    save_tiny_bert(tmp_path / "bert")
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 4, 120)
    words = ["red apple", "blue car"]
    lines = [
        f"{words[k // 2]} {draw.choice(['small', 'large'])} {n},{k % 2 + draw.normal(0, 0.1):.3f},"
        f"{LEAVES[k]}"
        for n, k in enumerate(kinds)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["my-title,price,class", *lines]) + "\n")
    (tmp_path / "run.yaml").write_text(
        "data: rows.csv\nlabel: class\ncolumn-kind: {my-title: text}\nepochs: 15\n"
        "encoder: {my-title: {source: 'hf:bert', pooling: cls}}\n"
    )
    said = call("train --config run.yaml -o model --device cpu")
    assert "encoded: my-title by hf:bert" in said
    call("predict model rows.csv --keep class -o out.csv")
    with (tmp_path / "out.csv").open() as file:
        found = list(csv.DictReader(file))
    assert np.mean([row["path"] == row["input_class"] for row in found]) > 0.9
    line = "train rows.csv --label class --column-kind my-title=text --recipe nearest -o other"
    call(f"{line} --encoder my-title=hf:bert,pooling=cls")
