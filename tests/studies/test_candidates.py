"""What a study compares, as it is written on the command line."""

import pytest

from hierlearn.cli.compare import LOSSES as LOSSES_OF_COMPARE
from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES
from hierlearn.studies.candidates import parse_candidate, parse_candidates
from hierlearn.training.recipes import RECIPES


def test_losses_options_and_recipes():
    assert parse_candidate("bce").plan() == {"loss": "bce", "loss_options": {}, "link": "from-loss"}
    candidate = parse_candidate("hcl:link=softmax+scope=ancestors+floor=0.3+curriculum=None")
    assert candidate.options == {
        "link": "softmax",
        "scope": "ancestors",
        "floor": 0.3,
        "curriculum": None,
    }
    assert candidate.label == "hcl (link softmax, scope ancestors, floor 0.3, curriculum None)"
    assert parse_candidate("recipe:max").plan() == {"recipe": "max"}
    assert len(parse_candidates(LOSSES_OF_COMPARE.split(","))) == 8


def test_file_names_are_safe_and_differ():
    names = [
        parse_candidate(words).file_name for words in ("hxe:alpha=0.3", "hxe:alpha=0.5", "hxe")
    ]
    assert len(set(names)) == 3
    assert not any(set(name) & set(':=/\\"<>|?*+ ') for name in names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bcee"], "unknown loss 'bcee'; did you mean 'bce'"),
        (["recipe:mx"], "unknown recipe 'mx'; did you mean 'max'"),
        (["hxe:alpha"], "loss hxe takes key=value, not 'alpha'"),
        (["bce", "hcl", "bce"], "'bce' is listed twice"),
        ([], "name at least one loss"),
    ],
)
def test_what_is_refused(words, message):
    with pytest.raises(HierlearnError, match=message):
        parse_candidates(words)


def test_all_is_every_loss_and_recipe():
    candidates = parse_candidates(["all"])
    assert {candidate.loss for candidate in candidates if candidate.loss} == set(LOSSES)
    assert {candidate.recipe for candidate in candidates if candidate.recipe} == set(RECIPES)
    assert candidates[0].key == "bce"  # what the others are tested against
