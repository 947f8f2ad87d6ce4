"""A plan says what to train; its decision puts recipe and own choices together."""

import json

import pytest

from hierlearn import Labels
from hierlearn.errors import HierlearnError
from hierlearn.training import Plan
from hierlearn.training.plan import decide
from training.datasets import TREE

ONE_PATH = Labels([["a/b/d"], ["a"]], TREE)
SEVERAL = Labels([["a/b/d", "f"], ["a"]], TREE)


def test_the_recipe_is_chosen_by_the_labels():
    decision = decide(Plan(), ONE_PATH)
    why = "inputs are numbers, and every training row has one path"
    assert (decision.name, decision.why) == ("quick", why)
    assert decide(Plan(), SEVERAL).name == "quick"


@pytest.mark.parametrize(
    "chosen", [{"link": "softmax"}, {"head": "linear"}, {"network": "linear"}], ids=str
)
def test_a_choice_that_needs_logits_gets_a_recipe_that_has_them(chosen):
    assert decide(Plan(**chosen), ONE_PATH).name == "hcl"
    assert decide(Plan(**chosen), SEVERAL).name == "max"


def test_options_of_the_usual_network_keep_the_memory():
    assert decide(Plan(network="mlp", network_options={"width": 8}), ONE_PATH).name == "quick"
    assert decide(Plan(), ONE_PATH, logits=True).name == "hcl"


def test_a_named_recipe_is_taken():
    decision = decide(Plan("paper"), SEVERAL)
    assert (decision.name, decision.why) == ("paper", "the recipe was named")
    assert not decision.settings.prior_bias
    assert decision.settings.schedule == "constant"


def test_the_plan_goes_before_the_recipe():
    plan = Plan("paper", link="max", decoder="top-down", settings={"prior_bias": True, "epochs": 2})
    decision = decide(plan, ONE_PATH)
    assert (decision.recipe.link, decision.recipe.decoder) == ("max", "top-down")
    assert decision.recipe.loss == "hcl-paper"
    assert decision.settings.prior_bias
    assert (decision.settings.epochs, decision.settings.schedule) == (2, "constant")


def test_a_named_loss_stands_alone_or_replaces_that_of_a_recipe():
    alone = decide(Plan(loss="focal", loss_options={"gamma": 1.0}), ONE_PATH)
    assert (alone.name, alone.why) == ("custom", "the loss was named")
    assert alone.recipe.loss_options == {"gamma": 1.0}
    inside = decide(Plan("paper", loss="focal"), ONE_PATH)
    assert (inside.name, inside.recipe.loss, inside.recipe.link) == ("paper", "focal", "sigmoid")
    assert inside.recipe.loss_options == {}


def test_plans_are_plain_values():
    plan = Plan(loss="hcl", loss_options={"floor": 0.2}, settings={"epochs": 3})
    assert Plan(**json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recipe": "maxx"}, "unknown recipe 'maxx'; did you mean 'max'"),
        ({"network": "mlpp"}, "unknown network 'mlpp'; did you mean 'mlp'"),
        ({"decoder": "leave"}, "unknown decoder 'leave'"),
        ({"valid_fraction": 1.0}, r"valid_fraction must be in \[0, 1\), not 1.0"),
        (
            {"loss": "hcl-paper", "loss_options": {"flor": 1}},
            "unknown option of hcl-paper 'flor'; did you mean 'floor'",
        ),
        (
            {"network": "mlp", "network_options": {"widht": 8}},
            "unknown option of network mlp 'widht'; did you mean 'width'",
        ),
        (
            {"decoder": "stop", "decoder_options": {"treshold": 0.5}},
            "unknown option of decoder stop 'treshold'; did you mean 'threshold'",
        ),
        (
            {"decoder": "leaf", "decoder_options": {"x": 1}},
            "decoder leaf takes no options, but x was given",
        ),
        ({"loss_options": {"floor": 0.1}}, "loss_options needs a loss; name it with loss="),
        ({"settings": {"epoch": 3}}, "unknown setting 'epoch'; did you mean 'epochs'"),
    ],
)
def test_what_is_refused(values, message):
    with pytest.raises(HierlearnError, match=message):
        Plan(**values)
