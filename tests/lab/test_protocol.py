"""How candidates are trained: losses under the study's schedule, recipes under their own."""

import pytest

from hierlearn.lab.candidates import PIPELINES, parse_candidate
from hierlearn.lab.protocol import EARLY, VALID_FRACTION, Protocol
from hierlearn.training.recipes import RECIPES


@pytest.mark.parametrize("name", [*RECIPES, *PIPELINES])
def test_a_recipe_keeps_its_own_settings(name):
    plan = Protocol(seeds=3, seed=5).plan(parse_candidate(name))
    size = 1 if name in PIPELINES else 3
    assert plan.settings == {"seed": 5, "ensemble_size": size}
    assert plan.valid_fraction == 0


@pytest.mark.parametrize("name", ["bce", "loss:hcl", "hxe:alpha=0.3"])
def test_a_loss_is_trained_by_the_protocol_of_the_study(name):
    plan = Protocol(seeds=3).plan(parse_candidate(name))
    assert plan.settings == {**EARLY, "seed": 0, "ensemble_size": 3}
    assert plan.valid_fraction == VALID_FRACTION


@pytest.mark.parametrize("name", ["bce", "hcl", "neighbors", "auto"])
def test_settings_that_are_named_hold_for_every_candidate(name):
    protocol = Protocol(settings={"epochs": 7, "learning_rate": 0.02}, valid_fraction=0.3)
    plan = protocol.plan(parse_candidate(name))
    assert (plan.settings["epochs"], plan.settings["learning_rate"]) == (7, 0.02)
    assert plan.valid_fraction == 0.3


def test_early_stopping_that_is_asked_for_gets_its_validation_rows():
    assert Protocol(settings={"patience": 4}).plan(parse_candidate("hcl")).valid_fraction == 0.15
    unasked = Protocol(settings={"patience": None}).plan(parse_candidate("hcl"))
    assert unasked.valid_fraction == 0
