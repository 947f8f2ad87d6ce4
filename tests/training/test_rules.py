"""The settings that the recipe "neighbors" takes from the training rows."""

import pytest

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.training.plan import Plan, decide
from hierlearn.training.rules import Facts, neighbors

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("a", "d")])


def facts(rows, hierarchy=TREE, labels=("a/b",), kind="numbers"):
    return Facts(Labels([list(labels)] * rows, hierarchy), kind)


@pytest.mark.parametrize(
    ("rows", "epochs"),
    [(2065, 94), (10_000, 40), (100, 1600), (1_000_000, 4), (50_000, 8)],
)
def test_the_length_follows_the_rows(rows, epochs):
    assert neighbors(facts(rows))["settings"]["epochs"] == epochs


@pytest.mark.parametrize(("rows", "candidates"), [(100, 128), (2065, 1032), (10_000, 3000)])
def test_the_candidates_follow_the_rows(rows, candidates):
    assert neighbors(facts(rows))["head_options"]["candidates"] == candidates


def test_several_labels_are_encoded_by_bins_and_trained_shortly():
    found = neighbors(facts(2000, labels=("a/b", "d")))
    assert found["preprocessing"] == "piecewise-linear"
    assert found["settings"]["epochs"] == 6
    assert "joint" not in found
    assert neighbors(facts(2000, labels=("a/b", "d"), kind="texts"))["preprocessing"] is None


def test_soft_labels_need_a_tree():
    assert set(neighbors(facts(500))["joint"]) == {"bce", "soft-labels"}
    assert set(neighbors(facts(500, DAG, ["c"]))["joint"]) == {"bce"}


def test_what_the_plan_says_wins():
    plan = Plan(
        recipe="neighbors",
        head_options={"scale": 3.0},
        network_options={"width": 64},
        settings={"epochs": 2},
    )
    decision = decide(plan, Labels([["a/b"]] * 500, TREE))
    assert decision.settings.epochs == 2
    assert decision.recipe.head_options["scale"] == 3.0
    assert decision.recipe.head_options["distance"] == "euclidean"
    assert decision.recipe.network_options["width"] == 64
    assert decision.recipe.network_options["dropout"] == 0.5
