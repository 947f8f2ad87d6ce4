"""What a study compares, as it is written on the command line."""

import pytest

from hierlearn.cli import app  # noqa: F401  (which imports the commands)
from hierlearn.errors import HierlearnError
from hierlearn.lab.candidates import VARIANTS, parse_candidate, parse_candidates
from hierlearn.lab.commands.studies import METHODS
from hierlearn.lab.protocol import Protocol
from hierlearn.losses import LOSSES
from hierlearn.training.recipes import RECIPES


def test_a_loss_with_its_options():
    assert parse_candidate("bce").plan() == {"loss": "bce", "loss_options": {}, "link": "from-loss"}
    candidate = parse_candidate("loss:hcl:link=softmax+scope=ancestors+floor=0.3+curriculum=None")
    assert candidate.options == {
        "link": "softmax",
        "scope": "ancestors",
        "floor": 0.3,
        "curriculum": None,
    }
    assert candidate.label == "loss:hcl (link softmax, scope ancestors, floor 0.3, curriculum None)"
    assert (candidate.loss, candidate.recipe) == ("hcl", None)
    assert len(parse_candidates(METHODS.split(","))) == 8


def test_a_recipe_is_named_as_train_names_it():
    for name in RECIPES:
        candidate = parse_candidate(name)
        assert (candidate.recipe, candidate.loss, candidate.title) == (name, None, name)
        assert candidate.plan() == {"recipe": name}
    assert parse_candidate("auto").plan() == {}  # a Plan as it is


def test_options_after_a_recipe_change_its_loss_and_nothing_else():
    candidate = parse_candidate("hcl:floor=0.5")
    assert candidate.plan() == {
        "recipe": "hcl",
        "loss": "hcl",
        "loss_options": {**RECIPES["hcl"].loss_options, "floor": 0.5},
    }
    assert candidate.title == "hcl (floor 0.5)"
    assert candidate.plan({"floor": 0.1})["loss_options"]["floor"] == 0.1


def test_settings_after_a_method_are_its_own():
    candidate = parse_candidate("flat:schedule=1cycle+epochs=7")
    assert candidate.settings == {"schedule": "1cycle", "epochs": 7}
    assert candidate.options == {}
    assert candidate.plan() == {"recipe": "flat"}
    assert candidate.title == "flat (schedule 1cycle, epochs 7)"
    mixed = parse_candidate("hxe:alpha=0.3+learning_rate=0.01")
    assert (mixed.options, mixed.settings) == ({"alpha": 0.3}, {"learning_rate": 0.01})
    protocol = Protocol(settings={"epochs": 3, "batch_size": 8})
    plan = protocol.plan(candidate)
    assert plan.settings["epochs"] == 7
    assert plan.settings["schedule"] == "1cycle"
    assert plan.settings["batch_size"] == 8
    assert protocol.plan(candidate, {"epochs": 9}).settings["epochs"] == 9


def test_an_option_of_the_loss_comes_before_a_setting_of_the_same_name(monkeypatch):
    class Odd(LOSSES["bce"]):
        @classmethod
        def option_names(cls):
            return ["epochs"]

    monkeypatch.setitem(LOSSES, "odd", Odd)
    candidate = parse_candidate("odd:epochs=3+patience=2")
    assert (candidate.options, candidate.settings) == ({"epochs": 3}, {"patience": 2})


@pytest.mark.parametrize("name", ["seed", "ensemble_size", "device"])
def test_what_the_study_decides_is_no_setting_of_a_method(name):
    with pytest.raises(HierlearnError, match=f"^{name} is a setting of the whole study"):
        parse_candidate(f"bce:{name}=1")


def test_the_prefix_is_written_only_where_a_name_means_two_things():
    assert parse_candidate("loss:bce") == parse_candidate("bce")
    assert parse_candidate("loss:hxe:alpha=0.3") == parse_candidate("hxe:alpha=0.3")
    assert parse_candidate("loss:hcl").key == "loss:hcl"
    with pytest.raises(HierlearnError, match="'bce' is listed twice"):
        parse_candidates(["bce", "loss:bce"])


def test_file_names_are_safe_and_differ():
    names = [
        parse_candidate(words).file_name for words in ("hxe:alpha=0.3", "hxe:alpha=0.5", "hxe")
    ]
    assert len(set(names)) == 3
    assert not any(set(name) & set(':=/\\"<>|?*+ ') for name in names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bcee"], "unknown loss or recipe 'bcee'; did you mean 'bce'"),
        (["mx"], "unknown loss or recipe 'mx'; did you mean 'max'"),
        (["loss:max"], "unknown loss 'max'; known: bce"),
        (["recipe:max"], "unknown loss or recipe 'recipe'"),
        (["auto:floor=0.3"], "auto chooses its loss by the rows"),
        (["hcl:floor"], "recipe hcl takes key=value, not 'floor'"),
        (["hxe:alpha"], "loss hxe takes key=value, not 'alpha'"),
        (["bce", "hcl", "bce"], "'bce' is listed twice"),
        ([], "name at least one loss or recipe"),
    ],
)
def test_what_is_refused(words, message):
    with pytest.raises(HierlearnError, match=message):
        parse_candidates(words)


def test_all_is_every_recipe_and_loss_and_the_baseline_trained_otherwise():
    candidates = parse_candidates(["all"])
    assert [one.key for one in candidates if one.settings] == list(VARIANTS)
    Protocol().check(candidates)
    assert {candidate.loss for candidate in candidates if candidate.loss} == set(LOSSES)
    assert {candidate.recipe for candidate in candidates if candidate.recipe} == set(RECIPES)
    assert candidates[0].key == "flat"  # what the others are tested against
