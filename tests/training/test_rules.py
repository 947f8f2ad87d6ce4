"""The settings that recipes take from the training rows."""

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.baselines.early_heads import early_heads_rule as early
from hierlearn.lab.baselines.lmlp import lmlp_rule as levels
from hierlearn.training.choose import Facts, choose
from hierlearn.training.prepare import PrepareOptions, prepare
from hierlearn.training.recipes import RECIPES, linear, neighbors, quick
from hierlearn.training.settings import Plan

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("a", "d")])


def facts(rows, hierarchy=TREE, labels=("a/b",), kind="numbers", **more):
    return Facts.of(Labels([list(labels)] * rows, hierarchy), kind, **more)


@pytest.mark.parametrize(
    ("rows", "epochs"),
    [(2065, 94), (10_000, 40), (100, 200), (1_000_000, 4), (50_000, 8)],
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
    assert neighbors(facts(2000, labels=("a/b", "d"), kind="texts"))["preprocessing"] == "latent"
    assert neighbors(facts(2000, labels=("a/b", "d"), kind="sparse"))["preprocessing"] is None


def test_quick_is_smaller_and_shorter():
    few, many = quick(facts(2065)), quick(facts(100_000))
    assert (few["settings"]["epochs"], many["settings"]["epochs"]) == (50, 4)
    assert (few["settings"]["batch_size"], many["settings"]["batch_size"]) == (517, 1021)
    assert quick(facts(20))["settings"]["batch_size"] == 20
    assert few["joint"] == {}
    assert few["head_options"]["candidates"] == 0  # the rows of a batch
    assert quick(facts(300, kind="texts"))["preprocessing"] == "latent"
    several = facts(2000, labels=("a/b", "d"))
    assert quick(several) == neighbors(several)


def test_few_rows_with_several_labels_are_trained_for_more_epochs():
    assert neighbors(facts(100, labels=("a/b", "d")))["settings"]["epochs"] == 60


def test_the_length_follows_the_batch_size():
    labels = Labels([["a/b"]] * 10_000, TREE)
    assert neighbors(Facts.of(labels, "numbers", batch_size=1024))["settings"]["epochs"] == 160


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
    decision = choose(Facts.of(Labels([["a/b"]] * 500, TREE)), plan)
    assert decision.settings.epochs == 2
    assert decision.recipe.head_options["scale"] == 3.0
    assert decision.recipe.head_options["distance"] == "euclidean"
    assert decision.recipe.network_options["width"] == 64
    assert decision.recipe.network_options["dropout"] == 0.5


def test_naming_what_the_recipe_has_keeps_its_options():
    labels = Labels([["a/b"]] * 500, TREE)
    named = choose(
        Facts.of(labels), Plan(recipe="neighbors", head="neighbors", network="mlp")
    ).recipe
    assert named == choose(Facts.of(labels), Plan(recipe="neighbors")).recipe
    other = choose(
        Facts.of(labels), Plan(recipe="neighbors", head="linear", network="linear")
    ).recipe
    assert other.head_options == other.network_options == {}


def test_a_weight_of_zero_leaves_a_head_out():
    labels = Labels([["a/b"]] * 500, TREE)
    plan = Plan(recipe="neighbors", joint={"soft-labels": 0, "mixed": 2.0})
    assert choose(Facts.of(labels), plan).recipe.joint == {"bce": 1.0, "mixed": 2.0}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"link": "sigmoid"}, "link is for a linear head, and 'neighbors' has its own reading"),
        ({"answer": "hxe"}, "unknown head that answers 'hxe'"),
    ],
)
def test_choices_without_effect_are_refused(choices, message):
    data = Dataset(np.zeros((4, 2), dtype=np.float32), [["a/b"], ["a/c"]] * 2, TREE)
    with pytest.raises(HierlearnError, match=message):
        prepare(data, Plan(recipe="neighbors", **choices), torch.device("cpu"))


def test_a_module_of_ones_own_brings_its_heads():
    data = Dataset(np.zeros((4, 2), dtype=np.float32), [["a/b"], ["a/c"]] * 2, TREE)
    extras = PrepareOptions(network=torch.nn.Linear(2, 4))
    for plan in (Plan(recipe="neighbors"), Plan(loss="bce", head="neighbors")):
        with pytest.raises(HierlearnError, match="brings its own heads"):
            prepare(data, plan, torch.device("cpu"), extras)


def test_a_linear_model_is_solved_at_once():
    found = linear(facts(5000, kind="texts"))
    assert (found["loss"], found["decoder"]) == ("hinge", "balanced")
    ngrams = {"ngrams": 2, "char_ngrams": 5, "strip_accents": False}
    assert found["preprocessing_options"] == {**ngrams, "min_df": 1, "char_min_df": 2}
    table = linear(facts(5000, kind="sparse", columns={"number": 2, "text": 1}))
    assert table["preprocessing_options"] == found["preprocessing_options"]
    many = linear(facts(80_000, kind="texts"))["preprocessing_options"]
    assert many == {**ngrams, "min_df": 2, "char_min_df": 8}
    assert found["settings"]["l2_penalty"] == 0.5
    assert linear(facts(300, kind="sparse"))["preprocessing_options"] == {}
    on_dag = linear(facts(300, DAG, ["c"], "sparse"))
    assert on_dag["loss"] == "leaf-ce"
    assert "decoder" not in on_dag
    several = linear(facts(300, TREE, ["a/b", "a/c"], "texts"))
    assert (several["loss"], several["settings"]["l2_penalty"]) == ("bce", 2.0)


