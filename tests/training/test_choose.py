"""What ``choose`` decides: a table of facts and of what was asked for, with the whole decision."""

from dataclasses import replace

import numpy as np
import pytest

from hierlearn import Hierarchy, Labels
from hierlearn.datasets import Dataset
from hierlearn.datasets.tables.table import Table
from hierlearn.errors import HierlearnError
from hierlearn.training import Plan
from hierlearn.training.blending import race
from hierlearn.training.choose import KERNEL_ROWS, MEMORY_ROWS, WIDE, Facts, choose
from hierlearn.training.prepare import gather_facts
from training.datasets import TREE

TABLE = {"number": 2, "category": 1}
MANY = MEMORY_ROWS + 1
MUCH = "columns are many for a network"
PATH, SEVERAL = "every training row has one path", "40 of 100 training rows have several labels"
NONE, LABELED = "40 of 100 training rows have no label", "every labeled training row has one path"

# facts; plan; recipe, reason, loss, network, head, decoder, solver
TABLE_OF_CHOICES = [
    ({}, {}, f"quick|inputs are numbers, and {PATH}|bce||neighbors|leaf|adamw"),
    ({"columns": TABLE}, {}, f"quick|inputs are numbers, and {PATH}|bce||neighbors|leaf|adamw"),
    ({"kind": "images"}, {}, f"quick|inputs are images, and {PATH}|bce||neighbors|leaf|adamw"),
    ({"width": WIDE}, {}, f"quick|inputs are numbers, and {PATH}|bce||neighbors|leaf|adamw"),
    ({"width": WIDE + 1}, {},
     f"kernel|{PATH}, and {WIDE + 1:,} {MUCH}|leaf-ce|kernel|linear|leaf|kernel"),
    ({"width": WIDE + 1, "several": 40}, {},
     f"trees|{SEVERAL}, and {WIDE + 1:,} {MUCH}|bce|trees|linear|coherent|trees"),
    ({"width": WIDE + 1, "kind": "sparse"}, {},
     f"linear|{PATH}, and inputs are sparse|hinge|linear|sparse-linear|balanced|linear"),
    ({"several": 40}, {}, f"quick|inputs are numbers, and {SEVERAL}|bce||neighbors|coherent|adamw"),
    ({"unlabeled": 40}, {}, f"quick|inputs are numbers, and {NONE}|bce||neighbors|stop|adamw"),
    ({"kind": "texts"}, {},
     f"linear|{PATH}, and inputs are texts|hinge|linear|sparse-linear|balanced|linear"),
    ({"kind": "sparse"}, {},
     f"linear|{PATH}, and inputs are sparse|hinge|linear|sparse-linear|balanced|linear"),
    (
        {"kind": "sparse", "columns": TABLE},
        {},
        f"linear|{PATH}, and inputs are sparse|hinge|linear|sparse-linear|balanced|linear",
    ),
    (
        {"kind": "sparse", "is_tree": False},
        {},
        f"linear|{PATH}, and inputs are sparse|leaf-ce|linear|sparse-linear|leaf|linear",
    ),
    (
        {"kind": "texts", "several": 40},
        {},
        f"linear|{SEVERAL}, and inputs are texts|bce|linear|sparse-linear|coherent|linear",
    ),
    (
        {"kind": "texts", "streamed": True},
        {},
        f"linear|{PATH}, and inputs are texts|hinge|linear|linear|balanced|adamw",
    ),
    (
        {"kind": "sparse", "is_tree": False, "unlabeled": 40, "partial": True},
        {},
        f"linear|{LABELED}, and inputs are sparse|bce|linear|sparse-linear|leaf|linear",
    ),
    ({"kind": "tokens"}, {}, f"softmax|inputs are tokens, and {PATH}|leaf-ce||linear|leaf|adamw"),
    ({"kind": "tokens", "several": 40, "logits": True}, {},
     f"max|{SEVERAL}|mixed||linear|coherent|adamw"),
    ({"rows": MANY}, {},
     f"hcl|{PATH}, and 200,001 rows are many for a memory|hcl||linear|leaf|adamw"),
    ({"rows": MANY, "kind": "images"}, {},
     f"softmax|inputs are images, and {PATH}, and 200,001 rows are many for a memory"
     f"|leaf-ce||linear|leaf|adamw"),
    ({"logits": True}, {}, f"hcl|{PATH}|hcl||linear|leaf|adamw"),
    ({"logits": True, "several": 40}, {}, f"max|{SEVERAL}|mixed||linear|coherent|adamw"),
    ({"logits": True, "unlabeled": 40}, {}, f"max|{NONE}|mixed||linear|stop|adamw"),
    ({"logits": True, "unlabeled": 40, "partial": True}, {},
     f"hcl|{LABELED}|hcl||linear|leaf|adamw"),
    ({"module": "other"}, {}, f"hcl|{PATH}|hcl||linear|leaf|adamw"),
    ({"module": "trees"}, {}, f"hcl|{PATH}|hcl||linear|leaf|trees"),
    ({"kind": "texts", "several": 40}, {"recipe": "linear", "head": "linear"},
     "linear|the recipe was named|bce|linear|linear|coherent|adamw"),
    ({"kind": "texts"}, {"recipe": "linear", "head_options": {"strategy": "flat"}},
     "linear|the recipe was named|hinge|linear|sparse-linear|balanced|linear"),
    ({"kind": "texts"}, {"recipe": "linear", "joint": {"bce": 1.0}},
     "linear|the recipe was named|hinge|linear|linear|balanced|adamw"),
    ({"kind": "texts"}, {"recipe": "linear", "network": "token-bag"},
     "linear|the recipe was named|hinge|token-bag|linear|balanced|adamw"),
    ({"kind": "texts", "module": "other"}, {"recipe": "linear"},
     "linear|the recipe was named|hinge|linear|linear|balanced|adamw"),
    ({"kind": "texts"}, {"recipe": "linear", "link": "softmax"},
     "linear|the recipe was named|hinge|linear|linear|balanced|adamw"),
    ({}, {"network": "linear", "head": "sparse-linear"},
     "linear|the head was named|hinge|linear|sparse-linear|balanced|linear"),
    ({}, {"link": "softmax"}, f"hcl|{PATH}|hcl||linear|leaf|adamw"),
    ({}, {"head": "linear"}, f"hcl|{PATH}|hcl||linear|leaf|adamw"),
    ({}, {"network": "linear"}, f"hcl|{PATH}|hcl|linear|linear|leaf|adamw"),
    ({}, {"network": "mlp", "network_options": {"width": 8}},
     f"quick|inputs are numbers, and {PATH}|bce||neighbors|leaf|adamw"),
    ({}, {"network": "embeddings"},
     "linear|inputs are embeddings|hinge|embeddings|sparse-linear|balanced|linear"),
    ({}, {"network": "embeddings", "head": "neighbors"},
     "nearest|inputs are embeddings|bce|embeddings|neighbors|leaf|none"),
    ({}, {"network": "trees"}, f"hcl|{PATH}|hcl|trees|linear|leaf|trees"),
    ({}, {"recipe": "trees", "settings": {"epochs": 3}},
     "trees|the recipe was named|bce|trees|linear|leaf|trees"),
    ({}, {"recipe": "paper"}, "paper|the recipe was named|hcl-paper||linear|argmax|adamw"),
    ({}, {"recipe": "paper", "loss": "focal", "decoder": "leaf"},
     "paper|the recipe was named|focal||linear|leaf|adamw"),
    ({}, {"loss": "focal"}, "custom|the loss was named|focal||linear|leaf|adamw"),
    ({"kind": "texts"}, {"settings": {"epochs": 3}},
     f"linear|{PATH}, and inputs are texts|hinge|linear|linear|balanced|adamw"),
    ({"kind": "texts"}, {"settings": {"epochs": 3, "optimizer": "linear"}},
     f"linear|{PATH}, and inputs are texts|hinge|linear|sparse-linear|balanced|linear"),
    ({"kind": "texts"}, {"network": "linear", "settings": {"epochs": 3}},
     f"hcl|{PATH}|hcl|linear|linear|leaf|adamw"),
    ({"kind": "texts"}, {"recipe": "linear", "head": "neighbors"},
     "linear|the recipe was named|hinge|linear|neighbors|balanced|adamw"),
    ({"kind": "texts"}, {"recipe": "linear", "loss": "bce", "loss_options": {"log_base": 2}},
     "linear|the recipe was named|bce|linear|linear|balanced|adamw"),
    ({"kind": "texts"}, {"recipe": "linear", "loss": "bce", "loss_options": {"link": "sigmoid"}},
     "linear|the recipe was named|bce|linear|linear|balanced|adamw"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "plan", "expected"), TABLE_OF_CHOICES, ids=str)
