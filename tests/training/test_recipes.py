"""Recipes: each makes its loss on any hierarchy."""

import pytest

from hierlearn import Hierarchy, Labels, LabelSpace
from hierlearn.decoding import DECODERS
from hierlearn.errors import HierlearnError
from hierlearn.links import LINKS, SoftmaxLink, make_link
from hierlearn.losses import LOSSES, HCLLoss, MixedLoss
from hierlearn.training import RECIPES, Plan, Settings
from hierlearn.training.choose import Facts, choose
from hierlearn.training.recipes import build_loss
from training.datasets import TREE

SPACE = LabelSpace(TREE, [0])
DAG = Hierarchy.from_parents({"a": [], "b": [], "c": ["a", "b"], "d": ["a"]})


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
def test_every_recipe_can_be_made(name, hierarchy):
    labels = Labels([[hierarchy.names[-1]]] * 9, hierarchy)
    recipe = RECIPES[name].fitted_to(Facts.of(labels, "sparse"))
    build_loss(recipe.loss, LabelSpace(hierarchy, [0]), **recipe.loss_options)
    assert recipe.link is None or type(make_link(hierarchy, recipe.link)) in LINKS.values()
    assert recipe.decoder is None or recipe.decoder in DECODERS
    Settings.from_dict(recipe.settings)
    assert recipe.description


def test_the_recipes_are_what_they_say():
    paper = build_loss(RECIPES["paper"].loss, SPACE)
    assert isinstance(paper, HCLLoss)
    assert (paper.floor, paper.scope, paper.curriculum) == (0.0, "levels", "batch")
    hcl = build_loss(RECIPES["hcl"].loss, SPACE, **RECIPES["hcl"].loss_options)
    assert isinstance(hcl.link, SoftmaxLink)
    assert 0 in hcl.link.terminals.tolist()
    assert (hcl.floor, hcl.scope, hcl.normalize) == (0.3, "ancestors", "mean")
    assert isinstance(build_loss(RECIPES["max"].loss, SPACE), MixedLoss)
    assert RECIPES["max"].link == RECIPES["flat"].link == "max"


def test_losses_know_the_terminal_classes():
    loss = build_loss("leaf-ce", LabelSpace(TREE, [0, 3]))
    assert {0, 3} <= set(loss.link.terminals.tolist())
    assert build_loss("hcl", SPACE, link="softmax").link.terminals.tolist()[0] == 0


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: choose(Facts(1), Plan("flatt")), "unknown recipe 'flatt'; did you mean 'flat'"),
        (lambda: build_loss("bcee", SPACE), "unknown loss 'bcee'; did you mean 'bce'"),
        (
            lambda: build_loss("hcl", SPACE, flor=0.1),
            "unknown option of hcl 'flor'; did you mean 'floor'",
        ),
        (
            lambda: build_loss("hcl-paper", SPACE, flor=0.1),
            "unknown option of hcl-paper 'flor'; did you mean 'floor'",
        ),
        (lambda: build_loss("bce", SPACE, reduction="sum"), "unknown option of bce 'reduction'"),
        (lambda: build_loss("bce", SPACE, link="soft"), "unknown link 'soft'"),
    ],
)
def test_unknown_names_are_worded(act, message):
    with pytest.raises(HierlearnError, match=message):
        act()


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_can_be_made_by_name(name):
    assert build_loss(name, SPACE).link is not None