def test_in_batches_a_linear_model_takes_few_epochs_at_a_high_rate():
    settings = linear(facts(5000, kind="texts"))["settings"]
    assert (settings["learning_rate"], settings["epochs"]) == (0.1, 10)
    assert linear(facts(300, kind="texts"))["settings"]["epochs"] == 80


@pytest.mark.parametrize("chosen", [{"epochs": 3}, {"learning_rate": 0.1}, {"patience": 2}])
def test_settings_of_batches_ask_for_batches(chosen):
    labels = Labels([["a/b"]] * 9, TREE)
    assert choose(Facts.of(labels, "texts"), Plan()).settings.optimizer == "linear"
    assert choose(Facts.of(labels, "texts"), Plan(settings=chosen)).settings.optimizer == "adamw"
    asked = {**chosen, "optimizer": "linear"}
    assert choose(Facts.of(labels, "texts"), Plan(settings=asked)).settings.optimizer == "linear"


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("numbers", "quick", "inputs are numbers, and every training row has one path"),
        ("texts", "linear", "every training row has one path, and inputs are texts"),
        ("sparse", "linear", "every training row has one path, and inputs are sparse"),
    ],
)
def test_auto_looks_at_the_inputs(kind, name, why):
    decision = choose(Facts.of(Labels([["a/b"]] * 9, TREE), kind), Plan())
    assert (decision.name, decision.why) == (name, why)


def test_texts_with_several_labels_get_a_linear_model_of_every_class():
    labels = Labels([["a/b"]] * 8 + [["a/c", "a/b"]], TREE)
    decision = choose(Facts.of(labels, "texts"), Plan())
    assert decision.name == "linear"
    assert decision.why == "1 of 9 training rows has several labels, and inputs are texts"
    assert (decision.recipe.loss, decision.settings.optimizer) == ("bce", "linear")


@pytest.mark.parametrize("name", ["hcl", "max", "flat"])
@pytest.mark.parametrize(("rows", "epochs"), [(100, 100), (10_000, 100), (20_000, 51), (10**6, 4)])
def test_networks_with_logits_train_fewer_epochs_on_more_rows(name, rows, epochs):
    recipe = RECIPES[name].fitted_to(facts(rows))
    assert recipe.settings["epochs"] == epochs


@pytest.mark.parametrize("name", ["max", "flat", "awx", "tsle", "clems", "devise"])
@pytest.mark.parametrize(
    ("rows", "epochs"), [(100, 100), (500, 75), (2_500, 20), (20_000, 20), (100_000, 10)]
)
def test_several_labels_per_row_of_numbers_are_trained_for_fewer_epochs(name, rows, epochs):
    several = ("a/b", "d")
    recipe = RECIPES[name].fitted_to(facts(rows, labels=several))
    assert recipe.settings["epochs"] == epochs
    images = RECIPES[name].fitted_to(facts(2_500, labels=several, kind="images"))
    assert images.settings["epochs"] == 100


@pytest.mark.parametrize(
    ("name", "rows", "epochs"),
    [
        *[("hmcn-f", 500, 100), ("hmcn-f", 2_500, 32), ("hmcn-f", 20_000, 20)],
        *[("hmcn-f", 100_000, 10), ("hmcn-r", 500, 12), ("hmcn-r", 100_000, 10)],
    ],
)
def test_hmcn_has_lengths_of_its_own_for_several_labels(name, rows, epochs):
    several = facts(rows, labels=("a/b", "d"))
    assert RECIPES[name].fitted_to(several).settings["epochs"] == epochs
    one_path = facts(rows)
    usual = RECIPES["flat"].fitted_to(one_path).settings
    assert RECIPES[name].fitted_to(one_path).settings == usual


def test_every_level_gets_its_epochs():
    two = levels(facts(500))["settings"]
    assert two == {"epochs": 2 * 40, "learning_rate": 3e-3}  # four steps each
    deep = Hierarchy.from_paths(["a/b/c/d"])
    assert levels(facts(12_800, deep, ["d"]))["settings"]["epochs"] == 4 * 6  # 100 steps each
    several = Labels([["a/b", "a/c"]] * 500, TREE)
    assert levels(Facts.of(several, "numbers"))["settings"] == {"epochs": 2 * 20}
    assert levels(facts(1_000_000))["settings"]["epochs"] == 2 * 4  # at least


def test_early_heads_follow_the_labels():
    one = early(facts(500))
    assert (one["loss"], one["settings"]["epochs"]) == ("leaf-ce", 100)
    several = early(Facts.of(Labels([["a/b", "a/c"]] * 500, TREE), "numbers"))
    assert (several["loss"], several["link"]) == ("mixed", "max")
    assert several["settings"]["epochs"] == 20


def test_devise_drops_more_units_of_numbers():
    for kind, options in (("numbers", {"dropout": 0.5}), ("images", {}), ("texts", {})):
        recipe = RECIPES["devise"].fitted_to(facts(100, kind=kind))
        assert (recipe.network_options, recipe.settings["epochs"]) == (options, 100)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([["a/x"], ["a/y"], ["b"]], "linear SVMs below each parent"),
        ([["a/x", "b"], ["a/y"], ["b"]], "a linear SVM per class"),
    ],
)
def test_a_linear_model_is_described_in_words(labels, words):
    tree = Hierarchy.from_paths(["a/x", "a/y", "b"])
    recipe = RECIPES["linear"].fitted_to(Facts.of(Labels(labels, tree), "texts"))
    assert recipe.description == words