def test_the_choice(facts, plan, expected):
    found = choose(Facts(**{"rows": 100, "classes": 8, "depth": 3, **facts}), Plan(**plan))
    recipe = found.recipe
    parts = (found.name, found.why, recipe.loss, recipe.network or "", recipe.head)
    assert "|".join((*parts, found.decoder, found.settings.optimizer)) == expected


def test_wide_rows_get_no_network_and_trees_that_look_at_few_columns():
    """A network on 100,000 columns takes gigabytes, and minutes for a few hundred rows."""
    wide = Facts(rows=KERNEL_ROWS, classes=8, width=WIDE + 1)
    assert list(race(wide)) == ["kernel", "trees", "forest"]
    assert list(race(replace(wide, width=WIDE))) == ["quick", "kernel", "trees", "forest"]
    ingredient = race(wide)["trees"]
    plan = ingredient.plan(Plan(), 1)
    assert choose(wide, plan).recipe.network_options["max_features"] == "sqrt"
    few = replace(wide, width=WIDE)
    assert choose(few, plan).recipe.network_options["max_features"] == 0.5


def test_the_width_of_rows():
    h = Hierarchy.from_paths(["a", "b"])
    labels = [["a"], ["b"], ["a"]]
    table = Table({"x": np.zeros(3), "y": np.zeros(3)}, {"x": "number", "y": "number"})
    for inputs, width in ((np.zeros((3, 5), np.float32), 5), (table, 2), (["x", "y", "z"], 0)):
        dataset = Dataset(inputs, labels, h)
        assert gather_facts(dataset, Labels(labels, h), Plan()).width == width


