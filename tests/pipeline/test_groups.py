"""Rows of one group, such as a recording, are held out together."""

import subprocess

import numpy as np
import pandas as pd
import pytest

from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.datasets import read_table
from hierlearn.datasets.dataset import Dataset
from hierlearn.errors import DataError, DataWarning
from hierlearn.pipeline.blend import BlendTraining
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan
from hierlearn.training.prepare import split_rows
from hierlearn.training.processes import processes
from warm import python

LABELS = ["a/x", "a/y", "b/z"]


def recordings(count=60, rows=8, seed=0):
    """Rows of recordings: a recording has its own place, which tells more than the class does."""
    rng = np.random.default_rng(seed)
    classes = np.arange(count) % len(LABELS)
    places = rng.normal(size=(count, 4)) * 3 + np.eye(4)[classes] * 1.5
    inputs = np.repeat(places, rows, axis=0) + rng.normal(size=(count * rows, 4)) * 0.1
    labels = [LABELS[one] for one in np.repeat(classes, rows)]
    groups = [f"r{one}" for one in np.repeat(np.arange(count), rows)]
    return inputs.astype(np.float32), labels, groups


def dataset(**more):
    inputs, labels, groups = recordings()
    return Dataset(
        inputs, [[one] for one in labels], Hierarchy.from_paths(LABELS), groups=groups, **more
    )


def groups_in(data, rows):
    return {data.groups[row] for row in rows}


def test_validation_rows_are_whole_groups():
    data = dataset()
    kept, held = split_rows(data, Plan(valid_fraction=0.2))
    assert len(held) > 0
    assert not groups_in(data, kept) & groups_in(data, held)


def test_groups_win_over_ids():
    data = dataset(ids=[str(number) for number in range(480)])
    kept, held = split_rows(data, Plan(valid_fraction=0.2))
    assert not groups_in(data, kept) & groups_in(data, held)


def test_a_race_leaves_out_whole_groups():
    data = dataset()
    with processes("cpu") as here:
        held = BlendTraining(data, Plan(), here, None, Reporting()).held
    assert held
    for fold in held:
        rest = np.setdiff1d(np.arange(len(data)), fold)
        assert not groups_in(data, rest) & groups_in(data, fold)


def test_the_neighbors_of_a_row_in_training_are_of_other_groups():
    from hierlearn.training.prepare import prepare
    from hierlearn.training.processes import find_device

    rows = prepare(dataset(), Plan(recipe="quick"), find_device("cpu")).rows
    assert rows.keys is not None
    assert rows.keys.unique().numel() == 60


def too_sure(recipe, *, grouped):
    """By how much a model is surer of rows of new recordings than it is right."""
    inputs, labels, groups = recordings()
    new, truth, _ = recordings(seed=1)
    model = HierarchicalClassifier(recipe=recipe)
    model.fit(inputs, labels, groups=groups if grouped else None)
    right = np.asarray(model.predict(new)) == np.asarray(truth)
    return model.predict_proba(new).max(axis=1).mean() - right.mean()


@pytest.mark.parametrize("recipe", ["auto", "trees"])
def test_a_model_is_as_sure_as_it_is_right_on_new_groups(recipe):
    assert abs(too_sure(recipe, grouped=True)) < 0.13  # 60 recordings: a standard error of 6 points


def test_without_groups_rows_of_a_recording_say_that_it_is_always_right():
    assert too_sure("trees", grouped=False) > 0.2


def test_groups_travel_with_their_rows():
    data = dataset()
    assert data.take([5, 100]).groups == ["r0", "r12"]
    assert data.digest() != dataset_of_other_groups().digest()


def dataset_of_other_groups():
    inputs, labels, groups = recordings()
    named = [[one] for one in labels]
    return Dataset(inputs, named, Hierarchy.from_paths(LABELS), groups=groups[::-1])


def test_the_number_of_groups_is_checked():
    inputs, labels, groups = recordings()
    with pytest.raises(DataError, match=r"480 rows but groups have 3; give one group per row"):
        HierarchicalClassifier().fit(inputs, labels, groups=groups[:3])


@pytest.mark.parametrize("empty", [None, float("nan"), "", pd.NA, pd.NaT])
def test_a_row_without_a_group_is_refused_as_in_a_table(empty):
    inputs, labels, groups = recordings()
    given = pd.Series([*groups[:7], empty, *groups[8:]], dtype=object)
    with pytest.raises(DataError, match="row 7 has no group; give it one, or leave groups out"):
        HierarchicalClassifier().fit(inputs, labels, groups=given)


def test_groups_are_one_column():
    inputs, labels, groups = recordings()
    for given, shape in ((np.array([groups, groups]).T, r"\(480, 2\)"), ("recording", r"\(\)")):
        with pytest.raises(DataError, match=f"one value per row, .* not the shape {shape}"):
            HierarchicalClassifier().fit(inputs, labels, groups=given)


def test_a_single_group_is_said():
    inputs, labels, _ = recordings(count=12)
    with pytest.warns(DataWarning, match="all training rows belong to the group 'r', so none can"):
        HierarchicalClassifier(recipe="quick", epochs=1).fit(inputs, labels, groups=["r"] * 96)


def write(path, *, group=True):
    inputs, labels, groups = recordings(count=24)
    head = "a,b,c,d,class" + ",recording" * group
    lines = [
        ",".join([*map(str, row), label, *([name] * group)])
        for row, label, name in zip(inputs, labels, groups, strict=True)
    ]
    path.write_text("\n".join([head, *lines]) + "\n")


def test_a_column_of_groups_is_no_input(tmp_path):
    write(tmp_path / "rows.csv")
    data = read_table(tmp_path / "rows.csv", label="class", group="recording")
    assert data.feature_names == ("a", "b", "c", "d")
    assert data.groups[:9] == ["r0"] * 8 + ["r1"]
    with pytest.raises(DataError, match=r"named twice, as id_column and as group"):
        read_table(tmp_path / "rows.csv", label="class", group="recording", id_column="recording")


def test_an_empty_group_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("n,class,who\n1,a,p\n2,b,\n")
    with pytest.raises(DataError, match=r"line 3.*group"):
        read_table(tmp_path / "rows.csv", label="class", group="who")


def test_the_command_takes_groups_and_new_rows_need_none(tmp_path):
    write(tmp_path / "rows.csv")
    write(tmp_path / "new.csv", group=False)

    def run(*words):
        command = [*python(), "-m", "hierlearn", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    words = ["--label", "class", "--group", "recording", "--valid-fraction", "0.2"]
    done = run("train", "rows.csv", *words, "--recipe", "trees", "--out", "model")
    assert done.returncode == 0, done.stderr
    for command in ("evaluate", "predict"):
        done = run(command, "model", "new.csv", *(["--out", "a.csv"] * (command == "predict")))
        assert done.returncode == 0, done.stderr
