"""The commands on images, in one process: train, evaluate, predict, describe, remember, explain."""

import csv
import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from hierlearn.cli import main
from images.picture_files import COLORS, encoded, make_folder, make_shard, picture

SMALL = [
    *("--network", "cnn", "--network-option", "width=8", "--network-option", "depth=2"),
    *("--preprocessing-option", "image_size=12", "--head", "neighbors", "--device", "cpu"),
    *("--epochs", "4", "--batch-size", "8", "--learning-rate", "0.003"),
]


def run(*words):
    """Run a command; return its exit code and everything it printed."""
    said = io.StringIO()
    line = ["hierlearn", *map(str, words)]
    with redirect_stdout(said), redirect_stderr(said), patch.object(sys, "argv", line):
        try:
            main()
        except SystemExit as end:
            return end.code or 0, said.getvalue()
    raise AssertionError("a command always exits")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    make_folder(folder / "images", 6)
    code, said = run("train", folder / "images", "--out", folder / "model", *SMALL)
    assert code == 0, said
    assert "images: 18 images, 5 classes in 2 levels, a tree" in said
    return folder


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_predict_and_evaluate(trained, tmp_path):
    code, said = run(
        "predict", trained / "model", trained / "images", "--out", tmp_path / "out.csv"
    )
    assert code == 0, said
    rows = rows_of(tmp_path / "out.csv")
    assert [row["id"].rpartition("/")[0] for row in rows] == [row["path"] for row in rows]
    code, said = run("evaluate", trained / "model", trained / "images")
    assert code == 0, said
    assert "trained on 18 of 18 rows" in said


def test_broken_images_do_not_stop_the_others(trained, tmp_path):
    for number, color in enumerate(COLORS.values()):
        picture(color, seed=number).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.jpg").write_bytes(b"words")
    words = ("predict", trained / "model", tmp_path, "--out", tmp_path / "out.csv")
    code, said = run(*words)
    assert code == 2
    assert "broken.jpg (it is no image" in said
    code, said = run(*words, "--skip-broken")
    assert code == 0, said
    assert "left out 1 of 4 images that cannot be read: broken.jpg" in said
    assert [row["path"] for row in rows_of(tmp_path / "out.csv")] == list(COLORS)


def test_training_leaves_broken_images_out_when_asked(trained, tmp_path):
    make_folder(tmp_path / "images", 4)
    (tmp_path / "images" / "warm" / "red" / "zero.png").write_bytes(b"")
    words = ("train", tmp_path / "images", "--out", tmp_path / "model", *SMALL)
    code, said = run(*words)
    assert code == 2
    assert "1 of 13 images cannot be read: warm/red/zero.png (the file is empty)" in said
    code, said = run(*words, "--skip-broken", "--force")
    assert code == 0, said
    assert "left out 1 of 13 images" in said


def test_shards_and_descriptions(trained, tmp_path):
    make_shard(tmp_path / "test-0.tar", list(COLORS))
    code, said = run("evaluate", trained / "model", tmp_path / "test-0.tar")
    assert code == 0, said
    assert "on 3 rows" in said
    code, said = run("data", "describe", tmp_path / "test-0.tar")
    assert code == 0, said
    assert "images" in said
    code, said = run("inspect", trained / "images")
    assert code == 0, said
    assert "orange" in said


def test_a_table_of_paths(tmp_path):
    make_folder(tmp_path, 4)
    lines = [f"{name}/00{number}.png,{name}" for name in COLORS for number in range(4)]
    (tmp_path / "rows.csv").write_text("\n".join(["file,kind", *lines]))
    table, model = tmp_path / "rows.csv", tmp_path / "model"
    code, said = run("train", table, "--image", "file", "--label", "kind", "--out", model, *SMALL)
    assert code == 0, said
    code, said = run("evaluate", model, table)
    assert code == 0, said
    code, said = run("predict", model, table, "--out", tmp_path / "out.csv")
    assert code == 0, said
    assert rows_of(tmp_path / "out.csv")[0]["id"] == "warm/red/000.png"
    words = ("--text", "file", "--image", "file", "--label", "kind", "--out", tmp_path / "other")
    code, said = run("train", table, *words)
    assert code == 2
    assert "does not take --text" in said


def test_new_classes_are_remembered_and_explained(trained, tmp_path):
    folder = tmp_path / "new" / "cold" / "green"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.png").write_bytes(encoded(picture((20, 200, 40), seed=number)))
    code, said = run("remember", trained / "model", tmp_path / "new", "--out", tmp_path / "grown")
    assert code == 0, said
    assert "cold/green" in said
    code, said = run("explain", tmp_path / "grown", tmp_path / "new")
    assert code == 0, said
    assert "cold/green/" in said


def test_options_that_do_not_fit(trained, tmp_path):
    code, said = run("train", trained / "images", "--label", "x", "--out", tmp_path / "model")
    assert code == 2
    assert "is a source of images and does not take --label" in said
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n")
    code, said = run(
        *("train", tmp_path / "rows.csv", "--label", "label", "--skip-broken"),
        *("--out", tmp_path / "model"),
    )
    assert code == 2
    assert "--skip-broken goes with images" in said