def test_the_choice_is_pure():
    facts = Facts(rows=100, kind="texts")
    assert choose(facts, Plan()) == choose(facts, Plan()) == choose(facts)
    assert facts == Facts(rows=100, kind="texts")


@pytest.mark.parametrize(
    ("labels", "below", "several", "unlabeled"),
    [
        ([["a"], ["a/b"]], "negative", 0, 0),
        ([["a", "a/b"], ["f"]], "negative", 0, 0),  # one path, named twice
        ([["a"], ["a/c", "f"]], "negative", 1, 0),
        ([["a"], [], []], "ignore", 0, 2),
    ],
)
def test_what_labels_tell(labels, below, several, unlabeled):
    found = Facts.of(Labels(labels, TREE, unlabeled_descendants=below), "sparse")
    assert (found.rows, found.several, found.unlabeled) == (len(labels), several, unlabeled)
    assert (found.classes, found.depth, found.is_tree) == (8, 3, True)
    assert found.partial == (below == "ignore")
    assert found.one_path == (not several and not unlabeled)


def test_the_plan_goes_before_the_recipe():
    plan = Plan("paper", link="max", decoder="top-down", settings={"prior_bias": True, "epochs": 2})
    found = choose(Facts(rows=100), plan)
    assert (found.recipe.link, found.recipe.decoder) == ("max", "top-down")
    settings = found.settings
    assert (settings.prior_bias, settings.epochs, settings.schedule) == (True, 2, "constant")
    focal = Plan("paper", loss="focal", loss_options={"gamma": 1.0})
    assert choose(Facts(rows=100), focal).recipe.loss_options == {"gamma": 1.0}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan("trees", link="max"), "link reads logits, and the network trees has none"),
        (Plan("trees", settings={"optimizer": "adamw"}), "trees has no gradients for adamw"),
        (
            Plan("hcl", settings={"optimizer": "linear"}),
            "linear solves the head 'sparse-linear' alone, and the head is 'linear'; use optimizer",
        ),
        (
            Plan("linear", head="sparse-linear", settings={"optimizer": "adamw"}),
            "linear has no gradients for adamw; use optimizer 'linear'",
        ),
        (
            Plan("linear", head="sparse-linear", link="softmax"),
            "link is for a linear head, and 'sparse-linear' has its own reading",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(plan, message):
    with pytest.raises(HierlearnError, match=message):
        choose(Facts(rows=100), plan)
