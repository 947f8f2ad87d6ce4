"""Folds: every row left out once, classes spread, copies of a row together."""

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.training import blending

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])


def labels_of(names):
    return Labels([[name] if isinstance(name, str) else name for name in names], TREE)


def test_every_row_is_left_out_once():
    labels = labels_of(["a/b", "a/c", "d"] * 11)
    found = blending.held_out(labels)
    assert len(found) == 5
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(33))


def test_every_fold_has_its_share_of_every_class():
    names = ["a/b"] * 10 + ["a/c"] * 5 + ["d"] * 20
    for rows in blending.held_out(labels_of(names), seed=3):
        assert sorted(names[row] for row in rows) == ["a/b"] * 2 + ["a/c"] + ["d"] * 4


def test_rows_with_the_same_id_are_left_out_together():
    draw = np.random.default_rng(0)
    ids = [f"id{number}" for number in draw.integers(0, 12, 60)]
    labels = labels_of([["a/b", "d"] if k % 2 else ["a/c"] for k in range(60)])
    place = {}
    for fold, rows in enumerate(blending.held_out(labels, ids)):
        for row in rows:
            assert place.setdefault(ids[row], fold) == fold


def test_the_seed_decides():
    labels = labels_of(["a/b", "a/c", "d"] * 20)
    one, same, other = (blending.held_out(labels, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_many_rows_have_one_fold_and_many_entries_a_part_of_it(monkeypatch):
    labels = labels_of(["a/b", "a/c", "d"] * 20)
    monkeypatch.setattr(blending, "FEW_ROWS", 60)
    assert [len(rows) for rows in blending.held_out(labels)] == [12]
    monkeypatch.setattr(blending, "MOST_ENTRIES", 7 * len(TREE))
    assert [len(rows) for rows in blending.held_out(labels)] == [7]


def test_few_rows_of_many_classes_have_a_part_of_one_fold(monkeypatch):
    labels = labels_of(["a/b", "a/c", "d"] * 20)
    monkeypatch.setattr(blending, "MOST_ENTRIES", 8 * len(TREE))
    assert [len(rows) for rows in blending.held_out(labels)] == [8]


def test_fewer_rows_than_folds():
    assert [len(rows) for rows in blending.held_out(labels_of(["a/b", "d", "d"]))] == [1, 1, 1]


def test_one_row_cannot_be_left_out():
    with pytest.raises(HierlearnError, match="at least 2 different ids, not 1"):
        blending.held_out(labels_of(["a/b", "a/b"]), ["same", "same"])
