"""What the page draws the hierarchy from."""

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.reports import decisions as icicle
from hierlearn.reports.decisions import Decisions, Truth
from hierlearn.reports.markup import embed
from reports.handmade_study import stored_rows


def candidate_of(hierarchy, rows, decided, **options):
    truth = Truth(hierarchy, *Labels(rows, hierarchy).closed)
    decided = np.array([[hierarchy.index(c) for c in one] for one in decided])
    decisions = Decisions.read(truth, stored_rows(truth, decided))
    return truth, icicle.icicle_figures(truth, decisions, **options)


@pytest.fixture
def pets():
    return Hierarchy.from_paths(["animal/dog/pug", "animal/dog/lab", "animal/cat", "plant/oak"])


def test_accuracy_is_in_thousandths_and_the_root_comes_last(pets):
    rows = [["pug"], ["pug"], ["lab"], ["oak"], []]
    decided = [["pug", "lab", "cat", "oak", "oak"], ["pug", "pug", "oak", "oak", "oak"]]
    truth, found = candidate_of(pets, rows, decided)
    known = dict(zip([*pets.bare_names, "root"], found["accuracy"], strict=True))
    assert known == {
        **{"animal": 833, "plant": 1000, "cat": 0, "dog": 667, "oak": 1000},
        **{"lab": 0, "pug": 750, "root": 625},
    }
    shared = icicle.icicle_tree(pets, truth)
    support = dict(zip([*pets.bare_names, "root"], shared["support"], strict=True))
    assert support == {
        "animal": 3,
        "plant": 1,
        "cat": 0,
        "dog": 3,
        "oak": 1,
        "lab": 1,
        "pug": 2,
        "root": 4,
    }


def test_confused_pairs_come_by_how_often(pets):
    rows = [["pug"], ["pug"], ["lab"]]
    _, found = candidate_of(pets, rows, [["lab", "lab", "oak"], ["lab", "pug", "oak"]])
    index = pets.index
    assert found["confused"] == [index("pug"), index("lab"), 3, index("lab"), index("oak"), 2]
    assert found["left_out"] == 0
    _, found = candidate_of(pets, rows, [["lab", "lab", "oak"], ["lab", "pug", "oak"]], most=1)
    assert found["confused"] == [index("pug"), index("lab"), 3]
    assert found["left_out"] == 1


def test_all_right_confuses_nothing(pets):
    _, found = candidate_of(pets, [["pug"]], [["pug"]])
    assert found["confused"] == []


def test_a_class_of_a_dag_stands_below_its_first_parent():
    dag = Hierarchy.from_parents({"a": [], "b": [], "c": ["a", "b"]})
    truth, _ = candidate_of(dag, [["c"]], [["c"]])
    shared = icicle.icicle_tree(dag, truth)
    assert shared["parent"] == [-1, -1, 0]
    assert shared["sep"] is None
    assert "titles" not in shared
    named = icicle.icicle_tree(dag.with_titles({"c": "Both"}), truth)
    assert named == {**shared, "titles": [None, None, "Both"]}


def test_thousands_of_classes_stay_small():
    """5,000 leaves and decisions all over the place: less than 100 kB a loss."""
    leaves = [f"{c % 50}/{c % 1000}/{c}" for c in range(5000)]
    hierarchy = Hierarchy.from_paths(leaves)
    draw = np.random.default_rng(0)
    rows = [[leaves[one]] for one in draw.integers(0, 5000, 6000)]
    decided = draw.choice(hierarchy.leaves, (5, 6000))
    truth = Truth(hierarchy, *Labels(rows, hierarchy).closed)
    decisions = Decisions.read(truth, stored_rows(truth, decided))
    found = icicle.icicle_figures(truth, decisions)
    assert len(found["confused"]) == 3 * icicle.MOST_CONFUSED
    assert found["left_out"] > 20_000
    assert len(embed(found)) < 100_000
    assert len(embed(icicle.icicle_tree(hierarchy, truth))) < 130_000
