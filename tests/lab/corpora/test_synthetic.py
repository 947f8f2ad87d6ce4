"""Synthetic data and noise: what the parameters promise."""

from dataclasses import replace

import numpy as np
import pytest

from hierlearn import Dataset, Hierarchy
from hierlearn.datasets import describe
from hierlearn.errors import DataError
from hierlearn.lab.corpora.synthetic import make_synthetic, with_hierarchy_noise, with_label_noise


def test_the_same_seed_gives_the_same_data_and_another_does_not():
    a, b, c = make_synthetic(seed=1), make_synthetic(seed=1), make_synthetic(seed=2)
    np.testing.assert_array_equal(a.inputs, b.inputs)
    assert a.labels == b.labels
    assert a.hierarchy == b.hierarchy
    assert not np.array_equal(a.inputs, c.inputs)


def test_sizes_depth_and_splits():
    data = make_synthetic(rows=100, features=5, depth=4, fan_out=3)
    assert data.inputs.shape == (100, 5)
    assert data.hierarchy.level_sizes == (3, 9, 27, 81)
    assert {name: len(rows) for name, rows in data.splits.items()} == {
        "train": 60,
        "valid": 20,
        "test": 20,
    }
    assert sorted(np.concatenate(list(data.splits.values()))) == list(range(100))


def test_ragged_dag_and_many_labels():
    ragged = make_synthetic(depth=4, fan_out=3, ragged=0.5, seed=3).hierarchy
    assert len(set(ragged.levels[ragged.leaves])) > 1
    assert ragged.depth == 4
    dag = make_synthetic(depth=3, fan_out=3, dag=0.5, rows=50)
    assert not dag.hierarchy.is_tree
    many = describe(make_synthetic(labels_per_row=3))["labels"]["terminal_per_row"]
    assert (many["min"], many["max"]) == (1, 3)


def test_classes_close_in_the_taxonomy_are_close_in_space():
    data = make_synthetic(rows=3000, spread=0.0, decay=0.3)
    leaves = [data.hierarchy.index(row[0]) for row in data.labels]
    a, b = np.arange(1500), np.arange(1500, 3000)
    heights = data.hierarchy.lca_heights(np.array(leaves)[a], np.array(leaves)[b])
    distance = np.linalg.norm(data.inputs[a] - data.inputs[b], axis=1)
    means = [distance[heights == height].mean() for height in range(4)]
    assert means == sorted(means)
    assert means[0] == 0


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_label_noise_corrupts_exactly_its_fraction_of_train_and_valid(rate):
    clean = make_synthetic(rows=400)
    noisy = with_label_noise(clean, rate, seed=5)
    changed = {row for row in range(400) if clean.labels[row] != noisy.labels[row]}
    assert len(changed) == round(rate * 320)
    assert not changed & set(clean.splits["test"].tolist())
    assert clean.hierarchy == noisy.hierarchy


def test_label_noise_takes_the_named_splits_and_refuses_others():
    clean = make_synthetic(rows=100)
    noisy = with_label_noise(clean, 1.0, splits=["test"])
    changed = {row for row in range(100) if clean.labels[row] != noisy.labels[row]}
    assert changed == set(clean.splits["test"].tolist())
    assert with_label_noise(clean, 1.0, splits=[]).labels == clean.labels
    with pytest.raises(DataError, match="unknown split 'trian'; did you mean 'train'"):
        with_label_noise(clean, 0.5, splits=("trian",))
    with pytest.raises(DataError, match=r"neither of the splits 'train', 'valid'; .* of 'a'"):
        with_label_noise(replace(clean, splits={"a": [1]}), 0.5)
    unsplit = replace(clean, splits={})
    noisy = with_label_noise(unsplit, 1.0)
    assert all(a != b for a, b in zip(clean.labels, noisy.labels, strict=True))


def test_label_noise_draws_again_until_the_class_is_wrong():
    h = Hierarchy.from_paths(["a", "b", "c"])
    rows = [["a", "b"], ["a", "b", "c"], [], ["b", "c"]] * 50
    noisy = with_label_noise(Dataset([""] * 200, rows, h), 1.0).labels
    assert noisy[0::4] == [["c"]] * 50
    assert noisy[1::4] == [["a", "b", "c"]] * 50  # no class is wrong
    assert {label for (label,) in noisy[2::4]} == {"a", "b", "c"}
    assert noisy[3::4] == [["a"]] * 50


def test_hierarchy_noise_keeps_the_root_even_where_a_class_has_its_name():
    for edges in ([("thing", "a"), ("a", "c"), ("b", "d")], [("a", "c"), ("b", "c"), ("b", "d")]):
        h = Hierarchy.from_edges([*edges, ("a", "root")], root="thing")
        noisy = with_hierarchy_noise(Dataset([], [], h), 0.5).hierarchy
        assert noisy.root == "thing"
        assert sorted(noisy.bare_names) == sorted(h.bare_names)
    plain = Hierarchy.from_edges([("root", "a"), ("root", "b"), ("a", "c"), ("b", "c")])
    assert "root" in with_hierarchy_noise(Dataset([], [], plain), 1.0).hierarchy.names


@pytest.mark.parametrize("dag", [0.0, 0.4])
def test_hierarchy_noise_moves_its_share_of_edges_and_keeps_levels_and_rows(dag):
    clean = make_synthetic(rows=50, dag=dag, fan_out=4)
    noisy = with_hierarchy_noise(clean, 0.3, seed=2)
    assert noisy.hierarchy.level_sizes == clean.hierarchy.level_sizes

    def edges(h):
        return {(h.bare_names[p], h.bare_names[c]) for c in range(len(h)) for p in h.parents(c)}

    before, after = edges(clean.hierarchy), edges(noisy.hierarchy)
    assert len(before) == len(after)
    assert len(before - after) == round(0.3 * len(before))
    bare = [[label.split("/")[-1] for label in row] for row in noisy.labels]
    assert bare == [[label.split("/")[-1] for label in row] for row in clean.labels]
    assert with_hierarchy_noise(clean, 0.0).hierarchy == clean.hierarchy


def test_noise_where_names_repeat_never_makes_siblings_of_one_name():
    h = Hierarchy.from_paths([f"{top}/{name}" for top in "abc" for name in ("other", top * 2)])
    data = Dataset(np.zeros((1, 1), np.float32), [["a/other"]], h)
    noisy = with_hierarchy_noise(data, 1.0)
    assert len(noisy.hierarchy) == len(h)
    assert noisy.labels[0][0] in noisy.hierarchy.names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows must be at least 1, not 0"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"label_noise": 1.5}, r"label noise must lie in \[0, 1\], not 1.5"),
        ({"hierarchy_noise": -0.1}, r"hierarchy noise must lie in \[0, 1\]"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"ragged": 2}, r"ragged must lie in \[0, 1\]"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(DataError, match=message):
        make_synthetic(**options)
